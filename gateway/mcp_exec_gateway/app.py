"""The ASGI application: routes, problem details for errors, the access log, and the HTTP server that serves it."""

import asyncio
import logging
import signal
from collections.abc import Collection
from typing import Any, Final

from fastapi import APIRouter, FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import ASGIApp

from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.process.http_server import HttpServer, build_server
from mcp_exec_common.process.setup import exempt_started_objects
from mcp_exec_common.process.tls import MountedCertificate
from mcp_exec_gateway.core.dependencies import Dependencies, Feature
from mcp_exec_gateway.core.executions.examples import EXAMPLES
from mcp_exec_gateway.core.http.access_log import CLIENT_CLOSED_REQUEST, AccessLogMiddleware
from mcp_exec_gateway.core.http.problems import HttpProblem, invalid_parameters, unavailable
from mcp_exec_gateway.core.http.request_body import ClientDisconnected
from mcp_exec_gateway.core.openapi import Examples, build_document
from mcp_exec_gateway.core.routes import executions, process, stats
from mcp_exec_gateway.features import FEATURES

log = logging.getLogger(__name__)


def list_routers(features: Collection[Feature] = FEATURES.values()) -> list[APIRouter]:
    """Return the routes of the API, in the order of the OpenAPI document."""
    added = [router for feature in features for router in feature.routers]
    last = (stats.router, process.router, process.version_router)
    return [executions.router, *added, *last]


def collect_examples(features: Collection[Feature] = FEATURES.values()) -> Examples:
    """Return the examples of all bodies."""
    core = (EXAMPLES, stats.EXAMPLES, process.EXAMPLES)
    return {
        name: examples
        for each in (*core, *(feature.examples for feature in features))
        for name, examples in each.items()
    }


def describe_api(features: Collection[Feature] = FEATURES.values()) -> dict[str, Any]:
    """Build the OpenAPI document."""
    return build_document(list_routers(features), collect_examples(features))


def build_app(dependencies: Dependencies) -> FastAPI:
    """Build the application with these dependencies."""
    app = FastAPI(
        redirect_slashes=False,
        openapi_url=None,
        exception_handlers={
            HttpProblem: _handle_problem,
            RequestValidationError: _handle_invalid_parameters,
            HTTPException: _handle_http_exception,
            ApiError: _handle_api_error,
            ClientDisconnected: _handle_disconnect,
        },
    )
    app.state.dependencies = dependencies
    for router in list_routers(dependencies.features):
        app.include_router(router)
    if dependencies.settings.docs:
        app.include_router(process.docs_router)
    if origins := dependencies.settings.allowed_origins:
        # no credentials of the browser: a page sets the header Authorization itself
        app.add_middleware(
            CORSMiddleware,
            allow_origins=origins,
            allow_methods=_METHODS,
            allow_headers=["*"],
            expose_headers=["*"],
            allow_private_network=True,
        )
    app.add_middleware(AccessLogMiddleware, metrics=dependencies.metrics, shutdown=dependencies.shutdown)
    app.openapi = lambda: describe_api(dependencies.features)  # type: ignore[method-assign]
    return app


def build_metrics_app(dependencies: Dependencies) -> FastAPI:
    """Build the application of the port of metrics."""
    app = FastAPI(openapi_url=None, exception_handlers={HttpProblem: _handle_problem})
    app.state.dependencies = dependencies
    app.include_router(process.metrics_router)
    return app


async def _handle_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, HttpProblem)  # noqa: S101 - registered for this class
    return error.response()


