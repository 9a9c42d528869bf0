"""Routes of the gateway itself, without authentication but of its version: index, health checks, metrics, description.

The description of the API is the OpenAPI document and Swagger UI, from this gateway's own files.
"""

from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from fastapi import APIRouter
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import Request
from starlette.responses import Response

from mcp_exec_api.constants import API_VERSION
from mcp_exec_api.wire.version import RELEASE, ReleaseVersion
from mcp_exec_common.kube.reflector import find_unsynced
from mcp_exec_common.process.health import report_liveness, report_readiness
from mcp_exec_gateway.core.dependencies import Injected, ListCaller
from mcp_exec_gateway.core.http.json import json_response, to_json
from mcp_exec_gateway.core.http.problems import HttpProblem
from mcp_exec_gateway.core.openapi import Examples, OperationRoute, build_operation_id, build_router, show

router = APIRouter(tags=["health"], route_class=OperationRoute, generate_unique_id_function=build_operation_id)
version_router = build_router(prefix="/v1", tag="version")
metrics_router = APIRouter()
"""Routes of a port that is not part of the Service."""
docs_router = APIRouter(include_in_schema=False)

EXAMPLES: Final[Examples] = {
    "ReleaseVersion": show(
        one={
            "version": RELEASE,
            "apiVersions": [API_VERSION],
            "mcpRevisions": ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"],
        }
    )
}
_PACKAGE: Final = "fastapi_offline"
"""Package that ships the files of Swagger UI. It is not imported."""
_FILES: Final = {"swagger-ui-bundle.js": "text/javascript", "swagger-ui.css": "text/css", "favicon.png": "image/png"}
_PAGE: Final = b"""\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>mcp-exec gateway</title>
<link rel="stylesheet" href="docs/swagger-ui.css">
<link rel="icon" href="docs/favicon.png">
</head>
<body>
<div id="swagger-ui"></div>
<script src="docs/swagger-ui-bundle.js"></script>
<script src="docs/start.js"></script>
</body>
</html>
"""
_START: Final = b"""\
window.ui = SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#swagger-ui",
  deepLinking: true,
  queryConfigEnabled: false,
  validatorUrl: null,
});
"""
_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


@router.get("/", include_in_schema=False)
async def get_index(request: Request, dependencies: Injected) -> Response:
    """Return what the gateway has, for people who open its address."""
    dependencies.callers.limit_anonymous(request)
    description = {"docs": "/docs", "openapi": "/openapi.json"} if dependencies.settings.docs else {}
    return json_response({"service": "mcp-exec gateway", "mcp": "/mcp", "api": "/v1", **description})


@router.get("/healthz")
@router.head("/healthz", include_in_schema=False)
async def check_liveness() -> Response:
    """Check liveness.

    Returns 200 while the event loop turns.
    """
    report = report_liveness()
    return json_response(report.body, status=report.status_code)


@router.get("/readyz", responses={503: {"description": "Starting or stopping; `missing` lists what is not read yet"}})
@router.head("/readyz", include_in_schema=False)
async def check_readiness(dependencies: Injected) -> Response:
    """Check readiness.

    Returns 200 if the gateway accepts requests, and 503 while it starts or stops.
    """
    report = report_readiness(
        find_unsynced(dependencies.namespaces.reflectors), stopping=dependencies.shutdown.draining.is_set()
    )
    return json_response(report.body, status=report.status_code)


@version_router.get("/version", response_model=ReleaseVersion, response_description="The version")
async def get_version(caller: ListCaller) -> Response:
    """Get the gateway's version.

    Returns the version of the release, and the API versions and revisions of MCP that the gateway speaks.
    """
    found = ReleaseVersion(
        version=RELEASE,
        api_versions=[API_VERSION],
        mcp_revisions=[*HANDSHAKE_PROTOCOL_VERSIONS, *MODERN_PROTOCOL_VERSIONS],
    )
    return json_response(found.to_api())


@metrics_router.get("/metrics")
async def render_metrics(request: Request, dependencies: Injected) -> Response:
    """Return the metrics in Prometheus' text format."""
    dependencies.callers.limit_anonymous(request)
    return Response(generate_latest(dependencies.metrics.registry), media_type=CONTENT_TYPE_LATEST)


@docs_router.get("/openapi.json")
async def get_document(request: Request, dependencies: Injected) -> Response:
    """Return the OpenAPI document."""
    dependencies.callers.limit_anonymous(request)
    state: Any = request.app.state
    if not hasattr(state, "openapi_document"):
        state.openapi_document = to_json(request.app.openapi())
    return Response(state.openapi_document, headers=_HEADERS, media_type="application/json")


@docs_router.get("/docs")
async def get_page(request: Request, dependencies: Injected) -> Response:
    """Return Swagger UI's page."""
    dependencies.callers.limit_anonymous(request)
    return Response(_PAGE, headers=_HEADERS, media_type="text/html")


@docs_router.get("/docs/start.js")
async def get_start(request: Request, dependencies: Injected) -> Response:
    """Return the script that starts Swagger UI: the page's policy allows no inline script."""
    dependencies.callers.limit_anonymous(request)
    return Response(_START, headers=_HEADERS, media_type="text/javascript")


@docs_router.get("/docs/{file}")
async def get_file(request: Request, dependencies: Injected, file: str) -> Response:
    """Return one of Swagger UI's files."""
    dependencies.callers.limit_anonymous(request)
    if file not in _FILES:
        raise HttpProblem("not-found", 404, f"there is no file {file[:100]}")
    return Response(_read_file(file), headers=_HEADERS, media_type=_FILES[file])


@lru_cache
def _read_file(name: str) -> bytes:
    spec = find_spec(_PACKAGE)
    if spec is None or spec.origin is None:
        detail = f"the gateway is installed without the Python package {_PACKAGE.replace('_', '-')}"
        raise HttpProblem("not-found", 404, detail)
    return (Path(spec.origin).parent / "static" / name).read_bytes()
