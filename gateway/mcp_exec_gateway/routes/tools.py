"""The tools that code can call."""

from typing import Annotated

from fastapi import APIRouter, Path
from starlette.requests import Request
from starlette.responses import Response

from mcp_exec_gateway.auth.caller import caller_who_may
from mcp_exec_gateway.dependencies import Dependencies
from mcp_exec_gateway.executions.views import json_response
from mcp_exec_gateway.http.query_params import Query, SearchQuery, parse_query
from mcp_exec_gateway.openapi import document as openapi


def router(*, dependencies: Dependencies) -> APIRouter:
    """The routes."""
    routes = APIRouter(prefix="/api/v1/mcp", tags=["mcp"])
    may_list = caller_who_may("list", dependencies=dependencies)

    @routes.get("/tools/search", **openapi.SEARCH)
    async def search_tools(request: Request) -> Response:
        caller = await may_list(request)
        query = parse_query(SearchQuery, request)
        index = await dependencies.catalogs.index(caller.namespace)
        found = index.search(query.query, detail_level=query.detail_level, limit=query.limit, allow=caller.limits.tools)
        return json_response(found)

    @routes.get("/servers/{name}/tools", **openapi.TOOLS)
    async def list_tools(request: Request, name: Annotated[str, Path(description="The server's name.")]) -> Response:
        caller = await may_list(request)
        parse_query(Query, request)
        tools = await dependencies.catalogs.tools(caller.namespace, name, allow=caller.limits.tools)
        return json_response({"server": name, "tools": [tool.to_json() for tool in tools]})

    return routes