async def _handle_invalid_parameters(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - registered for this class
    return invalid_parameters(error.errors(), _find_query_model(request)).response()


def _find_query_model(request: Request) -> type[BaseModel] | None:
    """Return the model of the route's query parameters; None if it has none."""
    route = request.scope.get("route")
    fields = route.dependant.query_params if isinstance(route, APIRoute) else []
    types = (field.field_info.annotation for field in fields)
    return next((model for model in types if isinstance(model, type) and issubclass(model, BaseModel)), None)


async def _handle_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for this class
    try:
        request.app.state.dependencies.callers.limit_anonymous(request)
    except HttpProblem as problem:
        return problem.response()
    operation = f"{request.method} {request.url.path[:300]}"
    kinds = {404: "not-found", 405: "method-not-allowed"}
    details = {404: f"there is no {operation}", 405: f"the path does not support {operation}"}
    kind = kinds.get(error.status_code, "invalid" if error.status_code < 500 else "internal")
    detail = details.get(error.status_code, str(error.detail))
    headers = dict(error.headers or {})
    if error.status_code == 405 and (methods := _list_methods(request)):
        headers["Allow"] = methods
    return HttpProblem(kind, error.status_code, detail, headers=headers).response()


def _list_methods(request: Request) -> str:
    """Return the methods of a path: each of its routes has some of them."""
    routers = list_routers(request.app.state.dependencies.features)
    routes = (route for router in routers for route in router.routes if isinstance(route, APIRoute))
    found = (route for route in routes if route.matches(request.scope)[0] is not Match.NONE)
    return ", ".join(sorted({method for route in found for method in route.methods or ()}))


async def _handle_api_error(request: Request, error: Exception) -> Response:
    log.error("the API server failed %s %s: %s", request.method, request.url.path, error)
    return unavailable("the API server failed the request").response()


async def _handle_disconnect(request: Request, error: Exception) -> Response:
    return Response(status_code=CLIENT_CLOSED_REQUEST)  # the access log records it and does not send it


_METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
KEEP_ALIVE_SECONDS: Final = 61 * 60
"""Longer than the idle time-outs of front doors, so that they and not the gateway close connections: nginx has 60 s, an
Application Load Balancer of AWS as much as its limit of a response, Google 10 minutes, Envoy an hour. A full table of
connections closes idle ones earlier."""
_FINAL_SECONDS: Final = 5
"""Time to send the responses after all waits have ended."""


async def serve(
    app: ASGIApp,
    *,
    dependencies: Dependencies,
    server: HttpServer | None = None,
    metrics_app: ASGIApp | None = None,
    certificate: MountedCertificate | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT, then drain and shut down within the times of the settings.

    `metrics_app` is served at the port of metrics. With a certificate, both ports serve only TLS.
    """
    settings = dependencies.settings
    metrics_server = metrics_app and build_server(
        metrics_app,
        port=settings.metrics_port,
        keep_alive_seconds=KEEP_ALIVE_SECONDS,
        shutdown_seconds=1,
        limits=settings.connection_limits,
        certificate=certificate,
    )
    server = server or build_server(
        app,
        port=settings.port,
        keep_alive_seconds=KEEP_ALIVE_SECONDS,
        shutdown_seconds=settings.shutdown_seconds + _FINAL_SECONDS,
        limits=settings.connection_limits,
        certificate=certificate,
    )
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    serving = asyncio.create_task(server.serve())
    measuring = asyncio.create_task(metrics_server.serve()) if metrics_server else None
    stopping = asyncio.create_task(stop.wait())
    reporting = asyncio.create_task(_log_ready(server, metrics_server, dependencies))
    following = asyncio.create_task(certificate.follow()) if certificate else None
    try:
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not serving.done():
            await _shut_down(server, dependencies, serving)
        await serving
    finally:
        stopping.cancel()
        reporting.cancel()
        if following:
            following.cancel()
        if metrics_server and measuring:
            metrics_server.should_exit = metrics_server.force_exit = True
            await asyncio.wait({measuring}, timeout=_FINAL_SECONDS)
        if not serving.done():
            serving.cancel()
            await asyncio.wait({serving})


async def _log_ready(server: HttpServer, metrics_server: HttpServer | None, dependencies: Dependencies) -> None:
    await server.listening.wait()
    if metrics_server:
        await metrics_server.listening.wait()
    for reflector in tuple(dependencies.namespaces.reflectors.values()):
        if reflector.required:
            await reflector.synced.wait()
    exempt_started_objects()
    log.info("ready", extra={"port": server.config.port, "namespaces": dependencies.settings.namespaces})


async def _shut_down(server: HttpServer, dependencies: Dependencies, serving: "asyncio.Task[None]") -> None:
    settings, shutdown = dependencies.settings, dependencies.shutdown
    log.info("stopping: no longer ready")
    shutdown.draining.set()
    await asyncio.wait({serving}, timeout=settings.drain_seconds)
    # event streams end at once, because clients can resume them; waits keep their connections for a while
    server.should_exit = True
    shutdown.closing.set()
    await asyncio.wait({serving}, timeout=settings.shutdown_seconds)
    dependencies.index.shut_down()
