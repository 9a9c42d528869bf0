"""Client of the stdio bridge: one TCP connection is one process of the server, with one JSON-RPC message per line.

The first line authenticates the broker, and its answer reports whether a process was started.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter
from pydantic import ValidationError

Streams = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]

_MAX_ANSWER_BYTES: Final = 4096


class BridgeRefused(Exception):
    """The bridge refused the connection; the text is the cause."""


def split_address(address: str) -> tuple[str, int]:
    """Split `HOST:PORT`. Raises ValueError if it has another form."""
    host, mark, port = address.rpartition(":")
    if not (host and mark and port.isdigit()):
        raise ValueError(f"{address!r} is not HOST:PORT")
    return host.strip("[]"), int(port)


@asynccontextmanager
async def connect_bridge(
    address: str, *, token: str, max_line_bytes: int, on_end: Callable[[str], None]
) -> AsyncIterator[Streams]:
    """Connect to the bridge at HOST:PORT and yield the streams. `on_end` receives the cause of the connection's end.

    A line longer than `max_line_bytes` ends the connection. Raises OSError and BridgeRefused.
    """
    host, port = split_address(address)
    reader, writer = await asyncio.open_connection(host, port, limit=max_line_bytes)
    try:
        await _authenticate(reader, writer, token)
        received, read_stream = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        write_stream, to_send = anyio.create_memory_object_stream[SessionMessage](0)
        # the session may close its ends during a transfer, so both ends are closed here
        async with received, read_stream, write_stream, to_send, anyio.create_task_group() as group:
            group.start_soon(_receive, reader, received, on_end)
            group.start_soon(_send, writer, to_send, received)
            try:
                yield read_stream, write_stream
            finally:
                group.cancel_scope.cancel()
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


async def _authenticate(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: str) -> None:
    writer.write(json.dumps({"token": token, "version": 1}).encode() + b"\n")
    await writer.drain()
    line = await reader.readline()
    if not line:
        raise BridgeRefused("the bridge closed the connection")
    try:
        answer: Any = json.loads(line[:_MAX_ANSWER_BYTES])
    except ValueError:
        answer = None
    if not isinstance(answer, dict) or answer.get("ok") is not True:
        error = answer.get("error") if isinstance(answer, dict) else None
        raise BridgeRefused(f"the bridge refused: {str(error)[:300]}" if error else "the bridge sent an invalid answer")


async def _receive(
    reader: asyncio.StreamReader,
    received: MemoryObjectSendStream[SessionMessage | Exception],
    on_end: Callable[[str], None],
) -> None:
    cause = "the server has ended"
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        async with received:  # closing it ends the session
            try:
                while line := await reader.readline():
                    if line.strip():
                        await received.send(_parse_message(line))
            except ValueError:
                cause = "the server wrote a line that exceeds its size limit"
            except OSError as error:
                cause = f"the connection broke: {type(error).__name__}"
            on_end(cause)


async def _send(
    writer: asyncio.StreamWriter,
    to_send: MemoryObjectReceiveStream[SessionMessage],
    received: MemoryObjectSendStream[SessionMessage | Exception],
) -> None:
    try:
        async with to_send:
            async for message in to_send:
                writer.write(message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
                await writer.drain()
    except OSError:
        await received.aclose()


def _parse_message(line: bytes) -> SessionMessage | Exception:
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValidationError:
        return ValueError("the server wrote a line that is not JSON-RPC")
