"""Stdio MCP server with a tool that never answers."""

import asyncio

from mcp.server import MCPServer

server = MCPServer("slow")


@server.tool()
async def wait() -> str:
    """Wait forever."""
    await asyncio.Event().wait()
    return ""


@server.tool()
async def quick() -> str:
    """Answer at once."""
    return "done"


if __name__ == "__main__":
    server.run("stdio")
