"""An MCP server with one tool: on standard input and output, or with the argument `http` on port 8000."""

import random
import sys

from mcp.server import MCPServer

server = MCPServer("dice")


@server.tool()
def roll(sides: int = 6, times: int = 1) -> list[int]:
    """Roll a die with some sides, and return what each throw shows."""
    return [random.randint(1, sides) for _ in range(times)]


if __name__ == "__main__":
    if sys.argv[1:] == ["http"]:
        server.run("streamable-http", host="0.0.0.0", port=8000)
    else:
        server.run()
