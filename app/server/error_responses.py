"""From an exception to the answer that tells of it."""

import math
import re

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
    413: "too_large",
    415: "unsupported_media_type",
    422: "invalid",
}

MESSAGES = {
    400: "the body cannot be read",
    404: "there is nothing here; see /docs",
    405: "this address takes another method; see /docs",
    413: "the body is larger than the limits allow; see /api/v1/models",
}

NAME = re.compile(r"[a-z0-9_]{1,60}", re.ASCII)

PLAIN = ("/translate", "/languages", "/frontend/settings")
"""Where an error is a string: the clients of LibreTranslate's API expect that."""


def install(app: FastAPI) -> None:
    """Makes every error of the application one of ours."""
    app.add_exception_handler(ApiError, _on_problem)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(StarletteHTTPException, _on_http)
    app.add_exception_handler(Exception, _on_failure)


async def _on_problem(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, ApiError)
    return answer(request, error)


async def _on_invalid(request: Request, error: Exception) -> JSONResponse:
    """The first thing that is wrong, by its field; never the value itself."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        return answer(request, ApiError(400, "malformed", "the body is no JSON"))
    field = str(first["loc"][1]) if len(first["loc"]) > 1 else "body"
    shown = field if NAME.fullmatch(field) else "body"  # it may be of the client's making
    return answer(request, ApiError(422, "invalid", f"{shown}: {first['msg']}"))


async def _on_http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, StarletteHTTPException | HTTPException)
    message = MESSAGES.get(error.status_code, str(error.detail))
    problem = ApiError(error.status_code, CODES.get(error.status_code, "failed"), message)
    response = answer(request, problem)
    response.headers.update(error.headers or {})
    return response


async def _on_failure(request: Request, error: Exception) -> JSONResponse:
    """Says no more than that: the log has the rest."""
    del error
    return answer(request, ApiError(500, "internal", "something went wrong"))


def answer(request: Request, problem: ApiError) -> JSONResponse:
    """The error in the form that its address has."""
    content: object = {
        "code": problem.code,
        "message": problem.message,
        "request_id": request.state.request_id,
    }
    if request.scope["path"] in PLAIN:
        content = problem.message
    response = JSONResponse({"error": content}, problem.status)
    if problem.retry_after is not None:
        response.headers["Retry-After"] = str(max(1, math.ceil(problem.retry_after)))
    if problem.status == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    return response
