"""The application as a whole: routes, page, errors."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import FileResponse
from starlette.staticfiles import StaticFiles

from app.server import api, error_responses, health, libretranslate
from app.server.metrics import Metrics
from app.server.middleware import Gate
from app.server.request_guard import Desk

STATIC = Path(__file__).parents[1] / "static"
PAGES = {"/": "index.html", "/docs": "docs.html"}


def create(desk: Desk, metrics: Metrics) -> Gate:
    """The ASGI application before these models."""
    app = FastAPI(
        title="Translation",
        version="1",
        description="Translates text with the models that are loaded here.",
        openapi_url="/spec",
        docs_url=None,  # their script would come from elsewhere
        redoc_url=None,
        lifespan=lambda _: _lifespan(desk),
    )
    error_responses.install(app)
    app.include_router(api.routes(desk))
    app.include_router(libretranslate.routes(desk))
    app.include_router(health.routes(desk, metrics))
    for path, name in PAGES.items():
        _add_page(app, path, STATIC / name)
    app.mount("/static", StaticFiles(directory=STATIC))
    app.add_middleware(GZipMiddleware, minimum_size=2000)
    if desk.settings.allowed_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=desk.settings.allowed_origins,
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type", "X-Api-Key"],
            expose_headers=["Retry-After", "X-Request-Id"],
        )
    metrics.watch(desk.models)
    return Gate(app, metrics, desk.settings.max_body)


@asynccontextmanager
async def _lifespan(desk: Desk) -> AsyncIterator[None]:
    await desk.models.start()
    yield
    await desk.models.close()


def _add_page(app: FastAPI, path: str, file: Path) -> None:
    async def page() -> FileResponse:
        return FileResponse(file)

    app.add_api_route(path, page, include_in_schema=False, methods=["GET", "HEAD"])
