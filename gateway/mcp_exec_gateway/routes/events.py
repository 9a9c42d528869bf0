"""The events of one execution, as a stream."""

from typing import Annotated

from fastapi import APIRouter, Path
from starlette.requests import Request
from starlette.responses import Response

from mcp_exec_gateway.auth.caller import caller_who_may
from mcp_exec_gateway.dependencies import Dependencies
from mcp_exec_gateway.events.follower import Follower
from mcp_exec_gateway.events.position import Position
from mcp_exec_gateway.events.response import FrameResponse, encoding_for
from mcp_exec_gateway.http.access_log import trace_of
from mcp_exec_gateway.http.query_params import EventsQuery, parse_query
from mcp_exec_gateway.openapi import document as openapi
from mcp_exec_gateway.routes.executions import Service


def router(*, dependencies: Dependencies) -> APIRouter:
    """The route."""
    routes = APIRouter(prefix="/v1/executions", tags=["executions"])
    service = Service(dependencies=dependencies)
    may_get = caller_who_may("get", dependencies=dependencies)

    @routes.get("/{name}/events", **openapi.EVENTS)
    async def stream_events(
        request: Request, name: Annotated[str, Path(description="The execution's name.")]
    ) -> Response:
        caller = await may_get(request)
        query = parse_query(EventsQuery, request)
        encoding = encoding_for(request.headers.get("accept", ""))
        last = request.headers.get("last-event-id") or query.last_event_id
        position = Position.parse(last) if last else Position()
        key = (caller.namespace, name)
        await service.find(key)
        trace_of(request.scope).execution = name
        if position.ended:
            return Response(status_code=204)  # tells an EventSource not to come again
        dependencies.streams.check()
        follower = Follower(
            key=key,
            kube=dependencies.kube,
            sandboxes=dependencies.sandboxes,
            executions=dependencies.executions,
            position=position,
            resumed=bool(last),
        )
        return FrameResponse(
            follower.frames(),
            encoding=encoding,
            closing=dependencies.lifecycle.closing,
            slot=dependencies.streams.slot(),
        )

    return routes
