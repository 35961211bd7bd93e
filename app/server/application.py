"""The ASGI application: API routes, web page, error handlers and middleware."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import FileResponse
from starlette.staticfiles import StaticFiles

from app.models.documents import DocumentJobs
from app.server import api, documents, error_responses, health, libretranslate, openapi
from app.server.detection import LanguageDetection
from app.server.metrics import Metrics
from app.server.middleware import EXPLORER_PATH, RequestMiddleware
from app.server.protocol import MAX_CONNECTIONS
from app.server.request_guard import RequestGuard
from app.server.suggestions import Suggestions

STATIC = Path(__file__).parents[1] / "static"
PAGES = {"/": "index.html", "/docs": "docs.html"}


def create(
    guard: RequestGuard, metrics: Metrics, max_requests: int = MAX_CONNECTIONS
) -> RequestMiddleware:
    """Create the ASGI application.

    Args:
        guard: Checks the requests and holds the models.
        metrics: Counts requests and characters.
        max_requests: Maximum number of requests at the same time.
    """
    settings = guard.settings
    jobs = DocumentJobs(60 * settings.document_minutes, settings.document_deadline)
    detection = LanguageDetection(guard.models)
    suggestions = Suggestions(guard)
    app = FastAPI(
        title="Translation",
        version="1",
        description="Translates text with the models of this server.",
        openapi_url="/spec",
        generate_unique_id_function=lambda route: route.name,
        redirect_slashes=False,  # a redirect would lead to the host that the client names
        docs_url=None,  # FastAPI's pages load scripts from other sites
        redoc_url=None,
        lifespan=lambda _: _lifespan(guard, jobs, suggestions),
    )
    error_responses.install(app)
    app.include_router(api.routes(guard, detection, suggestions))
    app.include_router(documents.routes(guard, jobs, detection))
    app.include_router(libretranslate.routes(guard, detection, suggestions))
    app.include_router(health.routes(guard, metrics))
    for path, name in PAGES.items():
        _add_page(app, path, STATIC / name)
    app.mount("/static", StaticFiles(directory=STATIC))
    if settings.explorer:
        app.mount(EXPLORER_PATH, StaticFiles(directory=settings.explorer, html=True))
    app.add_middleware(GZipMiddleware, minimum_size=2000)
    if guard.settings.allowed_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=guard.settings.allowed_origins,
            allow_methods=["DELETE", "GET", "POST"],
            allow_headers=["Authorization", "Content-Type", "X-Api-Key"],
            expose_headers=["Retry-After", "X-Request-Id"],
        )
    app.openapi = partial(openapi.describe, app, guard)  # type: ignore[method-assign]
    metrics.watch(guard.models)
    return RequestMiddleware(app, guard, metrics, max_requests)


@asynccontextmanager
async def _lifespan(
    guard: RequestGuard, jobs: DocumentJobs, suggestions: Suggestions
) -> AsyncIterator[None]:
    await guard.models.start()
    cleanup = asyncio.create_task(suggestions.clean_up())
    yield
    cleanup.cancel()
    jobs.close()
    await guard.models.close()


def _add_page(app: FastAPI, path: str, file: Path) -> None:
    async def page() -> FileResponse:
        return FileResponse(file)

    app.add_api_route(path, page, include_in_schema=False)
