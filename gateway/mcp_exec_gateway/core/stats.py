"""Routes of what a namespace has: statistics, tools, and audit records of their calls."""

from typing import Annotated

from fastapi import Path, Query
from starlette.responses import Response

from mcp_exec_api.wire.stats import GatewayLimits, NamespaceStats, OwnSessions
from mcp_exec_api.wire.tools import CallList, FoundTool, ServerTools
from mcp_exec_gateway.core.dependencies import Injected, ListCaller
from mcp_exec_gateway.core.executions.views import build_stats
from mcp_exec_gateway.core.http.json import json_response
from mcp_exec_gateway.core.http.parameters import AuditQuery, InNamespace, SearchQuery
from mcp_exec_gateway.core.http.problems import HttpProblem
from mcp_exec_gateway.core.openapi.document import build_router, problems
from mcp_exec_gateway.features.records.audit import fetch_audit_page

router = build_router(prefix="/v1", tag="stats")
tools_router = build_router(prefix="/api/v1/mcp", tag="mcp")
audit_router = build_router(prefix="/v1", tag="audit")


@router.get("/stats", response_model=NamespaceStats, response_description="The statistics")
async def get_stats(dependencies: Injected, caller: ListCaller, query: InNamespace) -> Response:
    """Get statistics of a namespace.

    Returns the pools that the caller may use, with their limits, pods and libraries, the tool servers, the number of
    unfinished executions, and the caller's limits. All of it comes from caches.
    """
    try:
        tools = await dependencies.catalogs.count_tools(caller)
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


@tools_router.get("/tools/search", response_model=list[FoundTool], response_description="The tools")
async def search_tools(dependencies: Injected, caller: ListCaller, query: Annotated[SearchQuery, Query()]) -> Response:
    """Search for tools.

    Returns tools that code in the namespace can call, best match first. `name_only` has name and server;
    `with_description` adds description and import; `full` adds signature, input_schema and output_schema.
    """
    level, limit, allow = query.detail_level, query.limit, caller.limits.tools
    tools = await dependencies.catalogs.use_index(
        caller, lambda index: index.search(query.query, detail_level=level, limit=limit, allow=allow)
    )
    return json_response(tools)


@tools_router.get("/servers/{name}/tools", response_model=ServerTools, response_description="The tools")
@problems((404, "The server does not exist or has no tools"))
async def list_tools(
    dependencies: Injected,
    caller: ListCaller,
    name: Annotated[str, Path(description="Name of the server.")],
    query: InNamespace,
) -> Response:
    """List a server's tools.

    Returns the tools as the server lists them, with their own names and schemas, so that wrappers can be generated from
    the response. An API key with a limit on tools sees only those that it may use.
    """
    tools = await dependencies.catalogs.list_tools(caller, name)
    return json_response({"server": name, "tools": [tool.to_json() for tool in tools]})


@audit_router.get("/audit", response_model=CallList, response_description="A page")
async def list_calls(dependencies: Injected, caller: ListCaller, query: Annotated[AuditQuery, Query()]) -> Response:
    """List audit records of tool calls.

    Returns records of all tool calls in the namespace, newest first, with redacted arguments.
    """
    return json_response(await fetch_audit_page(dependencies.broker, caller=caller, query=query))
