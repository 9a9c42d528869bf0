"""The broker's side of the stdio bridge: one TCP connection is one process of the server, line by line JSON-RPC.

The first line says who connects, the answer whether a process was started; then the lines are the protocol's own.
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

_GREETING_BYTES: Final = 4096


class BridgeRefused(Exception):
    """The bridge took no connection, for the reason that this says."""


def split_address(address: str) -> tuple[str, int]:
    """Host and port of `HOST:PORT`. Raises ValueError where it is none."""
    host, mark, port = address.rpartition(":")
    if not (host and mark and port.isdigit()):
        raise ValueError(f"{address!r} is no HOST:PORT")
    return host.strip("[]"), int(port)


@asynccontextmanager
async def connect_bridge(
    address: str, *, token: str, max_line_bytes: int, on_end: Callable[[str], None]
) -> AsyncIterator[Streams]:
    """The transport over the bridge at HOST:PORT. `on_end` is told why, when the server ends the connection.

    Raises OSError where there is no connection, and BridgeRefused. A line that is longer than the bound ends it.
    """
    host, port = split_address(address)
    reader, writer = await asyncio.open_connection(host, port, limit=max_line_bytes)
    try:
        await _greet(reader, writer, token)
        received, read_stream = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        write_stream, to_send = anyio.create_memory_object_stream[SessionMessage](0)
        # what the session closes while a message is handed over is closed on both ends
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


async def _greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: str) -> None:
    writer.write(json.dumps({"token": token, "version": 1}).encode() + b"\n")
    await writer.drain()
    line = await reader.readline()
    if not line:
        raise BridgeRefused("the bridge closed the connection")
    try:
        answer: Any = json.loads(line[:_GREETING_BYTES])
    except ValueError:
        answer = None
    if not isinstance(answer, dict) or answer.get("ok") is not True:
        error = answer.get("error") if isinstance(answer, dict) else None
        raise BridgeRefused(f"the bridge refused: {str(error)[:300]}" if error else "the bridge's answer is no answer")


async def _receive(
    reader: asyncio.StreamReader,
    received: MemoryObjectSendStream[SessionMessage | Exception],
    on_end: Callable[[str], None],
) -> None:
    why = "the server has ended"
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        async with received:  # closing it tells the session that the connection ended
            try:
                while line := await reader.readline():
                    if line.strip():
                        await received.send(_message(line))
            except ValueError:
                why = "the server wrote a line that is longer than it may be"
            except OSError as error:
                why = f"the connection broke: {type(error).__name__}"
            on_end(why)


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


def _message(line: bytes) -> SessionMessage | Exception:
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValidationError:
        return ValueError("the server wrote a line that is no JSON-RPC")
