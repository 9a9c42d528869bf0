"""A server for tests: it is slow, fails, dies, and answers with whatever is asked for."""

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

server = MCPServer("probe", instructions="For tests alone.")
_deleted = [0]


@server.tool(annotations=READS)
async def slow(seconds: Annotated[float, Field(ge=0, le=600)]) -> float:
    """Answers after a while."""
    await anyio.sleep(seconds)
    return seconds


@server.tool(annotations=READS)
def fail(message: str) -> str:
    """Fails with a message."""
    raise ToolError(message)


@server.tool(annotations=READS)
def crash() -> str:
    """Fails as programs do that have a bug."""
    raise RuntimeError("a bug")


@server.tool(annotations=DESTROYS)
def delete_everything(confirm: bool = False) -> int:
    """Counts how often everything was deleted; nothing is."""
    _deleted[0] += 1
    return _deleted[0]


@server.tool(annotations=READS)
def deletions() -> int:
    """How often everything was deleted."""
    return _deleted[0]


@server.tool(annotations=READS)
def big(bytes: Annotated[int, Field(ge=0, le=64 * 1024 * 1024)]) -> str:
    """A text of so many bytes."""
    return "x" * bytes


@server.tool(annotations=READS)
def image() -> Image:
    """A picture of one pixel."""
    return Image(data=PIXEL, format="png")


@server.tool(annotations=READS)
def echo(value: JsonValue) -> JsonValue:
    """What was sent."""
    return value


@server.tool(annotations=READS)
def headers(context: Context) -> dict[str, str]:
    """The HTTP headers of the call; none over standard input and output."""
    request: Any = context.request_context.request
    return dict(request.headers) if request is not None else {}


@server.tool(annotations=READS)
def pid() -> int:
    """The number of the server's process."""
    return os.getpid()


@server.tool(annotations=ADDS)
def die() -> str:
    """Ends the server at once, without an answer."""
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


if __name__ == "__main__":
    run(server)
