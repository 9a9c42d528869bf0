"""Routes of the tools that code can call."""

from typing import Annotated

from fastapi import Path, Query
from starlette.responses import Response

from mcp_exec_api.wire.tools import FoundTool, ServerTools
from mcp_exec_gateway.dependencies import Injected, ListCaller
from mcp_exec_gateway.http.json import json_response
from mcp_exec_gateway.http.query_params import NamespaceQuery, SearchQuery
from mcp_exec_gateway.openapi.operations import build_router, problems

router = build_router(prefix="/api/v1/mcp", tag="mcp")


@router.get("/tools/search", response_model=list[FoundTool], response_description="The tools")
async def search_tools(dependencies: Injected, caller: ListCaller, query: Annotated[SearchQuery, Query()]) -> Response:
    """Search for tools.

    Returns tools that code in the namespace can call, best match first. `name_only` has name and server;
    `with_description` adds description and import; `full` adds signature, input_schema and output_schema.
    """
    index = await dependencies.catalogs.get_index(caller.namespace)
    tools = index.search(query.query, detail_level=query.detail_level, limit=query.limit, allow=caller.limits.tools)
    return json_response(tools)


@router.get("/servers/{name}/tools", response_model=ServerTools, response_description="The tools")
@problems((404, "The server does not exist or has no tools"))
async def list_tools(
    dependencies: Injected,
    caller: ListCaller,
    name: Annotated[str, Path(description="Name of the server.")],
    query: Annotated[NamespaceQuery, Query()],
) -> Response:
    """List a server's tools.

    Returns the tools as the server lists them, with their own names and schemas, so that wrappers can be generated from
    the response. An API key with a limit on tools sees only those that it may use.
    """
    tools = await dependencies.catalogs.list_tools(caller.namespace, name, allow=caller.limits.tools)
    return json_response({"server": name, "tools": [tool.to_json() for tool in tools]})
