"""Tool calls of this execution, with the broker's address, the grant and the allowed patterns. One per process."""

import asyncio
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mcp_exec_sandbox.protocol import MAX_NOTES, TOOL_MESSAGE_CHARACTERS
from mcp_exec_sandbox.tools.arguments import encode_arguments
from mcp_exec_sandbox.tools.connection import (
    BrokerAccess,
    BrokerConnection,
    BrokerLost,
    BrokerMessage,
    BrokerRefused,
    BrokerUnreachable,
    LoopConnectionPools,
)
from mcp_exec_sandbox.tools.errors import ToolDenied, ToolError, ToolProtocolError, parse_error
from mcp_exec_sandbox.tools.results import ResultFiles, build_result
from mcp_exec_tools.text import shorten

Emit = Callable[[dict[str, Any]], None]
"""Function that sends an event to the supervisor."""
_NO_TOOLS = (
    "this execution may call no tools: its spec.tools is empty. The creator of the execution allows tools by name or "
    'pattern, such as spec.tools: ["github.create_issue", "filesystem.*"]'
)
_RESPONSE = (
    b"HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\ntransfer-encoding: chunked\r\n\r\n"
    b'25\r\n{"type":"result","tool":"","value":0}\r\n0\r\n\r\n'
)


class ToolSession:
    """Session that makes the tool calls of one execution and sends their events."""

    def __init__(
        self,
        *,
        broker: BrokerAccess | None,
        emit: Emit,
        workspace: Path,
        skills: tuple[Mapping[str, Any], ...] = (),
        servers: Sequence[str] | None = None,
        note: Callable[[str, str], None] = lambda tool, text: None,
    ) -> None:
        self._pools = None if broker is None else LoopConnectionPools(broker)
        self._emit = emit
        self._note = note
        """Is called with a tool and what was changed in a call of it."""
        self._numbers = itertools.count(1)
        self._files = ResultFiles(workspace)
        self.workspace = workspace
        """Working folder of the code."""
        self.allow = broker.allow if broker is not None else ()
        """Patterns of the allowed tools."""
        self.servers = servers
        """Names of the servers with tools that this execution may use. None: they are not known."""
        self.skills = skills
        """Skills that searches find, like entries of `tools/list`."""

    async def call(self, tool: str, arguments: Mapping[str, Any], timeout_seconds: float | None) -> Any:
        """Call a tool and return its result.

        Raises:
            ToolError: the call failed; a subclass names the kind of failure.
        """
        if self._pools is None:
            raise ToolDenied(_NO_TOOLS, tool=tool, reason="NotAllowed")
        text = encode_arguments(tool, arguments)
        identifier = f"call-{next(self._numbers)}"
        self._emit({"type": "tool_call", "id": identifier, "tool": tool, "argumentBytes": len(text.encode())})
        started = time.perf_counter()
        size, failure = 0, None
        try:
            limit = {} if timeout_seconds is None else {"timeoutSeconds": timeout_seconds}
            body = encode_arguments(tool, {"id": identifier, "tool": tool, **limit})
            answer, size = await self._send(tool, f'{body[:-1]},"arguments":{text}}}'.encode("utf-8", "replace"))
            return self._read_value(tool, answer)
        except BaseException as error:
            failure = error
            raise
        finally:
            self._emit_end(identifier, tool, failure, size, time.perf_counter() - started)

    def close(self) -> None:
        """Close the idle connections to the broker."""
        if self._pools is not None:
            self._pools.close()

    async def _send(self, tool: str, body: bytes) -> tuple[BrokerMessage, int]:
        assert self._pools is not None  # noqa: S101 - `call` has checked
        try:
            return await self._pools.get_pool().call(body, self._on_event)
        except BrokerUnreachable as error:
            message = f"the tool broker can't be reached ({error}); the tool was not called"
            raise ToolProtocolError(message, tool=tool, reason="ServerUnavailable") from None
        except BrokerLost as error:
            message = f"no answer came ({error}); the tool may have done its work"
            raise ToolProtocolError(message, tool=tool, reason="ConnectionLost") from None
        except BrokerRefused as error:
            raise _convert_refusal(tool, error) from None

    def _on_event(self, event: BrokerMessage) -> None:
        if event.get("type") == "approval":
            fields = {name: event.get(name) for name in ("id", "tool", "expiresAt")}
            self._emit({"type": "approval", **fields})

    def _read_value(self, tool: str, answer: BrokerMessage) -> Any:
        if answer["type"] == "error":
            raise parse_error(answer, tool=tool)
        notes = answer.get("notes")
        for note in notes[:MAX_NOTES] if isinstance(notes, list) else ():
            self._note(tool, str(note))
        if "value" in answer:
            return answer["value"]
        if isinstance(content := answer.get("content"), list):
            return build_result(content, answer.get("structured"), self._files)
        raise ToolProtocolError("the broker's answer has no value", tool=tool, reason="ConnectionLost")

    def _emit_end(self, identifier: str, tool: str, failure: BaseException | None, size: int, seconds: float) -> None:
        event = {"type": "tool_result", "id": identifier, "tool": tool, "ok": failure is None, "kind": None}
        if failure is not None:
            event["kind"] = type(failure).__name__
            if isinstance(failure, ToolError):
                event["message"] = shorten(failure.message, TOOL_MESSAGE_CHARACTERS)
        self._emit({**event, "bytes": size, "ms": round(seconds * 1000, 3)})


def _convert_refusal(tool: str, refusal: BrokerRefused) -> ToolError:
    message = refusal.text or f"the broker answered {refusal.status}"
    if refusal.status == 401:
        return ToolDenied(f"the broker does not know this execution: {message}", tool=tool, reason="ExecutionEnded")
    if refusal.status == 413:
        return ToolError(f"the arguments are too large: {message}", tool=tool, reason="InvalidArguments")
    if refusal.status == 429:
        return ToolDenied(message, tool=tool, reason="RateLimited")
    if refusal.status < 500:
        return ToolError(message, tool=tool, reason="InvalidArguments")
    return ToolProtocolError(f"the broker failed: {message}", tool=tool, reason="ServerUnavailable")


_current: list[ToolSession] = []


def set_session(session: ToolSession) -> None:
    """Make `session` the session of this process, and close the connections of the one before."""
    for former in _current:
        former.close()
    _current[:] = [session]


def get_session() -> ToolSession:
    """Return the session of this process, or if none is set, a session without tools."""
    if not _current:
        return ToolSession(broker=None, emit=lambda event: None, workspace=Path.cwd())
    return _current[0]


class _NoTransport(asyncio.Transport):
    """Transport that drops what is written."""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Drop the data."""

    def is_closing(self) -> bool:
        """Return False."""
        return False

    def abort(self) -> None:
        """Do nothing."""


async def warm_up_connection() -> None:
    """Send a call without a network and read a canned response."""
    connection = BrokerConnection(host="192.0.2.1:1", token="-")  # noqa: S106 - is never sent
    connection.connection_made(_NoTransport())
    asyncio.get_running_loop().call_soon(connection.data_received, _RESPONSE)
    await connection.call(b"{}", lambda event: None)
    connection.connection_lost(None)
