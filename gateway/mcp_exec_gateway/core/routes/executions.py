"""Routes of executions: create, list, get, cancel, delete, and follow their events."""

from typing import Annotated
from urllib.parse import quote

from fastapi import Path, Query
from starlette.requests import Request
from starlette.responses import Response

from mcp_exec_api.code_execution import is_finished
from mcp_exec_api.wire.executions import (
    Execution,
    ExecutionList,
    NewExecution,
)
from mcp_exec_common.kube.objects import Object
from mcp_exec_gateway.core.dependencies import (
    CreateCaller,
    Dependencies,
    GetCaller,
    Injected,
    ListCaller,
    PatchCaller,
)
from mcp_exec_gateway.core.events.follower import EventFollower, StreamPosition
from mcp_exec_gateway.core.events.response import StreamingEventResponse, choose_encoding
from mcp_exec_gateway.core.executions.examples import EVENT_STREAM, LOCATION
from mcp_exec_gateway.core.executions.parameters import (
    CancelQuery,
    CreateQuery,
    EventsQuery,
    GetQuery,
    IdempotencyKey,
    Include,
    LastEventId,
    ListQuery,
)
from mcp_exec_gateway.core.executions.views import build_view
from mcp_exec_gateway.core.http.access_log import get_trace
from mcp_exec_gateway.core.http.json import json_response
from mcp_exec_gateway.core.http.request_body import FIELDS_SET_LATER, parse_spec, read_body
from mcp_exec_gateway.core.openapi import accepts, build_router, problems

router = build_router(prefix="/v1/executions", tag="executions")

Name = Annotated[str, Path(description="Name of the execution.")]


@router.post(
    "",
    response_model=Execution,
    response_description="The execution has ended; `phase` has the outcome",
    responses={202: {"model": Execution, "description": "The execution continues", "headers": LOCATION}},
)
@accepts(NewExecution, set_later=FIELDS_SET_LATER)
@problems(409, 410)
async def create_execution(
    request: Request,
    dependencies: Injected,
    caller: CreateCaller,
    query: Annotated[CreateQuery, Query()],
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Run code.

    Creates an execution and waits for its end. A rejected request creates nothing.
    """
    service = dependencies.executions
    service.check_wait(query.wait)
    with dependencies.memory.reserving(caller.namespace) as memory:
        execution = await service.create(
            request,
            # no variable, which would keep the code during the wait
            parse_spec(
                NewExecution,
                await read_body(request, limit=dependencies.settings.max_body_bytes, memory=memory),
                memory,
            ),
            caller=caller,
            query=query,
            idempotency_key=idempotency_key,
            memory=memory,
        )
    suffix = f"?namespace={quote(query.namespace)}" if query.namespace else ""
    location = f"/v1/executions/{execution['metadata']['name']}{suffix}"
    status = 200 if is_finished(execution) else 202
    return _respond(execution, dependencies, status=status, headers={"Location": location})


@router.get("", response_model=ExecutionList, response_description="A page")
async def list_executions(dependencies: Injected, caller: ListCaller, query: Annotated[ListQuery, Query()]) -> Response:
    """List executions.

    Returns a page of the namespace's executions without their output, newest first. It comes from a cache that is
    usually some milliseconds old. With several filters, all must match.
    """
    page = await dependencies.executions.list_page(query, caller=caller)
    return json_response(page, memory=dependencies.memory, namespace=caller.namespace)


@router.get("/{name}", response_model=Execution, response_description="The execution")
@problems(404, 410)
async def get_execution(
    request: Request, dependencies: Injected, caller: GetCaller, name: Name, query: Annotated[GetQuery, Query()]
) -> Response:
    """Get an execution.

    Returns one execution as it is now; with `wait`, as it is at its end or when the wait ends.
    """
    dependencies.executions.check_wait(query.wait)
    execution = await dependencies.executions.get(request, name, caller=caller, wait_seconds=query.wait)
    return _respond(execution, dependencies, status=200, include=query.include)


@router.delete(
    "/{name}",
    response_model=Execution,
    response_description="The execution had already ended",
    responses={
        202: {"model": Execution, "description": "The execution will end, or with `purge`, will be deleted"},
        204: {"description": "The execution is deleted"},
    },
)
@problems(404, (409, "With `purge`: the execution has not ended"))
async def cancel_execution(
    request: Request,
    dependencies: Injected,
    caller: PatchCaller,
    name: Name,
    query: Annotated[CancelQuery, Query()],
) -> Response:
    """Cancel or delete an execution.

    Requests the cancellation. The execution ends shortly after, and its object stays for its TTL. With `purge`, an
    execution that has ended is deleted with its artifacts, and links to them end. Its records and the audit records of
    its tool calls stay. If records are kept, it is deleted once its record is stored.
    """
    if query.purge:
        left = await dependencies.deleter.delete(request, name, caller=caller)
        return Response(status_code=204) if left is None else _respond(left, dependencies, status=202)
    execution = await dependencies.executions.cancel(request, name, caller=caller)
    return _respond(execution, dependencies, status=200 if is_finished(execution) else 202)


@router.get(
    "/{name}/events",
    response_class=Response,
    response_description="The events, up to `end`",
    responses={200: EVENT_STREAM, 204: {"description": "The client has received all events"}},
)
@problems(404, 406)
async def stream_events(
    request: Request,
    dependencies: Injected,
    caller: GetCaller,
    name: Name,
    query: Annotated[EventsQuery, Query()],
    last_event_id: LastEventId = None,
) -> Response:
    """Follow an execution's events.

    Streams `status`, `stdout`, `stderr`, `tool_call`, `tool_result`, `approval`, `result` and `end`: live from the
    sandbox, and from the status once the sandbox is gone, which does not have the single tool calls. Ids are opaque; a
    client that sends the last id it received resumes exactly after it. If the execution was deleted, `end` has the
    phase null and the reason Deleted. With `Accept: application/x-ndjson`, events are lines of JSON. The schema is that
    of one event: the `data` of a server-sent event, or one line.
    """
    encoding = choose_encoding(request.headers.get("accept", ""))
    resumed_from = last_event_id or query.last_event_id
    position = StreamPosition.parse(resumed_from) if resumed_from else StreamPosition()
    await dependencies.executions.find(name, caller=caller)
    get_trace(request.scope).execution = name
    if position.ended:
        return Response(status_code=204)  # an EventSource then stops reconnecting
    follower = EventFollower(
        key=(caller.namespace, name),
        caller=caller,
        kube=dependencies.kube,
        supervisors=dependencies.supervisors,
        index=dependencies.index,
        memory=dependencies.memory,
        position=position,
        resumed=bool(resumed_from),
    )
    return StreamingEventResponse(
        follower.read_frames(),
        encoding=encoding,
        closing=dependencies.shutdown.closing,
        memory=dependencies.memory,
        namespace=caller.namespace,
        slots=[
            dependencies.streams.hold(caller.name, (caller.namespace, name), limit=caller.limits.max_streams),
        ],
    )


def _respond(
    execution: Object,
    dependencies: Dependencies,
    *,
    status: int,
    headers: dict[str, str] | None = None,
    include: Include | None = None,
) -> Response:
    view = build_view(execution, attestor=dependencies.attestor, include=include)
    namespace = execution["metadata"]["namespace"]
    return json_response(view, status=status, headers=headers, memory=dependencies.memory, namespace=namespace)
