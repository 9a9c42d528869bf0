"""Route of statistics."""

from typing import Annotated

from fastapi import Query
from starlette.responses import Response

from mcp_exec_api.wire.stats import GatewayLimits, NamespaceStats, OwnSessions
from mcp_exec_gateway.dependencies import Injected, ListCaller
from mcp_exec_gateway.executions.views import build_stats
from mcp_exec_gateway.http.json import json_response
from mcp_exec_gateway.http.problems import HttpProblem
from mcp_exec_gateway.http.query_params import NamespaceQuery
from mcp_exec_gateway.openapi.operations import build_router

router = build_router(prefix="/v1", tag="stats")


@router.get("/stats", response_model=NamespaceStats, response_description="The statistics")
async def get_stats(dependencies: Injected, caller: ListCaller, query: Annotated[NamespaceQuery, Query()]) -> Response:
    """Get statistics of a namespace.

    Returns the pools that the caller may use, with their limits, pods and libraries, the tool servers, the number of
    unfinished executions, and the caller's limits. All of it comes from caches.
    """
    try:
        tools = await dependencies.catalogs.count_tools(caller.namespace, allow=caller.limits.tools)
    except HttpProblem:
        tools = None  # no broker is configured, or none responds
    settings = dependencies.settings
    stats = build_stats(
        caller,
        index=dependencies.index,
        pools=dependencies.pools,
        tools=tools,
        sessions=OwnSessions(
            own=dependencies.sessions.cache.count(caller.namespace, caller.label),
            limit=dependencies.sessions.limit_of(caller),
        ),
        gateway=GatewayLimits(max_wait_seconds=settings.max_wait_seconds, max_body_bytes=settings.max_body_bytes),
    )
    return json_response(stats.to_api())
