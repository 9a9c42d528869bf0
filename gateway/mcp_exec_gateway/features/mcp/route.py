"""The route `/mcp`: one JSON-RPC message in, at most one response out.

The SDK's server of the mode serves a request; the gateway itself accepts notifications and responses.
"""

import logging
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends
from fastapi.security import HTTPAuthorizationCredentials
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response

from mcp_exec_api.meta import explain_errors
from mcp_exec_common.util.weight import weigh
from mcp_exec_gateway.core.auth.callers import BEARER
from mcp_exec_gateway.core.dependencies import Dependencies, Injected
from mcp_exec_gateway.core.http.limits import Reservation
from mcp_exec_gateway.core.http.problems import HttpProblem
from mcp_exec_gateway.core.http.request_body import read_body
from mcp_exec_gateway.features.mcp.code_mode.decisions import check_decisions
from mcp_exec_gateway.features.mcp.code_mode.task_state import EXTENSION as TASKS
from mcp_exec_gateway.features.mcp.forms import decide
from mcp_exec_gateway.features.mcp.request import McpRequest, Sender, cancel_request, read_namespace, read_options
from mcp_exec_gateway.features.mcp.sdk import (
    Connection,
    ServerMessageMetadata,
    handler_exception_to_error_data,
    serve_one,
)
from mcp_exec_gateway.features.mcp.server import McpServer, McpServers
from mcp_exec_gateway.features.mcp.transport.messages import (
    CHANGES_METHOD,
    SESSION_HEADER,
    Envelope,
    InvalidMessage,
    RpcMessage,
    Session,
    check_modern_version,
    find_version,
    format_error,
    is_modern,
    offers_extension,
    offers_form_elicitation,
    parse_message,
    read_accepted,
    read_modern_envelope,
)
from mcp_exec_gateway.features.mcp.transport.response import ContinueElsewhere, Exchange, McpResponse
from mcp_exec_gateway.features.mcp.transport.tokens import ApprovalToken, ResumePoint
from mcp_exec_gateway.settings import Settings
from mcp_exec_tools.text import shorten

log = logging.getLogger(__name__)

Body = dict[str, Any]

router = APIRouter(include_in_schema=False)
METHODS: Final = "DELETE, GET, POST"
"""The header `Allow` of the endpoint: a GET resumes a stream."""
_MAX_EXPLAINED: Final = 1000

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
                await check_decisions(sender, message.params)
                return respond(sender, message, memory=memory, resources=resources.pop_all())
            await accept(sender, message)
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
            message = read_resumption(sender)
            return respond(sender, message, memory=memory, resources=resources.pop_all())
        except InvalidMessage as error:
            return error.response()


@router.delete("/mcp")
@router.delete("/mcp/")
async def end_session(request: Request, dependencies: Injected, credentials: Credentials) -> Response:
    """End a session. The gateway stores nothing of it."""
    await _admit(request, dependencies, credentials)
    Session.read(request)
    return Response(status_code=204)


async def _admit(
    request: Request, dependencies: Dependencies, credentials: HTTPAuthorizationCredentials | None
) -> Sender:
    """Return the request's client. Raises HttpProblem."""
    check_origin(request, dependencies.settings)
    caller = await dependencies.callers.resolve(request, credentials, "list", namespace=read_namespace(request))
    return Sender(
        http=request,
        dependencies=dependencies,
        caller=caller,
        options=read_options(request),
    )


async def _read_message(request: Request, dependencies: Dependencies, memory: Reservation) -> RpcMessage:
    message = parse_message(await read_body(request, limit=dependencies.settings.max_body_bytes, memory=memory))
    memory.require(weigh(message.params, limit=memory.budget.limit))
    return message


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


def respond(
    sender: Sender,
    message: RpcMessage,
    *,
    memory: Reservation,
    resources: ExitStack,
) -> McpResponse:
    """Return the response to a request. It takes over the resources. Raises InvalidMessage and HttpProblem."""
    with resources:
        request, connection = _open(sender, message, memory)
        server = sender.dependencies.get(McpServers).by_mode[sender.options.mode]

        async def serve() -> Body:
            return await _serve(server, request, connection)

        def write_headers(body: Mapping[str, Any]) -> dict[str, str]:
            is_session = message.method == "initialize" and "result" in body
            return {SESSION_HEADER: _create_session(message, body).id} if is_session else {}

        return McpResponse(
            request.exchange,
            serve,
            memory=sender.dependencies.memory,
            namespace=sender.namespace,
            write_headers=write_headers,
            maps_errors=request.is_modern or sender.http.method == "GET",
            resources=resources.pop_all(),
        )


