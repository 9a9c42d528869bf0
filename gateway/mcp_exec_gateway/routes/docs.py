"""Routes of the API's description: the OpenAPI document, and Swagger UI from this gateway's own files."""

from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from mcp_exec_gateway.dependencies import Injected
from mcp_exec_gateway.http.json import to_json
from mcp_exec_gateway.http.problems import HttpProblem

router = APIRouter(include_in_schema=False)

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


@lru_cache
def _read_file(name: str) -> bytes:
    spec = find_spec(_PACKAGE)
    if spec is None or spec.origin is None:
        detail = f"the gateway is installed without the Python package {_PACKAGE.replace('_', '-')}"
        raise HttpProblem("not-found", 404, detail)
    return (Path(spec.origin).parent / "static" / name).read_bytes()


@router.get("/openapi.json")
async def get_document(request: Request, dependencies: Injected) -> Response:
    """Return the OpenAPI document."""
    dependencies.callers.limit_anonymous(request)
    state: Any = request.app.state
    if not hasattr(state, "openapi_document"):
        state.openapi_document = to_json(request.app.openapi())
    return Response(state.openapi_document, headers=_HEADERS, media_type="application/json")


@router.get("/docs")
async def get_page(request: Request, dependencies: Injected) -> Response:
    """Return Swagger UI's page."""
    dependencies.callers.limit_anonymous(request)
    return Response(_PAGE, headers=_HEADERS, media_type="text/html")


@router.get("/docs/start.js")
async def get_start(request: Request, dependencies: Injected) -> Response:
    """Return the script that starts Swagger UI: the page's policy allows no inline script."""
    dependencies.callers.limit_anonymous(request)
    return Response(_START, headers=_HEADERS, media_type="text/javascript")


@router.get("/docs/{file}")
async def get_file(request: Request, dependencies: Injected, file: str) -> Response:
    """Return one of Swagger UI's files."""
    dependencies.callers.limit_anonymous(request)
    if file not in _FILES:
        raise HttpProblem("not-found", 404, f"there is no file {file[:100]}")
    return Response(_read_file(file), headers=_HEADERS, media_type=_FILES[file])
