"""The ASGI application: routes, errors as problem details, the access log around it all."""

import logging

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from mcp_exec_common.kube.errors import ApiError
from mcp_exec_gateway.dependencies import Dependencies
from mcp_exec_gateway.http.access_log import CLIENT_GONE, Access
from mcp_exec_gateway.http.problems import Problem, unavailable
from mcp_exec_gateway.http.request_body import ClientGone
from mcp_exec_gateway.openapi.document import DESCRIPTION, complete
from mcp_exec_gateway.routes import approvals, audit, events, executions, health, tools

log = logging.getLogger(__name__)


def build_app(*, dependencies: Dependencies) -> FastAPI:
    """The application over these dependencies."""
    app = FastAPI(
        title="mcp-exec gateway",
        version="v1alpha1",
        description=DESCRIPTION,
        redirect_slashes=False,
        redoc_url=None,
        swagger_ui_oauth2_redirect_url=None,
        exception_handlers={
            Problem: _problem,
            HTTPException: _http_error,
            ApiError: _api_error,
            ClientGone: _client_gone,
        },
    )
    for noun in (executions, events, approvals, tools, audit, health):
        app.include_router(noun.router(dependencies=dependencies))
    app.add_middleware(Access, metrics=dependencies.metrics, lifecycle=dependencies.lifecycle)
    complete(app)
    return app


async def _problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)  # noqa: S101 - registered for this class
    return error.response()


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for this class
    kinds = {404: "not-found", 405: "method-not-allowed"}
    what = f"{request.method} {request.url.path}"
    details = {404: f"there is no {what}", 405: f"{what} is not a method of this path"}
    kind = kinds.get(error.status_code, "invalid" if error.status_code < 500 else "internal")
    detail = details.get(error.status_code, str(error.detail))
    return Problem(kind, error.status_code, detail, headers=error.headers).response()


async def _api_error(request: Request, error: Exception) -> Response:
    log.error("the API server failed %s %s: %s", request.method, request.url.path, error)
    return unavailable("the API server does not answer as it should").response()


async def _client_gone(request: Request, error: Exception) -> Response:
    return Response(status_code=CLIENT_GONE)