def read_resumption(sender: Sender) -> RpcMessage:
    """Return the request whose response a GET resumes, or the one that waits for changes of the tools.

    Raises HttpProblem, a 405, if there is no such stream: tools for code do not change.
    """
    event_id = sender.http.headers.get("last-event-id")
    if event_id is None and not is_modern(sender.http) and sender.options.mode != "code":
        return RpcMessage(kind="request", id="changes", method=CHANGES_METHOD, params={})
    if event_id is None or is_modern(sender.http):
        detail = "a GET resumes the response of a request by its Last-Event-ID; there is no other stream of events"
        raise HttpProblem("method-not-allowed", 405, detail, headers={"Allow": METHODS})
    point = ResumePoint.parse(event_id, field="Last-Event-ID")
    meta = {} if point.progress_token is None else {"progressToken": point.progress_token}
    params = {"name": "run_code", "requestState": event_id, "_meta": meta}
    return RpcMessage(kind="request", id=point.request_id, method="tools/call", params=params)


def _open(sender: Sender, message: RpcMessage, memory: Reservation) -> tuple[McpRequest, Connection]:
    accepts_json, accepts_events = read_accepted(sender.http)
    if not (accepts_json or accepts_events):
        raise HttpProblem("not-acceptable", 406, "accept application/json or text/event-stream, or both")
    exchange = Exchange(message=message, accepts_events=accepts_events, accepts_json=accepts_json)
    modern = is_modern(sender.http)
    session = None if modern else Session.read(sender.http)
    if modern:
        envelope = read_modern_envelope(message, sender.http)
    else:
        envelope = Envelope(version=find_version(sender.http, session))
    request = McpRequest(
        sender=sender,
        exchange=exchange,
        memory=memory,
        version=envelope.version,
        is_modern=modern,
        session=session,
        elicitation=session.elicitation if session else offers_form_elicitation(envelope.client_capabilities),
        tasks=offers_extension(envelope.client_capabilities, TASKS),
    )
    exchange.message_metadata = ServerMessageMetadata(request_context=request)
    return request, Connection.from_envelope(envelope.version, envelope.client_info, envelope.client_capabilities)


async def _serve(server: McpServer, request: McpRequest, connection: Connection) -> Body:
    message = request.exchange.message
    if message.method == "ping" and request.is_modern:
        # this revision has no ping, and clients of several revisions send it nevertheless
        return _reply(message, result={"resultType": "complete"})
    try:
        result = await serve_one(
            server,
            request.exchange,
            message.method,
            # a request without parameters has none of their required fields either
            message.params or None,
            connection=connection,
            lifespan_state=None,
        )
    except ContinueElsewhere:
        raise
    except ValidationError as error:
        text = shorten(explain_errors(error), _MAX_EXPLAINED)
        return _reply(message, error=format_error(INVALID_PARAMS, f"Invalid request parameters: {text}"))
    except Exception as error:
        data = handler_exception_to_error_data(error)
        if data is None:
            log.exception("an MCP request failed unexpectedly")
            return _reply(message, error=format_error(INTERNAL_ERROR, "the gateway failed and logged the error"))
        return _reply(message, error=format_error(data.code, data.message, data.data))
    return _reply(message, result=result)


def _reply(message: RpcMessage, **outcome: Any) -> Body:
    return {"jsonrpc": "2.0", "id": message.id, **outcome}


def _create_session(message: RpcMessage, body: Mapping[str, Any]) -> Session:
    elicitation = offers_form_elicitation(message.params.get("capabilities"))
    return Session.create(version=str(body["result"]["protocolVersion"]), elicitation=elicitation)


async def accept(sender: Sender, message: RpcMessage) -> None:
    """Accept a notification or a response. Raises InvalidMessage if the revision does not allow it."""
    if is_modern(sender.http):
        check_modern_version(sender.http)
        if message.kind == "response":
            raise InvalidMessage(INVALID_REQUEST, "the server sends no requests, so there is nothing to respond to")
        return
    session = Session.read(sender.http)
    if message.method == "notifications/cancelled" and session is not None:
        await cancel_request(sender, session, message)
    elif message.kind == "response" and (token := ApprovalToken.parse(message.id or "")) is not None:
        await decide(sender, token, message.result)
