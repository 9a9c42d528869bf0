"""Test server: its tools are slow, fail, crash, and return whatever is requested."""

import base64
import os
import signal
from typing import Annotated, Any, Final

import anyio
from mcp.server import MCPServer
from mcp.server.mcpserver import Context, Image
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field, JsonValue

from mcp_exec_servers.command import ADDS, DESTROYS, READS, run

PIXEL: Final = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)

server = MCPServer("probe", instructions="For tests only.")
_deleted = [0]


@server.tool(annotations=READS)
async def slow(seconds: Annotated[float, Field(ge=0, le=600)]) -> float:
    """Return after so many seconds."""
    await anyio.sleep(seconds)
    return seconds


@server.tool(annotations=READS)
def fail(message: str) -> str:
    """Fail with a message."""
    raise ToolError(message)


@server.tool(annotations=READS)
def crash() -> str:
    """Fail as a program with a bug does."""
    raise RuntimeError("a bug")


@server.tool(annotations=DESTROYS)
def delete_everything(confirm: bool = False) -> int:
    """Count how often everything was deleted; nothing is deleted."""
    _deleted[0] += 1
    return _deleted[0]


@server.tool(annotations=READS)
def deletions() -> int:
    """Return how often everything was deleted."""
    return _deleted[0]


@server.tool(annotations=READS)
def big(bytes: Annotated[int, Field(ge=0, le=64 * 1024 * 1024)]) -> str:
    """Return a text of so many bytes."""
    return "x" * bytes


@server.tool(annotations=READS)
def image() -> Image:
    """Return an image of one pixel."""
    return Image(data=PIXEL, format="png")


@server.tool(annotations=READS)
def echo(value: JsonValue) -> JsonValue:
    """Return the argument."""
    return value


@server.tool(annotations=READS)
def headers(context: Context) -> dict[str, str]:
    """Return the HTTP headers of the call; none over stdio."""
    request: Any = context.request_context.request
    return dict(request.headers) if request is not None else {}


@server.tool(annotations=READS)
def pid() -> int:
    """Return the server's process ID."""
    return os.getpid()


@server.tool(annotations=ADDS)
def die() -> str:
    """Kill the server at once, without a result."""
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


if __name__ == "__main__":
    run(server)
