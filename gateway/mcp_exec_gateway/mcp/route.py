"""The route `/mcp`: one JSON-RPC message in, at most one response out."""

from contextlib import ExitStack
from typing import Annotated

from fastapi import APIRouter, Depends
from fastapi.security import HTTPAuthorizationCredentials
from starlette.requests import Request
from starlette.responses import Response

from mcp_exec_common.util.weight import weigh
from mcp_exec_gateway.auth.callers import BEARER
from mcp_exec_gateway.dependencies import Dependencies, Injected
from mcp_exec_gateway.http.limits import Reservation
from mcp_exec_gateway.http.problems import HttpProblem
from mcp_exec_gateway.http.request_body import read_body
from mcp_exec_gateway.mcp import serving
from mcp_exec_gateway.mcp.request import Sender, read_namespace, read_options
from mcp_exec_gateway.mcp.transport.messages import InvalidMessage, RpcMessage, Session, parse_message
from mcp_exec_gateway.settings import Settings


def check_origin(request: Request, settings: Settings) -> None:
    """Raise HttpProblem, a 403, for an origin that is not allowed, or a 421 for a host, if hosts are restricted."""
    origin = request.headers.get("origin")
    if origin is not None and origin not in settings.allowed_origins:
        allowed = ", ".join(settings.allowed_origins) or "none"
        raise HttpProblem("forbidden", 403, f"the origin {origin[:100]!r} is not allowed; allowed are: {allowed}")
    host = request.headers.get("host", "")
    if settings.allowed_hosts and host not in settings.allowed_hosts:
        allowed = ", ".join(settings.allowed_hosts)
        raise HttpProblem("misdirected", 421, f"the host {host[:100]!r} is not served; served are: {allowed}")


router = APIRouter(include_in_schema=False)

Credentials = Annotated[HTTPAuthorizationCredentials | None, Depends(BEARER)]


@router.post("/mcp")
@router.post("/mcp/")
async def receive_message(request: Request, dependencies: Injected, credentials: Credentials) -> Response:
    """Receive a message and return the response to it."""
    sender = await _admit(request, dependencies, credentials)
    with ExitStack() as resources:
        memory = resources.enter_context(dependencies.memory.reserving(sender.caller.namespace))
        try:
            message = await _read_message(request, dependencies, memory)
            if message.kind == "request":
                return serving.respond(
                    sender, message, servers=request.app.state.mcp_servers, memory=memory, resources=resources.pop_all()
                )
            await serving.accept(sender, message)
        except InvalidMessage as error:
            return error.response()
    return Response(status_code=202)


@router.get("/mcp")
@router.get("/mcp/")
async def resume_stream(request: Request, dependencies: Injected, credentials: Credentials) -> Response:
    """Resume the stream of a request at the event `Last-Event-ID`, in the revisions with sessions."""
    sender = await _admit(request, dependencies, credentials)
    with ExitStack() as resources:
        memory = resources.enter_context(dependencies.memory.reserving(sender.namespace))
        try:
            message = serving.read_resumption(sender)
            return serving.respond(
                sender, message, servers=request.app.state.mcp_servers, memory=memory, resources=resources.pop_all()
            )
        except InvalidMessage as error:
            return error.response()


@router.delete("/mcp")
@router.delete("/mcp/")
async def end_session(request: Request, dependencies: Injected, credentials: Credentials) -> Response:
    """End a session, of which the gateway stores nothing."""
    await _admit(request, dependencies, credentials)
    Session.read(request)
    return Response(status_code=204)


async def _admit(
    request: Request, dependencies: Dependencies, credentials: HTTPAuthorizationCredentials | None
) -> Sender:
    """Return the request's client. Raises HttpProblem."""
    check_origin(request, dependencies.settings)
    caller = await dependencies.callers.resolve(request, credentials, "list", namespace=read_namespace(request))
    assert credentials is not None  # noqa: S101 - there is no caller without them
    return Sender(
        http=request,
        dependencies=dependencies,
        credentials=credentials,
        caller=caller,
        options=read_options(request),
    )


async def _read_message(request: Request, dependencies: Dependencies, memory: Reservation) -> RpcMessage:
    message = parse_message(await read_body(request, limit=dependencies.settings.max_body_bytes, memory=memory))
    memory.require(weigh(message.params, limit=memory.budget.limit))
    return message
