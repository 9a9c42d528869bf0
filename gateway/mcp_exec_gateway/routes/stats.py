"""Route of statistics."""

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from mcp_exec_api.wire.stats import GatewayLimits, OwnSessions
from mcp_exec_gateway.dependencies import Injected, ListCaller
from mcp_exec_gateway.executions.views import build_stats
from mcp_exec_gateway.http.json import json_response
from mcp_exec_gateway.http.problems import HttpProblem
from mcp_exec_gateway.http.query_params import NamespaceQuery
from mcp_exec_gateway.openapi import document as openapi

router = APIRouter(prefix="/v1", tags=["stats"])


@router.get("/stats", **openapi.STATS)
async def get_stats(dependencies: Injected, caller: ListCaller, query: Annotated[NamespaceQuery, Query()]) -> Response:
    """Get statistics of a namespace."""
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
