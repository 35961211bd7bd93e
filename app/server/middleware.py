"""ASGI middleware for all requests: ids, body limits, security headers, metrics and logs."""

import asyncio
import logging
import time
import traceback
import uuid
from collections import Counter
from typing import Any

from fastapi import HTTPException, Request, Response
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.errors import ApiError, OverloadedError
from app.server.error_responses import error_response
from app.server.metrics import Metrics
from app.server.rate_limit import client_address
from app.server.request_guard import CLIENT_CLOSED_REQUEST, RequestGuard

BODY_SECONDS = 20.0
BODY_BYTES_PER_SECOND = 100_000
"""A request body may take this time, and that of its maximum size at this speed. Slower senders
cannot hold connections."""

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

EXPLORER_PATH = "/inside"
"""The folder of the explorer."""

EXPLORER_POLICY = (
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; worker-src 'self'; manifest-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
"""The Content-Security-Policy of the explorer, which runs the model in a worker."""

DOCUMENT_PATHS = {"/api/v1/documents", "/translate_file"}
FORM_BYTES = 100_000
"""Bytes of a form with a document, without the document."""

METHODS = {"DELETE", "GET", "HEAD", "POST", "OPTIONS"}
"""Methods with a metric of their own. Clients can send any name; all others count as `other`."""

REVALIDATE = "no-cache"
"""Cache-Control of static files: browsers cache them, but check for a new version each time."""

HEALTH_PATHS = {"/livez", "/readyz", "/health"}
"""Paths that answer even if there are too many requests."""

RETRY_SECONDS = 2.0
"""Retry-After of a request that is one too many."""

CHARGED_STATUSES = range(400, 429)
"""Statuses of requests that a client should not have sent."""

logger = logging.getLogger("app")


class RequestMiddleware:
    """Assigns request ids, limits bodies, adds headers, and counts and logs requests.

    The log never contains texts.
    """

    def __init__(
        self, app: ASGIApp, guard: RequestGuard, metrics: Metrics, max_requests: int
    ) -> None:
        """Wrap an application.

        Args:
            app: The ASGI application.
            guard: Charges clients for refused requests.
            metrics: Counts the requests.
            max_requests: Maximum number of requests at the same time.
        """
        self._app = app
        self._guard = guard
        self._metrics = metrics
        self._max_requests = max_requests
        self._active: Counter[str] = Counter()
        """Requests at this time by the address of their client."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Process a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        method = scope["method"]
        if method == "HEAD":  # answered as GET, without the body
            scope = {**scope, "method": "GET"}
        max_body_bytes = self._max_body_bytes(scope["path"])
        context = _RequestContext(scope, method, receive, send, max_body_bytes)
        request = Request(scope)
        address = client_address(request)
        self._active[address] += 1
        try:
            app = self._refuse(request) or self._app
            with self._metrics.track_request():
                await app(scope, context.receive, context.send)
        except Exception as error:
            context.log_error(error)
        finally:
            self._active -= Counter([address])
            context.log_request(self._metrics)
            if context.status in CHARGED_STATUSES:
                self._guard.charge_refused(request, context.body_bytes)

    def _max_body_bytes(self, path: str) -> int:
        """Return the maximum size of a body: documents are larger than texts."""
        settings = self._guard.settings
        documents = settings.max_document_bytes + FORM_BYTES if path in DOCUMENT_PATHS else 0
        return max(settings.max_body_bytes, documents)

    def _refuse(self, request: Request) -> Response | None:
        """Return the error response to a request that must not reach a route."""
        if {"content-length", "transfer-encoding"} <= set(request.headers):
            # A proxy may see two requests where this server sees one (request smuggling).
            message = "Content-Length, Transfer-Encoding: send only one of them"
            error = ApiError(400, "malformed", message)
        elif self._is_one_too_many(request):
            error = OverloadedError(RETRY_SECONDS)
        else:
            return None
        response = error_response(request, error)
        response.headers["Connection"] = "close"
        return response

    def _is_one_too_many(self, request: Request) -> bool:
        """Return whether there are too many requests, and this address has more than its share."""
        if self._active.total() <= self._max_requests or request.scope["path"] in HEALTH_PATHS:
            return False
        return self._active[client_address(request)] > self._max_requests // len(self._active)


class _RequestContext:
    """State of one request."""

    def __init__(
        self, scope: Scope, method: str, receive: Receive, send: Send, max_body_bytes: int
    ) -> None:
        self._scope = scope
        self._method = method
        self._receive = receive
        self._send = send
        self._started = time.monotonic()
        self._body_deadline = self._started + BODY_SECONDS + max_body_bytes / BODY_BYTES_PER_SECOND
        self._max_body_bytes = max_body_bytes
        self.status = 0
        self.body_bytes = 0
        """Bytes of the body that have arrived."""
        self._body_complete = False
        self._id = uuid.uuid4().hex
        scope.setdefault("state", {})["request_id"] = self._id

    async def receive(self) -> Message:
        """Return the next message; limit the size of the body and the time for it to arrive."""
        # Routes read only the bodies of POST. Files are sent while nobody reads the body.
        if self._body_complete or self._scope["method"] != "POST":
            return await self._receive()
        try:
            async with asyncio.timeout(self._body_deadline - time.monotonic()):
                message = await self._receive()
        except TimeoutError as error:
            raise HTTPException(408, "the request body took too long to arrive") from error
        if message["type"] == "http.disconnect":
            raise HTTPException(CLIENT_CLOSED_REQUEST, "the client has disconnected")
        self._body_complete = not message.get("more_body", False)
        self.body_bytes += len(message.get("body", b""))
        if self.body_bytes > self._max_body_bytes:
            raise HTTPException(413)
        return message

    async def send(self, message: Message) -> None:
        """Send a message; add the headers to the start of the response."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            headers.update(SECURITY_HEADERS)
            if self._scope["path"].startswith(f"{EXPLORER_PATH}/"):
                headers["Content-Security-Policy"] = EXPLORER_POLICY
            headers["X-Request-Id"] = self._id
            static = self.status in (200, 304) and "etag" in headers
            headers["Cache-Control"] = REVALIDATE if static else "no-store"
        elif self._method == "HEAD":
            message = {**message, "body": b""}
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
        known = route != "other" and self._method in METHODS
        method = self._method if known else "other"
        metrics.request(route, method, self.status, seconds)
        fields: dict[str, Any] = {
            "request_id": self._id,
            "method": method,
            "route": route,
            "status": self.status,
            "ms": round(1000 * seconds),
            **self._scope["state"].get("sizes", {}),
        }
        logger.info("request", extra={"fields": fields})
