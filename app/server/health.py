"""Health checks and metrics."""

from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST

from app.server import schemas
from app.server.metrics import Metrics
from app.server.request_guard import RequestGuard

RETRY_SECONDS = "2"


def routes(guard: RequestGuard, metrics: Metrics) -> APIRouter:
    """Return the routes `/livez`, `/readyz`, `/health` and `/metrics`."""
    router = APIRouter(tags=["health"])

    @router.get("/livez")
    async def livez() -> schemas.Health:
        """Return whether the process is alive."""
        return schemas.Health(status="ok")

    @router.get("/readyz", responses={503: {"model": schemas.Health}})
    @router.get("/health", responses={503: {"model": schemas.Health}}, operation_id="health")
    async def readyz(response: Response) -> schemas.Health:
        """Return whether all models are ready and requests are accepted."""
        if guard.ready:
            return schemas.Health(status="ok")
        response.status_code = 503
        response.headers["Retry-After"] = RETRY_SECONDS
        return schemas.Health(status="not ready")

    @router.get(
        "/metrics",
        response_class=Response,
        responses={
            200: {"content": {CONTENT_TYPE_LATEST: {}}},
            401: {"model": schemas.PlainError, "description": "an API key is required"},
            429: {"model": schemas.PlainError, "description": "too many wrong API keys"},
        },
    )
    async def read_metrics(request: Request) -> Response:
        """Return metrics for Prometheus. Requires an API key if the server has keys."""
        guard.rate_limiter.check_key(request)
        return Response(metrics.page(), media_type=CONTENT_TYPE_LATEST)

    return router
