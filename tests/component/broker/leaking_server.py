"""Stdio MCP server that reveals its environment in results and errors."""

import os

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

server = MCPServer("indiscreet")


@server.tool(description=f"Gives its environment, with {os.environ.get('DB_PASSWORD')} in it.")
def environment() -> dict[str, str]:
    return dict(os.environ)


@server.tool()
def complain() -> str:
    """Fail with the password in the message."""
    raise ToolError(f"the database does not take {os.environ['DB_PASSWORD']}")


if __name__ == "__main__":
    server.run("stdio")
