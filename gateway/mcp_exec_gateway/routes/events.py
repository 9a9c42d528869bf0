"""Route of an execution's event stream."""

from typing import Annotated

from fastapi import APIRouter, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from mcp_exec_gateway.dependencies import GetCaller, Injected
from mcp_exec_gateway.events.follower import EventFollower, StreamPosition
from mcp_exec_gateway.events.response import StreamingEventResponse, choose_encoding
from mcp_exec_gateway.http.access_log import get_trace
from mcp_exec_gateway.http.query_params import EventsQuery, LastEventId
from mcp_exec_gateway.openapi import document as openapi

router = APIRouter(prefix="/v1/executions", tags=["executions"])


@router.get("/{name}/events", **openapi.EVENTS)
async def stream_events(
    request: Request,
    dependencies: Injected,
    caller: GetCaller,
    name: Annotated[str, Path(description="Name of the execution.")],
    query: Annotated[EventsQuery, Query()],
    last_event_id: LastEventId = None,
) -> Response:
    """Stream an execution's events."""
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
