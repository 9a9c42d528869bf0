"""A gateway on a real port that goes away while a client waits, in the ways that gateways do, and comes back."""

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Literal

from tests.support.ports import free_port
from tests.support.scripted_gateway import CREATED, execution

Absence = Literal["refused", "reset", "closed", "502", "503", "504", "unresolved"]
ABSENCES: tuple[Absence, ...] = ("refused", "reset", "closed", "502", "503", "504", "unresolved")
EVENTS: tuple[dict[str, Any], ...] = (
    {"id": "1.0", "type": "status", "phase": "Running"},
    {"id": "2.1", "type": "stdout", "text": "1"},
    {"id": "3.2", "type": "stdout", "text": "2"},
    {"id": "4.2", "type": "end", "phase": "Succeeded", "reason": ""},
)
_LEAVES_AFTER = 2
"""Events that the first connection of a stream gets."""


@dataclass
class AbsentGateway:
    """Answers until the first request about a run has arrived, which it cuts; then it is away for some seconds.

    The seconds are the delays of the client, which calls `sleep` and does not really wait.
    """

    absence: Absence
    away_seconds: float
    """Delays until it is back; infinite if it never is."""
    delays: list[float] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    """First line of each request, and its Last-Event-ID if there is one."""
    _is_here: bool = True
    _has_left: bool = False
    _server: asyncio.Server | None = None
    _loop: asyncio.AbstractEventLoop = field(init=False)
    _open: set[asyncio.StreamWriter] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._port = free_port()

    @property
    def url(self) -> str:
        """Address of the gateway."""
        return f"http://localhost:{self._port}"

    @asynccontextmanager
    async def running(self) -> AsyncIterator["AbsentGateway"]:
        """Serve while the context lasts."""
        self._loop = asyncio.get_running_loop()
        await self._listen()
        try:
            yield self
        finally:
            await self._stop_listening()
            for writer in self._open:
                writer.transport.abort()

    async def sleep(self, seconds: float) -> None:
        """Count a delay of the client, and be back if it has waited for long enough."""
        self.delays.append(seconds)
        if not self._is_here and sum(self.delays) >= self.away_seconds:
            await self._call(self._return())

    def is_unresolved(self) -> bool:
        """Return whether the name of its host has no address at the moment."""
        return not self._is_here and self.absence == "unresolved"

    async def _call(self, work: Any) -> None:
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    async def _return(self) -> None:
        self._is_here = True
        if self._server is None:
            await self._listen()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)

    async def _stop_listening(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _leave(self) -> None:
        self._is_here, self._has_left = False, True
        if self.absence in ("refused", "unresolved"):
            await self._stop_listening()
        for each in self._open:
            each.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            with suppress(ConnectionError):
                await self._answer_all(reader, writer)
        finally:
            self._open.discard(writer)
            writer.close()

    async def _answer_all(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            headers: dict[str, str] = {}
            while header := (await reader.readline()).decode().strip():
                name, _, value = header.partition(":")
                headers[name.lower()] = value.strip()
            await reader.readexactly(int(headers.get("content-length", 0)))
            method, target, _ = line.decode().split()
            path = target.partition("?")[0]
            position = headers.get("last-event-id", "")
            if not self._is_here:
                await self._answer_away(writer)
                return
            self.requests.append(f"{method} {path} {position}".strip())
            if path.endswith("/events"):
                await self._stream(writer, position)
                return
            is_waiting = method == "GET" and path == "/v1/executions/e1"
            if is_waiting and not self._has_left:
                await self._leave()
                return
            phase = "Succeeded" if is_waiting else "Running"
            await _write(writer, "200 OK", json.dumps(execution(phase)).encode())

    async def _stream(self, writer: asyncio.StreamWriter, position: str) -> None:
        start = next((n + 1 for n, event in enumerate(EVENTS) if event["id"] == position), 0)
        leaves = not self._has_left
        lines = [{"seq": n, "at": CREATED} | event for n, event in enumerate(EVENTS)]
        sent = lines[start:_LEAVES_AFTER] if leaves else lines[start:]
        body = b"".join(json.dumps(line).encode() + b"\n" for line in sent)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nConnection: close\r\n\r\n" + body)
        await writer.drain()
        if leaves:
            writer.close()
            self._open.discard(writer)
            await self._leave()

    async def _answer_away(self, writer: asyncio.StreamWriter) -> None:
        if self.absence == "reset":
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            writer.transport.abort()
        elif self.absence.isdigit():
            await _write(writer, f"{self.absence} Bad", b"<html>no healthy upstream</html>")


async def _write(writer: asyncio.StreamWriter, status: str, body: bytes) -> None:
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    await writer.drain()


def failing_names(gateway: AbsentGateway, resolve: Callable[..., Any]) -> Callable[..., Any]:
    """Return `socket.getaddrinfo` that fails while the gateway's name has no address."""

    def find(*arguments: Any, **options: Any) -> Any:
        if gateway.is_unresolved():
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return resolve(*arguments, **options)

    return find
