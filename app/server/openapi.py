"""The OpenAPI description: FastAPI's, with API keys, headers and LibreTranslate's bodies."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from app.server.libretranslate import DetectRequest, LibreTranslateRequest, SuggestRequest
from app.server.request_guard import RequestGuard

SECURITY_SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "header": {"type": "apiKey", "in": "header", "name": "X-Api-Key"},
}

REQUEST_ID = {
    "X-Request-Id": {
        "description": "id of the request, as in the log",
        "schema": {"type": "string"},
    }
}

RETRY_AFTER = {
    "Retry-After": {
        "description": "seconds after which the client may retry",
        "schema": {"type": "integer", "minimum": 1},
    }
}


def describe(app: FastAPI, guard: RequestGuard) -> dict[str, Any]:
    """Return the OpenAPI description of the application."""
    if app.openapi_schema is None:
        spec = get_openapi(
            title=app.title, version=app.version, description=app.description, routes=app.routes
        )
        components = spec["components"]
        for body in (LibreTranslateRequest, DetectRequest, SuggestRequest):
            components["schemas"][body.__name__] = body.model_json_schema()
        components["securitySchemes"] = SECURITY_SCHEMES
        for methods in spec["paths"].values():
            for operation in methods.values():
                _complete(operation, bool(guard.settings.key_digests))
        app.openapi_schema = spec
    return app.openapi_schema


def _complete(operation: dict[str, Any], key_required: bool) -> None:
    """Add the API key and the headers of the responses to the description of an operation."""
    for status, response in operation["responses"].items():
        response["headers"] = REQUEST_ID | (RETRY_AFTER if status in ("429", "503") else {})
    if {"401", "403"} & operation["responses"].keys():  # LibreTranslate: 403
        keys: list[dict[str, list[str]]] = [{name: []} for name in SECURITY_SCHEMES]
        operation["security"] = keys if key_required else [{}, *keys]
