"""Route of an execution's event stream."""

from typing import Annotated

from fastapi import Path, Query
from starlette.requests import Request
from starlette.responses import Response

from mcp_exec_gateway.dependencies import GetCaller, Injected
from mcp_exec_gateway.events.follower import EventFollower, StreamPosition
from mcp_exec_gateway.events.response import StreamingEventResponse, choose_encoding
from mcp_exec_gateway.http.access_log import get_trace
from mcp_exec_gateway.http.query_params import EventsQuery, LastEventId
from mcp_exec_gateway.openapi.operations import EVENT_STREAM, build_router, problems

router = build_router(prefix="/v1/executions", tag="executions")


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
    name: Annotated[str, Path(description="Name of the execution.")],
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
            dependencies.stream_slots.hold(caller.name, limit=caller.limits.max_streams),
            dependencies.follower_slots.hold(f"{caller.namespace}/{name}"),
        ],
    )
