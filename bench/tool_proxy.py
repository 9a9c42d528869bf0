"""Proxy of an MCP server for bench/mcp_direct.py: the `mcp` SDK's server over its client, and nothing between them.

It authenticates, judges, scans and records nothing. It is the floor of what one process more costs.

python bench/tool_proxy.py PORT URL
"""

import asyncio
import sys
from typing import Any

import uvicorn
from mcp import Client
from mcp.server.lowlevel import Server
from mcp_types import CallToolRequestParams, CallToolResult, ListToolsResult


def build_server(client: Client) -> Server[Any]:
    """Build a server that passes each request to the client."""

    async def list_tools(context: Any, params: Any) -> ListToolsResult:
        return await client.list_tools()

    async def call_tool(context: Any, params: CallToolRequestParams) -> CallToolResult:
        return await client.call_tool(params.name, params.arguments)

    return Server("proxy", on_list_tools=list_tools, on_call_tool=call_tool)


async def serve(port: int, url: str) -> None:
    """Serve until the process ends."""
    async with Client(url) as client:
        app = build_server(client).streamable_http_app(json_response=True)
        await uvicorn.Server(
            uvicorn.Config(app, host="127.0.0.1", port=port, log_level="error", http="httptools")
        ).serve()


if __name__ == "__main__":
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(int(sys.argv[1]), sys.argv[2]))
