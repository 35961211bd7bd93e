"""ASGI middleware for all requests: ids, body limits, security headers, metrics and logs."""

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
"""Maximum time for a request body to arrive, so that slow senders cannot hold connections."""

SECURITY_HEADERS = {
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
"""Methods with a metric of their own. Clients can send any name; all others count as `other`."""

REVALIDATE = "no-cache"
"""Cache-Control of static files: browsers cache them, but check for a new version each time."""

logger = logging.getLogger("app")


class RequestMiddleware:
    """Assigns request ids, limits bodies, adds headers, and counts and logs requests.

    The log never contains texts.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics, max_body_bytes: int) -> None:
        """Wrap an application.

        Args:
            app: The ASGI application.
            metrics: Counts the requests.
            max_body_bytes: Maximum size of a request body.
        """
        self._app = app
        self._metrics = metrics
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Process a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        context = _RequestContext(scope, receive, send, self._max_body_bytes)
        try:
            await self._app(scope, context.receive, context.send)
        except Exception as error:
            context.log_error(error)
        finally:
            context.log_request(self._metrics)


class _RequestContext:
    """State of one request."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, max_body_bytes: int) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._started = time.monotonic()
        self._status = 0
        self._remaining_bytes = max_body_bytes
        self._body_complete = False
        self._id = uuid.uuid4().hex
        scope.setdefault("state", {})["request_id"] = self._id

    async def receive(self) -> Message:
        """Return the next message; limit the size of the body and the time for it to arrive."""
        if self._body_complete:
            return await self._receive()
        try:
            async with asyncio.timeout(self._started + BODY_SECONDS - time.monotonic()):
                message = await self._receive()
        except TimeoutError as error:
            raise HTTPException(408, "the request body took too long to arrive") from error
        self._body_complete = not message.get("more_body", False)
        self._remaining_bytes -= len(message.get("body", b""))
        if self._remaining_bytes < 0:
            raise HTTPException(413)
        return message

    async def send(self, message: Message) -> None:
        """Send a message; add the headers to the start of the response."""
        if message["type"] == "http.response.start":
            self._status = message["status"]
            headers = MutableHeaders(scope=message)
            headers.update(SECURITY_HEADERS)
            headers["X-Request-Id"] = self._id
            static = self._status in (200, 304) and "etag" in headers
            headers["Cache-Control"] = REVALIDATE if static else "no-store"
        await self._send(message)

    def log_error(self, error: Exception) -> None:
        """Log type and position of an unexpected error, after the response has been sent.

        The message of the error is left out, because it may contain a text.
        """
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{type(error).__name__} at {frame.filename}:{frame.lineno}"
        logger.error("failed", extra={"fields": {"request_id": self._id, "error": place}})

    def log_request(self, metrics: Metrics) -> None:
        """Count and log the request."""
        seconds = time.monotonic() - self._started
        route = getattr(self._scope.get("route"), "path", "other")
        known = route != "other" and self._scope["method"] in METHODS
        method = self._scope["method"] if known else "other"
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
