"""An MCP server of the older protocol that answers as a test says: any bytes, at any time, to any request."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

Object = dict[str, Any]
Writer = asyncio.StreamWriter
Reply = Callable[[Object, Writer], Awaitable[None]]
"""Writes a whole HTTP response to a message."""

INITIALIZED: Object = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {"listChanged": True}},
    "serverInfo": {"name": "hostile", "version": "1"},
}


def http(body: bytes, *, kind: str = "application/json", status: str = "200 OK", **headers: str) -> bytes:
    """Return an HTTP response."""
    lines = {"content-type": kind, "content-length": str(len(body))}
    lines |= {name.replace("_", "-"): value for name, value in headers.items()}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"HTTP/1.1 {status}\r\n{head}\r\n".encode() + body


def result(request: Object, value: Any) -> bytes:
    """Return the response with a result."""
    return http(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": value}).encode())


def text(value: str) -> Object:
    """Return the result of a tool that returns a text."""
    return {"content": [{"type": "text", "text": value}]}


async def answer_text(request: Object, writer: Writer) -> None:
    writer.write(result(request, text("fine")))


@dataclass
class HostileServer:
    """Lists `tools` and answers calls by `replies`, by tool; other methods by their name."""

    tools: list[Object] = field(default_factory=lambda: [{"name": "act", "inputSchema": {"type": "object"}}])
    replies: dict[str, Reply] = field(default_factory=dict)
    messages: list[Object] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    url: str = ""

    @asynccontextmanager
    async def running(self) -> AsyncIterator["HostileServer"]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
        try:
            yield self
        finally:
            server.close()

    def methods(self) -> list[str]:
        return [message.get("method", "") for message in self.messages]

    async def _serve(self, reader: asyncio.StreamReader, writer: Writer) -> None:
        try:
            while await self._answer(reader, writer):
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            return
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: Writer) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        method, path = head.split()[:2]
        self.paths.append(f"{method} {path}")
        fields = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if line)
        message = json.loads(await reader.readexactly(int(fields.get("content-length", "0"))) or b"{}")
        if method != "POST":
            reply = self.replies.get(method)
            if reply is not None:
                await reply(message, writer)
                return False
            writer.write(http(b"", status="405 Method Not Allowed"))
            return True
        self.messages.append(message)
        name = message.get("method", "")
        if name == "tools/call":
            name = message["params"]["name"]
        if (reply := self.replies.get(name)) is not None:
            await reply(message, writer)
        elif name == "initialize":
            writer.write(result(message, INITIALIZED))
        elif name == "tools/list":
            writer.write(result(message, {"tools": self.tools}))
        elif "id" in message and name and "method" in message and name != "server/discover":
            writer.write(result(message, text("fine")))
        elif name == "server/discover":
            writer.write(http(b"no", status="404 Not Found", kind="text/plain"))
        else:
            writer.write(http(b"", status="202 Accepted"))
        return True
