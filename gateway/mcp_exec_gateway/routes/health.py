"""Whether the gateway lives, whether it is ready, and its metrics. None of them asks who wants to know."""

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.responses import Response

from mcp_exec_gateway.dependencies import Dependencies
from mcp_exec_gateway.executions.views import json_response


def router(*, dependencies: Dependencies) -> APIRouter:
    """The routes."""
    routes = APIRouter(tags=["health"])

    @routes.get("/healthz", summary="Whether the process lives", response_model=None)
    async def healthz() -> Response:
        return json_response({"status": "ok"})

    @routes.get(
        "/readyz",
        summary="Whether it takes requests",
        response_model=None,
        responses={503: {"description": "Not ready: it is starting or stopping; `missing` says what is not known yet"}},
    )
    async def readyz() -> Response:
        missing = dependencies.missing()
        if dependencies.lifecycle.draining.is_set():
            return json_response({"status": "stopping", "missing": missing}, status=503)
        if missing:
            return json_response({"status": "starting", "missing": missing}, status=503)
        return json_response({"status": "ready", "missing": []})

    @routes.get("/metrics", summary="Metrics for Prometheus", response_model=None)
    async def metrics() -> Response:
        return Response(generate_latest(dependencies.metrics.registry), media_type=CONTENT_TYPE_LATEST)

    return routes
