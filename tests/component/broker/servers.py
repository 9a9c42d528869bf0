"""Real MCP servers on loopback: by streamable HTTP in both eras, and stdio ones behind a bridge."""

import asyncio
import hashlib
import json
import os
import secrets
import shutil
import socket
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkdtemp
from types import MappingProxyType
from typing import Any

import mcp_types as types
from mcp.server import MCPServer
from mcp.server.lowlevel import Server as LowServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from tests.support.constants import SANDBOX_KEY

from mcp_exec_common.peers import ProvenPeer, compute_proof
from mcp_exec_common.process.http_server import build_server
from mcp_exec_common.supervisor.tokens import bridge_token, token_digest

Object = dict[str, Any]
POD_UID = "uid-of-the-pod"
BRIDGE = Path(__file__).parents[3] / "servers_image/mcp_exec_servers/bridge.py"


@dataclass
class Toolbox:
    """An MCP server and the requests that it received."""

    url: str = ""
    requests: list[Object] = field(default_factory=list)
    """Headers of each HTTP request, with the MCP method."""
    calls: list[str] = field(default_factory=list)
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    entered: asyncio.Event = field(default_factory=asyncio.Event)
    release: asyncio.Event = field(default_factory=asyncio.Event)
    server: MCPServer = field(default_factory=lambda: MCPServer("toolbox", version="7"))
    connections: set[asyncio.BaseTransport] = field(default_factory=set)
    needed: Object = field(default_factory=dict)
    """Headers that every request must have."""

    def header(self, name: str) -> list[str]:
        return [request["headers"][name] for request in self.requests if name in request["headers"]]


def toolbox() -> Toolbox:
    box = Toolbox()

    @box.server.tool()
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        box.calls.append("add")
        return a + b

    @box.server.tool(structured_output=False)
    async def echo(value: Any) -> str:
        """Return the value as JSON text."""
        box.calls.append("echo")
        return json.dumps(value)

    @box.server.tool(structured_output=False)
    async def headers(context: Context) -> str:
        """Return the headers of the request."""
        return json.dumps(box.requests[-1]["headers"])

    @box.server.tool()
    async def fail() -> str:
        """Fail."""
        raise ToolError("it was to be expected")

    @box.server.tool(annotations=types.ToolAnnotations(destructive_hint=True))
    async def destroy(name: str) -> str:
        """Destroy something."""
        box.calls.append(f"destroy {name}")
        return "gone"

    @box.server.tool()
    async def big(size: int) -> str:
        """Return a large text."""
        return "x" * size

    @box.server.tool()
    async def hang() -> str:
        """Wait until the test releases it."""
        box.entered.set()
        try:
            await box.release.wait()
        except asyncio.CancelledError:
            box.cancelled.set()
            raise
        return "released"

    return box


@asynccontextmanager
async def serving(
    box: Toolbox, *, legacy: bool = False, json_response: bool = False, port: int = 0, host: str = "127.0.0.1"
) -> AsyncIterator[Toolbox]:
    """Serve it at `box.url`; a legacy server refuses the protocol of 2026. It accepts requests for `host`."""
    app = box.server.streamable_http_app(json_response=json_response, host=host)
    async with managed(box.server.session_manager), serving_app(_seen(app, box, legacy), port=port) as url:
        box.url = url + "/mcp"
        yield box


@asynccontextmanager
async def managed(manager: StreamableHTTPSessionManager) -> AsyncIterator[None]:
    """Run the manager in its own task: fixtures begin and end in different tasks."""
    started, stop = asyncio.Event(), asyncio.Event()

    async def run() -> None:
        async with manager.run():
            started.set()
            await stop.wait()

    task = asyncio.create_task(run())
    await started.wait()
    try:
        yield
    finally:
        stop.set()
        await task


@asynccontextmanager
async def serving_app(app: Any, *, port: int = 0) -> AsyncIterator[str]:
    """Serve an ASGI application and yield its URL."""
    server = build_server(app, port=0, keep_alive_seconds=330, shutdown_seconds=1)
    with socket.create_server(("127.0.0.1", port)) as listener:
        task = asyncio.create_task(server.serve(sockets=[listener]))
        await server.listening.wait()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = server.force_exit = True
            await task


