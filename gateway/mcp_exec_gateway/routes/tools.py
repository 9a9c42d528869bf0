"""Routes of the tools that code can call."""

from typing import Annotated

from fastapi import APIRouter, Path, Query
from starlette.responses import Response

from mcp_exec_gateway.dependencies import Injected, ListCaller
from mcp_exec_gateway.http.json import json_response
from mcp_exec_gateway.http.query_params import NamespaceQuery, SearchQuery
from mcp_exec_gateway.openapi import document as openapi

router = APIRouter(prefix="/api/v1/mcp", tags=["mcp"])


@router.get("/tools/search", **openapi.SEARCH)
async def search_tools(dependencies: Injected, caller: ListCaller, query: Annotated[SearchQuery, Query()]) -> Response:
    """Search for tools."""
    index = await dependencies.catalogs.get_index(caller.namespace)
    tools = index.search(query.query, detail_level=query.detail_level, limit=query.limit, allow=caller.limits.tools)
    return json_response(tools)


@router.get("/servers/{name}/tools", **openapi.TOOLS)
async def list_tools(
    dependencies: Injected,
    caller: ListCaller,
    name: Annotated[str, Path(description="Name of the server.")],
    query: Annotated[NamespaceQuery, Query()],
) -> Response:
    """List a server's tools."""
    tools = await dependencies.catalogs.list_tools(caller.namespace, name, allow=caller.limits.tools)
    return json_response({"server": name, "tools": [tool.to_json() for tool in tools]})
