"""Route of metrics, on a port that is no part of the Service. It needs no authentication."""

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import Request
from starlette.responses import Response

from mcp_exec_gateway.dependencies import Injected

router = APIRouter(tags=["health"])


@router.get("/metrics", summary="Metrics for Prometheus", response_model=None)
async def render_metrics(request: Request, dependencies: Injected) -> Response:
    """Return the metrics in Prometheus' text format."""
    dependencies.callers.limit_anonymous(request)
    return Response(generate_latest(dependencies.metrics.registry), media_type=CONTENT_TYPE_LATEST)
