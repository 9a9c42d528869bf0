"""Clients that send or read too slowly, to be cut off by a server within its deadlines."""

import asyncio
import select
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress

from tests.support.constants import DEADLINE
from tests.support.until import until

_PAUSE = 0.02
"""Seconds between two bytes of a slow client."""


class SlowClient:
    """A connection to a port of this machine."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def until_closed(self) -> bytes:
        """Wait until the server closes the connection, and return what it has sent."""
        received = bytearray()
        try:
            async with asyncio.timeout(DEADLINE):
                while chunk := await self._reader.read(65536):
                    received += chunk
        except ConnectionResetError:
            pass
        return bytes(received)

    async def send(self, data: bytes) -> None:
        """Send data at once."""
        self._writer.write(data)
        await self._writer.drain()

    async def send_slowly(self, data: bytes, *, seconds: float) -> None:
        """Send data in equal parts with pauses, which have so many seconds in all."""
        parts = int(seconds / _PAUSE)
        size = len(data) // parts + 1
        for start in range(0, len(data), size):
            with suppress(TimeoutError):
                async with asyncio.timeout(_PAUSE):
                    received = await self._reader.read(65536)
                    raise AssertionError(f"the server answered {received!r} before the end")
            await self.send(data[start : start + size])

    async def drip(self, data: bytes) -> bytes:
        """Send data byte by byte until the server closes the connection, and return what it has sent."""
        received = bytearray()
        for byte in data:
            try:
                self._writer.write(bytes([byte]))
                async with asyncio.timeout(_PAUSE):
                    chunk = await self._reader.read(65536)
            except TimeoutError:
                continue
            except OSError:
                return bytes(received)
            if not chunk:
                return bytes(received)
            received += chunk
        raise AssertionError(f"the server accepted {len(data)} bytes in {len(data) * _PAUSE:g} s")


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[SlowClient]:
    """Connect to a port of this machine."""
    async with asyncio.timeout(DEADLINE):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield SlowClient(reader, writer)
    finally:
        writer.close()
        await asyncio.gather(writer.wait_closed(), return_exceptions=True)


@asynccontextmanager
async def silent(port: int, count: int) -> AsyncIterator[Sequence[SlowClient]]:
    """Open connections that send nothing."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(connected(port)) for _ in range(count)]


async def ask_without_reading(port: int, request: bytes) -> None:
    """Send a request again and again and read no response. Return when the server has cut the connection off."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    # The server's kernel makes its buffer as large as some segments: those of loopback would take megabytes.
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 536)
    client.settimeout(DEADLINE)
    client.connect(("127.0.0.1", port))
    client.setblocking(False)
    poll = select.poll()
    poll.register(client, 0)  # errors only: the connection is reset

    def is_cut_off() -> bool:
        try:
            client.send(request)
        except BlockingIOError:
            pass
        except OSError:
            return True
        return bool(poll.poll(0))

    try:
        await until(is_cut_off, what="the server cuts a client off that does not read")
    finally:
        client.close()
