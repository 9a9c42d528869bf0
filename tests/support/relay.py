"""A TCP relay in front of a server, which acts when something passes."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

Watch = Callable[[bytes, bool], Awaitable[bool]]
"""Called with data and whether it is an answer, before it is passed on. Returns whether it is passed on."""


@asynccontextmanager
async def relaying(port: int, watch: Watch, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """Relay connections of a port of its own, which is yielded and may have TLS, to another port of this machine."""

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            upstream, downstream = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            writer.transport.abort()
            return
        await asyncio.gather(_copy(reader, downstream, watch, False), _copy(upstream, writer, watch, True))

    server = await asyncio.start_server(relay, "127.0.0.1", 0, ssl=tls)
    try:
        async with server:
            yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, watch: Watch, is_answer: bool) -> None:
    with suppress(OSError):
        while data := await reader.read(65536):
            if not await watch(data, is_answer):
                break
            writer.write(data)
            await writer.drain()
    writer.transport.abort()
