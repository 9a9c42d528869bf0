"""Client of the stdio bridge: one TCP connection is one process of the server, with one JSON-RPC message per line.

Bridge and broker prove themselves to each other, and the bridge's answer reports whether a process was started. What is
there without the digest of the pod's token gets a nonce and nothing else.
"""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable, Collection, MutableMapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final
from weakref import WeakValueDictionary

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import (
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError

from mcp_exec_api.reasons.server import ServerReason
from mcp_exec_broker.core.memory import AnswerReceiver, AnswerRefused, MessageScale, get_receiver
from mcp_exec_broker.core.upstream.addresses import describe_exit
from mcp_exec_broker.core.upstream.errors import UNPARSED, ServerUnavailable
from mcp_exec_broker.core.upstream.messages import explain_unreadable, find_id, replace_halves
from mcp_exec_common.peers import PeerNotProven, ProvenPeer, connect, demand_proof
from mcp_exec_common.supervisor.tokens import token_digest

Receivers = MutableMapping[RequestId, AnswerReceiver]
"""Receivers of the answers to requests, by the id of the request."""

_CONNECT_SECONDS: Final = 3.0
_PROOF_SECONDS: Final = 8.0
"""Time for the bridge's proof: it shares its CPU with the server."""
_MAX_ANSWER_BYTES: Final = 4096
_EXITED: Final = "mcp-exec/exited"
"""Method of the bridge's notification about the end of the server's process."""
_MAX_EXITED_BYTES: Final = 32 * 1024
_HOLD_SECONDS: Final = 1.0
"""Seconds that a line that is no message is held back: a process that prints text and exits has exited."""
_REFUSALS: Final = {
    "the server can't be started": ServerReason.COMMAND_NOT_STARTED,
    "the limit of": ServerReason.TOO_MANY_SESSIONS,
}
"""Reasons by the begin of the bridge's text; all others concern bridge and broker."""


@dataclass(kw_only=True, eq=False)
class RequestStream:
    """Stream of messages to the server, which notes who sends a request."""

    stream: MemoryObjectSendStream[SessionMessage]
    receivers: Receivers

    async def send(self, item: SessionMessage) -> None:
        """Send a message in the context of its sender."""
        if isinstance(item.message, JSONRPCRequest):
            self.receivers[item.message.id] = get_receiver()
        await self.stream.send(item)

    async def aclose(self) -> None:
        """Close the stream."""
        await self.stream.aclose()

    async def __aenter__(self) -> "RequestStream":
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()


Streams = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], RequestStream]


def split_address(address: str) -> tuple[str, int]:
    """Split `HOST:PORT`. Raises ValueError if it has another form."""
    host, mark, port = address.rpartition(":")
    if not (host and mark and port.isdigit()):
        raise ValueError(f"{address!r} is not HOST:PORT")
    return host.strip("[]"), int(port)


@asynccontextmanager
async def connect_bridge(
    address: str, *, tokens: Sequence[str], max_line_bytes: int, on_end: Callable[[ServerUnavailable], None]
) -> AsyncIterator[Streams]:
    """Connect to the bridge at HOST:PORT and yield the streams. `on_end` receives the cause of the connection's end.

    The bridge has the digest of one of the tokens: during a rotation of the sandbox key, it may be an older one.

    A line longer than `max_line_bytes` ends the connection. Raises ServerUnavailable, and OSError if the connection
    breaks.
    """
    reader, writer = await _open(address, tokens, max_line_bytes=max_line_bytes)
    try:
        received, read_stream = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        write_stream, to_send = anyio.create_memory_object_stream[SessionMessage](0)
        # the session may close its ends during a transfer, so both ends are closed here
        async with received, read_stream, write_stream, to_send, anyio.create_task_group() as group:
            receivers: Receivers = WeakValueDictionary()
            group.start_soon(_receive, reader, received, on_end, receivers)
            group.start_soon(_send, writer, to_send)
            try:
                yield read_stream, RequestStream(stream=write_stream, receivers=receivers)
            finally:
                group.cancel_scope.cancel()
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


