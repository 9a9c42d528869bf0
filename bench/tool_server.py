"""MCP server for bench/tools.py: one tool that takes a millisecond, by the `mcp` SDK over streamable HTTP.

python bench/tool_server.py PORT
"""

import asyncio
import sys

import uvicorn
from mcp.server import MCPServer

SECONDS = 0.001

server = MCPServer("bench", log_level="ERROR")


@server.tool()
async def wait(number: int, text: str = "") -> dict[str, int]:
    """Wait a millisecond and return the number."""
    await asyncio.sleep(SECONDS)
    return {"number": number}


def main() -> None:
    """Run the command."""
    uvicorn.run(
        server.streamable_http_app(json_response=True),
        host="127.0.0.1",
        port=int(sys.argv[1]),
        log_level="error",
        loop="uvloop",
        http="httptools",
    )


if __name__ == "__main__":
    main()
