"""Routes without authentication: health checks, metrics and the index of the gateway."""

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import Request
from starlette.responses import Response

from mcp_exec_common.process.health import report_liveness, report_readiness
from mcp_exec_gateway.dependencies import Injected
from mcp_exec_gateway.http.json import json_response
from mcp_exec_gateway.openapi.operations import OperationRoute, build_operation_id

router = APIRouter(tags=["health"], route_class=OperationRoute, generate_unique_id_function=build_operation_id)
metrics_router = APIRouter()
"""Routes of a port that is not part of the Service."""


@router.get("/", include_in_schema=False)
async def get_index(request: Request, dependencies: Injected) -> Response:
    """Return what the gateway has, for people who open its address."""
    dependencies.callers.limit_anonymous(request)
    description = {"docs": "/docs", "openapi": "/openapi.json"} if dependencies.settings.docs else {}
    return json_response({"service": "mcp-exec gateway", "mcp": "/mcp", "api": "/v1", **description})


@router.get("/healthz")
async def check_liveness() -> Response:
    """Check liveness.

    Returns 200 while the event loop turns.
    """
    report = report_liveness()
    return json_response(report.body, status=report.status_code)


@router.get("/readyz", responses={503: {"description": "Starting or stopping; `missing` lists what is not read yet"}})
async def check_readiness(dependencies: Injected) -> Response:
    """Check readiness.

    Returns 200 if the gateway accepts requests, and 503 while it starts or stops.
    """
    report = report_readiness(dependencies.find_unsynced(), stopping=dependencies.shutdown.draining.is_set())
    return json_response(report.body, status=report.status_code)


@metrics_router.get("/metrics")
async def render_metrics(request: Request, dependencies: Injected) -> Response:
    """Return the metrics in Prometheus' text format."""
    dependencies.callers.limit_anonymous(request)
    return Response(generate_latest(dependencies.metrics.registry), media_type=CONTENT_TYPE_LATEST)
