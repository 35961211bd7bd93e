"""What those ask who look after the application."""

from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST

from app.server import schemas
from app.server.metrics import Metrics
from app.server.request_guard import Desk

RETRY_SECONDS = "2"


def routes(desk: Desk, metrics: Metrics) -> APIRouter:
    """`/livez`, `/readyz`, `/health` and `/metrics`."""
    router = APIRouter(tags=["health"])

    @router.get("/livez")
    async def livez() -> schemas.Health:
        """Whether the process answers."""
        return schemas.Health(status="ok")

    @router.get("/readyz", responses={503: {"model": schemas.Health}})
    @router.get("/health", responses={503: {"model": schemas.Health}})
    async def readyz(response: Response) -> schemas.Health:
        """Whether it takes requests."""
        if desk.ready:
            return schemas.Health(status="ok")
        response.status_code = 503
        response.headers["Retry-After"] = RETRY_SECONDS
        return schemas.Health(status="not ready")

    @router.get(
        "/metrics",
        response_class=Response,
        responses={200: {"content": {CONTENT_TYPE_LATEST: {}}}, 401: {"model": schemas.Error}},
    )
    async def page(request: Request) -> Response:
        """Counts and times for Prometheus; with a key where keys are asked for."""
        desk.clients.check(request)
        return Response(metrics.page(), media_type=CONTENT_TYPE_LATEST)

    return router