async def _open(
    address: str, tokens: Sequence[str], *, max_line_bytes: int
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return a connection to the bridge, after both have proved themselves."""
    host, port = split_address(address)
    by_digest = {token_digest(token): token for token in tokens}
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            connection = await connect(host, port)
    except OSError as error:
        message = f"no connection to its bridge at {address}: {error.strerror or 'in time'}"
        raise ServerUnavailable(ServerReason.UNREACHABLE, message) from None
    except PeerNotProven as error:
        raise ServerUnavailable(ServerReason.BRIDGE_NOT_PROVEN, f"no connection to its bridge: {error}") from None
    try:
        bridge = await _demand_proof(connection, address, by_digest)
        reader, writer = await asyncio.open_connection(sock=connection, limit=max_line_bytes)
    except BaseException:
        connection.close()
        raise
    try:
        await _authenticate(reader, writer, bridge.cover_token(by_digest[bridge.key]))
    except BaseException:
        writer.close()
        raise
    return reader, writer


async def _demand_proof(connection: socket.socket, address: str, digests: Collection[str]) -> ProvenPeer:
    """Return the bridge once it has proved itself, and before it gets anything. Raises ServerUnavailable."""
    try:
        async with asyncio.timeout(_PROOF_SECONDS):
            bridge = await demand_proof(connection, keys=digests)
        if not bridge.own_nonce:
            raise PeerNotProven(f"{address} demands no proof in turn, as a bridge does")
    except (PeerNotProven, OSError) as error:
        cause = str(error) or f"{address} gave no proof within {_PROOF_SECONDS:g} s"
        raise ServerUnavailable(ServerReason.BRIDGE_NOT_PROVEN, f"nothing was sent to its bridge: {cause}") from None
    return bridge


async def _authenticate(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: str) -> None:
    writer.write(json.dumps({"token": token, "version": 2, "exit": True}).encode() + b"\n")
    await writer.drain()
    line = await reader.readline()
    if not line:
        raise ServerUnavailable(ServerReason.CONNECTION_LOST, "the bridge closed the connection")
    try:
        answer: Any = json.loads(line[:_MAX_ANSWER_BYTES])
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict) or answer.get("ok") is not True:
        raise _build_refusal(str(answer.get("error") or "") if isinstance(answer, dict) else "")


def _build_refusal(text: str) -> ServerUnavailable:
    """Return why the bridge refused a connection."""
    if not text:
        return ServerUnavailable(ServerReason.PROTOCOL_ERROR, "the bridge sent an invalid answer")
    reason = next((reason for begin, reason in _REFUSALS.items() if text.startswith(begin)), ServerReason.UNREACHABLE)
    return ServerUnavailable(reason, f"the bridge refused: {text[:300]}")


class _Unreadable(Exception):
    """A line is a message that can't be read, and its request is unknown. The text contains nothing of the server."""


async def _receive(
    reader: asyncio.StreamReader,
    received: MemoryObjectSendStream[SessionMessage | Exception],
    on_end: Callable[[ServerUnavailable], None],
    receivers: Receivers,
) -> None:
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        async with received:  # closing it ends the session
            try:
                cause = await _pass_messages(reader, received, receivers)
            except (AnswerRefused, _Unreadable) as error:
                cause = ServerUnavailable(ServerReason.NOT_MCP, f"a line that the server wrote: {error}")
            except ValueError:
                cause = ServerUnavailable(ServerReason.NOT_MCP, "the server wrote a line that exceeds its size limit")
            except OSError:
                cause = ServerUnavailable(ServerReason.CONNECTION_LOST, "the connection broke")
            on_end(cause)


async def _pass_messages(
    reader: asyncio.StreamReader, received: MemoryObjectSendStream[SessionMessage | Exception], receivers: Receivers
) -> ServerUnavailable:
    """Pass messages on until the process or the connection ends, and return why.

    A line that is no message is held back for a moment. If the process ends with it, the end is the cause to report.
    Raises _Unreadable for a message that can't be read and whose request is unknown.
    """
    own = get_receiver()
    text: Exception | None = None
    while (line := await _read_line(reader, _HOLD_SECONDS if text else None)) != b"":
        if line is not None and (exited := _parse_exit(line)) is not None:
            return exited
        if line is not None and not line.strip():
            continue
        if isinstance(text, _Unreadable):
            raise text
        if text is not None:
            await received.send(text)
            text = None
        if line is not None:
            message = await _parse_message(line, own, receivers)
            if isinstance(message, Exception):
                text = message
            else:
                await received.send(message)
            own.hand_over()
    return ServerUnavailable(ServerReason.CONNECTION_LOST, "the server has ended")


async def _read_line(reader: asyncio.StreamReader, seconds: float | None) -> bytes | None:
    """Return the next line, nothing at the end, or None if no line is complete within `seconds`."""
    try:
        async with asyncio.timeout(seconds) as limit:
            return await reader.readline()
    except TimeoutError:
        if not limit.expired():  # of the connection
            raise
        return None


async def _send(writer: asyncio.StreamWriter, to_send: MemoryObjectReceiveStream[SessionMessage]) -> None:
    """Send messages until the connection breaks, whose cause `_receive` reports: it may be in the last line."""
    with suppress(OSError):
        async with to_send:
            async for message in to_send:
                writer.write(message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
                await writer.drain()


def _parse_exit(line: bytes) -> ServerUnavailable | None:
    """Return how the server's process ended if the line is the bridge's notification about it, else None."""
    if len(line) > _MAX_EXITED_BYTES or _EXITED.encode() not in line:
        return None
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(message, dict) or message.get("method") != _EXITED or not isinstance(message.get("params"), dict):
        return None
    code, text = message["params"].get("code"), message["params"].get("line")
    end = describe_exit(code) if isinstance(code, int) and abs(code) < 1000 else "the command has ended"
    said = f": {text}" if isinstance(text, str) and text.strip() else ""
    return ServerUnavailable(ServerReason.COMMAND_EXITED, end + said)


async def _parse_message(line: bytes, own: AnswerReceiver, receivers: Receivers) -> SessionMessage | Exception:
    """Return the message in a line. Whoever waits for it holds its memory, else the session until it is passed on.

    Raises AnswerRefused if it takes too much memory, and nobody is known to wait for it.
    """
    try:
        await MessageScale(receiver=own).add(line)
        message = jsonrpc_message_adapter.validate_json(text := replace_halves(line), by_name=False)
    except AnswerRefused as error:
        receiver = receivers.get(id := find_id(line))
        if receiver is None or receiver is own:
            raise
        receiver.refused, own.refused = own.refused, None
        failure = ErrorData(code=PARSE_ERROR, message=str(error))
        return SessionMessage(JSONRPCError(jsonrpc="2.0", id=id, error=failure))
    except ValidationError as error:
        if (id := find_id(line)) in receivers and line.rstrip().endswith(b"}"):
            failure = ErrorData(code=PARSE_ERROR, message=f"{UNPARSED}a line: {error}")
            return SessionMessage(JSONRPCError(jsonrpc="2.0", id=id, error=failure))
        if line.lstrip()[:1] in (b"{", b"[") and b'"jsonrpc"' in line:
            return _Unreadable(explain_unreadable(str(error)))
        return ValueError("the server wrote a line that is not JSON-RPC")
    if isinstance(message, JSONRPCError) and message.id is None and len(receivers) == 1:
        message.id = next(iter(receivers))  # the server could not read the id of its only request
    if isinstance(message, JSONRPCResponse | JSONRPCError) and message.id is not None:
        receiver = receivers.pop(message.id, None)
        if receiver is not None and receiver is not own:
            receiver.size = len(line)
            receiver.has_halves = text is not line
            receiver.take_over(own)
    return SessionMessage(message)
