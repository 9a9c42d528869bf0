"""Stdio MCP server whose tool requests an address, as its environment says."""

from urllib.request import urlopen

from mcp.server import MCPServer

server = MCPServer("fetching")


@server.tool(structured_output=False)
def fetch(url: str) -> str:
    """Return what an address answers, or the error."""
    try:
        with urlopen(url, timeout=20) as answer:
            return str(answer.read().decode())
    except OSError as error:
        return str(error)


if __name__ == "__main__":
    server.run("stdio")
