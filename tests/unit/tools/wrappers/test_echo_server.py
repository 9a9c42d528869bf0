"""Wrappers that call a server of the SDK with a client of the SDK."""

import asyncio
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from mcp import Client
from mcp import types as mcp_types
from mcp.server import Server, ServerRequestContext
from tests.support.pace import paced
from tests.unit.tools.wrappers.arguments import allowed
from tests.unit.tools.wrappers.conftest import Echo, Load, real_catalogs

from mcp_exec_tools.catalog import Catalog, Tool

CATALOGS = real_catalogs()


def echo_server(catalog: Catalog) -> Server[Any]:
    """Return a server with the catalog's tools. Each returns its name and arguments."""

    async def listed(context: ServerRequestContext[Any], parameters: Any) -> mcp_types.ListToolsResult:
        tools = [
            mcp_types.Tool(name=tool.name, description=tool.description, input_schema=dict(tool.input_schema))
            for tool in catalog.tools
        ]
        return mcp_types.ListToolsResult(tools=tools)

    async def called(
        context: ServerRequestContext[Any], parameters: mcp_types.CallToolRequestParams
    ) -> mcp_types.CallToolResult:
        echo = {"name": parameters.name, "arguments": parameters.arguments}
        return mcp_types.CallToolResult(content=[], structured_content=echo)

    return Server("echo", on_list_tools=listed, on_call_tool=called)


@pytest.mark.parametrize("catalog", CATALOGS, ids=[each.server for each in CATALOGS])
def test_arguments_arrive_at_a_real_server_unchanged(
    catalog: Catalog, load: Load, echo: Echo, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = load([catalog])(catalog.module)

    async def check(seen: list[tuple[Tool, Any]]) -> None:
        async with asyncio.timeout(paced(30)), Client(echo_server(catalog)) as client:

            async def answer(server: str, name: str, arguments: dict[str, Any]) -> Any:
                return (await client.call_tool(name, arguments)).structured_content

            monkeypatch.setattr(echo, "answer", answer)
            tools = (await client.list_tools()).tools
            assert [tool.name for tool in tools] == [tool.name for tool in catalog.tools]
            for tool, arguments in seen:
                wanted = {"name": tool.name, "arguments": arguments}
                assert await getattr(package, tool.function)(arguments) == wanted

    asyncio.run(check([(tool, arguments) for tool in catalog.tools for arguments in some(tool)]))


def some(tool: Tool) -> list[Any]:
    """Draw a few values that the tool's schema allows."""
    drawn: list[Any] = []

    @settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None)
    @given(allowed(tool.input_schema))
    def draw(arguments: Any) -> None:
        drawn.append(arguments)

    draw()
    return drawn
