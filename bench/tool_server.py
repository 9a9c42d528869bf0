"""MCP server of other benchmarks by the `mcp` SDK over streamable HTTP: one tool that takes a millisecond.

With COUNT, it has so many made tools instead, which are only listed.

    python bench/tool_server.py PORT [COUNT]
"""

import asyncio
import sys
from typing import Any

import uvicorn
from mcp import types
from mcp.server import MCPServer
from mcp.server.lowlevel import Server
from queries import make_tools
from starlette.applications import Starlette

SECONDS = 0.001

server = MCPServer("bench", log_level="ERROR")


@server.tool()
async def wait(number: int, text: str = "") -> dict[str, int]:
    """Wait a millisecond and return the number."""
    await asyncio.sleep(SECONDS)
    return {"number": number}


def build_app(count: int) -> Starlette:
    """Return the application with the tool that waits, or with so many made tools."""
    if not count:
        return server.streamable_http_app(json_response=True)
    made = [tool for tools in make_tools(count).values() for tool in tools]

    async def list_tools(context: Any, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[types.Tool.model_validate(tool) for tool in made])

    return Server("bench", on_list_tools=list_tools).streamable_http_app(json_response=True)


def main() -> None:
    """Run the command."""
    uvicorn.run(
        build_app(int(sys.argv[2]) if len(sys.argv) > 2 else 0),
        host="127.0.0.1",
        port=int(sys.argv[1]),
        log_level="error",
        loop="uvloop",
        http="httptools",
    )


if __name__ == "__main__":
    main()
