"""Routes of health checks. They need no authentication."""

from fastapi import APIRouter
from starlette.responses import Response

from mcp_exec_common.process.health import report_liveness, report_readiness
from mcp_exec_gateway.dependencies import Injected
from mcp_exec_gateway.http.json import json_response

router = APIRouter(tags=["health"])


@router.get("/healthz", summary="Liveness", response_model=None)
async def check_liveness() -> Response:
    """Return 200 while the event loop turns."""
    report = report_liveness()
    return json_response(report.body, status=report.status_code)


@router.get(
    "/readyz",
    summary="Readiness",
    response_model=None,
    responses={503: {"description": "Starting or stopping; `missing` lists what is not read yet"}},
)
async def check_readiness(dependencies: Injected) -> Response:
    """Return 200 if the gateway accepts requests, and 503 while it starts or stops."""
    report = report_readiness(dependencies.find_unsynced(), stopping=dependencies.shutdown.draining.is_set())
    return json_response(report.body, status=report.status_code)
