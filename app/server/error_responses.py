"""Convert exceptions to error responses."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException as StarletteHTTPException

from app.errors import ApiError

CODES = {
    400: "malformed",
    401: "unauthorized",
    404: "not_found",
    405: "method_not_allowed",
    408: "timeout",
    409: "not_ready",
    413: "too_large",
    415: "unsupported_media_type",
    422: "invalid",
}

MESSAGES = {
    400: "the request body cannot be read",
    404: "not found; see /docs",
    405: "method not allowed; see /docs",
    413: "the request body is too large; see the limits in /api/v1/models",
}

FIELD_NAME = re.compile(r"[a-z0-9_]{1,60}", re.ASCII)

API = "/api/"
"""Paths whose errors are objects. All others, unknown ones included, may come from a client of
LibreTranslate, which expects the error as a string."""


def install(app: FastAPI) -> None:
    """Register handlers, so that every error response has the same format."""
    app.add_exception_handler(ApiError, _on_api_error)
    app.add_exception_handler(RequestValidationError, _on_validation_error)
    app.add_exception_handler(StarletteHTTPException, _on_http_exception)
    app.add_exception_handler(Exception, _on_unexpected_error)


async def _on_api_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, ApiError)
    return error_response(request, error)


async def _on_validation_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    errors = [{**each, "loc": each["loc"][1:]} for each in error.errors()]  # without "body"
    return error_response(request, ApiError(422, "invalid", describe(errors)))


async def _on_http_exception(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, StarletteHTTPException | HTTPException)
    message = MESSAGES.get(error.status_code, str(error.detail))
    code = CODES.get(error.status_code, "failed")
    response = error_response(request, ApiError(error.status_code, code, message))
    response.headers.update(error.headers or {})
    return response


async def _on_unexpected_error(request: Request, error: Exception) -> JSONResponse:
    """Hide the details from the client. They are in the log."""
    del error
    return error_response(request, ApiError(500, "internal", "internal server error"))


def describe(errors: Sequence[Mapping[str, Any]]) -> str:
    """Return the first problem of each field, never its value.

    Args:
        errors: The errors that pydantic reports.
    """
    problems: dict[str, str] = {}
    for error in errors:
        field = str(error["loc"][0]) if error["loc"] else "body"
        # The client chooses the names of unknown fields: do not repeat arbitrary text.
        problems.setdefault(field if FIELD_NAME.fullmatch(field) else "body", error["msg"])
    return "; ".join(f"{field}: {problem}" for field, problem in problems.items())


def error_response(request: Request, error: ApiError) -> JSONResponse:
    """Return the response for an error, in the format of the requested path."""
    content: object = error.message
    if request.scope["path"].startswith(API):
        content = {
            "code": error.code,
            "message": error.message,
            "request_id": request.state.request_id,
        }
    response = JSONResponse({"error": content}, error.status)
    if error.retry_after is not None:
        response.headers["Retry-After"] = str(max(1, math.ceil(error.retry_after)))
    if error.status == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    return response
