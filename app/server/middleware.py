"""What every request passes on its way in, and every answer on its way out."""

import asyncio
import logging
import time
import traceback
import uuid
from typing import Any

from fastapi import HTTPException
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.server.metrics import Metrics

BODY_SECONDS = 20.0
"""A body that takes longer to arrive is refused: a slow sender must not hold on for ever."""

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}

METHODS = {"GET", "HEAD", "POST", "OPTIONS"}
"""Those that are counted by their names: a name is the client's to choose."""

FRESH = "no-cache"
"""Files are kept by browsers and asked for again: after an update the page is the new one."""

logger = logging.getLogger("app")


class Gate:
    """Gives a request its number, limits its body, sets headers, counts, and logs without text."""

    def __init__(self, app: ASGIApp, metrics: Metrics, max_body: int) -> None:
        """`max_body` is the most bytes that a request may send."""
        self._app = app
        self._metrics = metrics
        self._max_body = max_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Lets a request pass."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        passage = _Passage(scope, receive, send, self._max_body)
        try:
            await self._app(scope, passage.receive, passage.send)
        except Exception as error:
            passage.complain(error)
        finally:
            passage.log(self._metrics)


class _Passage:
    """One request on its way."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, max_body: int) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._begun = time.monotonic()
        self._status = 0
        self._left = max_body
        self._whole = False
        self._id = uuid.uuid4().hex
        scope.setdefault("state", {})["request_id"] = self._id

    async def receive(self) -> Message:
        """The next message; the body must be whole in time, and no larger than it may be."""
        if self._whole:
            return await self._receive()
        try:
            async with asyncio.timeout(self._begun + BODY_SECONDS - time.monotonic()):
                message = await self._receive()
        except TimeoutError as error:
            raise HTTPException(408, "the request took too long to arrive") from error
        self._whole = not message.get("more_body", False)
        self._left -= len(message.get("body", b""))
        if self._left < 0:
            raise HTTPException(413)
        return message

    async def send(self, message: Message) -> None:
        """Passes a message on, with our headers."""
        if message["type"] == "http.response.start":
            self._status = message["status"]
            headers = MutableHeaders(scope=message)
            headers.update(HEADERS)
            headers["X-Request-Id"] = self._id
            static = self._status in (200, 304) and "etag" in headers
            headers["Cache-Control"] = FRESH if static else "no-store"
        await self._send(message)

    def complain(self, error: Exception) -> None:
        """Logs where it went wrong, not with which text; it is answered already."""
        where = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{type(error).__name__} at {where.filename}:{where.lineno}"
        logger.error("failed", extra={"fields": {"request_id": self._id, "error": place}})

    def log(self, metrics: Metrics) -> None:
        """Counts the request, and writes a line about it."""
        seconds = time.monotonic() - self._begun
        route = getattr(self._scope.get("route"), "path", "other")
        named = route != "other" and self._scope["method"] in METHODS
        method = self._scope["method"] if named else "other"
        metrics.request(route, method, self._status, seconds)
        fields: dict[str, Any] = {
            "request_id": self._id,
            "method": method,
            "route": route,
            "status": self._status,
            "ms": round(1000 * seconds),
            **self._scope["state"].get("sizes", {}),
        }
        logger.info("request", extra={"fields": fields})