def _seen(app: Any, box: Toolbox, legacy: bool) -> Any:
    async def seen(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return await app(scope, receive, send)
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        box.requests.append({"method": scope["method"], "headers": headers})
        refused = any(headers.get(name) != value for name, value in box.needed.items())
        if refused or (legacy and headers.get("mcp-method") == "server/discover"):
            await send({"type": "http.response.start", "status": 401 if refused else 404, "headers": []})
            await send({"type": "http.response.body", "body": b"no"})
            return None
        return await app(scope, receive, send)

    return seen


def paged_server(pages: list[list[str]], *, endless: bool = False) -> tuple[Any, Callable[[], int]]:
    """Return a server that lists its tools in pages, and a counter of its requests."""
    asked = 0

    async def list_tools(context: Any, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        nonlocal asked
        asked += 1
        page = int(params.cursor) if params is not None and params.cursor else 0
        tools = [types.Tool(name=name, input_schema={"type": "object"}) for name in pages[page % len(pages)]]
        more = endless or page + 1 < len(pages)
        return types.ListToolsResult(tools=tools, next_cursor=str(page + 1) if more else None)

    server = LowServer("paged", on_list_tools=list_tools)
    return server, lambda: asked


@dataclass
class Bridge:
    """Fake of the bridge in a stdio server's pod."""

    command: list[str]
    token: str
    address: str = ""
    processes: list[asyncio.subprocess.Process] = field(default_factory=list)
    attempts: int = 0
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    """Servers start only while it is set."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Bridge"]:
        self.gate.set()
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()
            for process in self.processes:
                if process.returncode is None:
                    process.kill()
                await process.wait()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not await greet(reader, writer, self.token):
            writer.close()
            return
        self.attempts += 1
        await self.gate.wait()
        process = await asyncio.create_subprocess_exec(
            *self.command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        self.processes.append(process)
        assert process.stdin is not None
        assert process.stdout is not None
        writer.write(b'{"ok": true}\n')
        await asyncio.wait(
            {
                asyncio.create_task(_pump(reader, process.stdin)),
                asyncio.create_task(_pump(process.stdout, writer)),
            },
            return_when=asyncio.FIRST_COMPLETED,
        )
        writer.close()
        if process.returncode is None:
            process.kill()
        await process.wait()


async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: str) -> bool:
    """Exchange proofs with the broker as a bridge with this token does. Return whether the broker has proved itself."""
    head = await reader.readuntil(b"\r\n\r\n")
    nonce, own_nonce = head.partition(b"nonce=")[2][:64].decode(), secrets.token_hex(32)
    address, digest = writer.get_extra_info("peername")[0], token_digest(token)
    proof = compute_proof(key=digest, nonce=nonce, address=address)
    body = json.dumps({"proof": proof, "address": address, "nonce": own_nonce})
    writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
    line = await reader.readline()
    client = ProvenPeer(key=digest, nonce=nonce, own_nonce=own_nonce, address=address)
    return bool(line) and json.loads(line)["token"] == client.cover_token(token)


def stdio_status(address: str) -> Object:
    """Return the status that the operator writes about a stdio server whose pod has this address."""
    return {"workload": {"ready": True, "address": address, "podUid": POD_UID}}


def stdio_token(name: str, *, key: bytes = SANDBOX_KEY) -> str:
    """Return the token of the bridge of a stdio server in the namespace `agents`."""
    return bridge_token(key=key, namespace="agents", name=name, pod=POD_UID)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while chunk := await reader.read(65536):
            writer.write(chunk)
            await writer.drain()
    except OSError:
        return


@asynccontextmanager
async def real_bridge(
    command: list[str], *, token: str, variables: Mapping[str, str] = MappingProxyType({})
) -> AsyncIterator[str]:
    """Run the real bridge of a stdio server's pod with additional variables, and yield its HOST:PORT."""
    file = Path(mkdtemp(prefix="bridge-")) / "sha256"
    file.write_text(hashlib.sha256(token.encode()).hexdigest())
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(BRIDGE), "serve", "--", *command),
        stderr=asyncio.subprocess.PIPE,
        env={
            "PATH": os.environ["PATH"],
            "MCP_EXEC_PORT": "0",
            "MCP_EXEC_TOKEN_FILE": str(file),
            **variables,
        },
    )
    assert process.stderr is not None
    try:
        while (said := json.loads(await process.stderr.readline()))["message"] != "ready":
            pass
        yield f"127.0.0.1:{said['port']}"
    finally:
        process.terminate()
        await process.communicate()
        shutil.rmtree(file.parent)


def module(name: str, *arguments: str) -> list[str]:
    """Return the command that runs a module of this environment."""
    return [sys.executable, "-m", name, *arguments]
