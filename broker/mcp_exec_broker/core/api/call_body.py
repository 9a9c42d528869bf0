"""Bodies of calls. A small one is read and parsed at once; a large one only if its call may be made.

The head of a large body, `{"id": ..., "tool": ..., `, names the tool, so that account, budget, policy and size are
checked before the rest is read. Memory is reserved before it is parsed, and its values, depth and size are bounded, so
that no step takes longer than about 20 ms.
"""

import json
import re
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

from mcp_exec_broker.core.calls.call import CallRequest, Offload
from mcp_exec_broker.core.errors import ErrorReason, ToolCallError, build_rejection
from mcp_exec_broker.core.memory import FlightLease
from mcp_exec_common.util.weight import weigh_json

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]

SMALL_BYTES: Final = 16 * 1024
"""Bytes of a body that is read and parsed at once: that takes 0.3 ms."""
MAX_DEPTH: Final = 100
"""Levels of objects and lists. Every later step that recurses needs fewer frames than Python has."""
_FIELDS: Final = frozenset({"id", "tool", "arguments", "timeoutSeconds"})
_MAX_ID: Final = 128
_MAX_TOOL: Final = 512
_UNCOUNTED_BYTES: Final = 2048
"""Bytes of a body whose memory is not counted: the limit on concurrent calls bounds it."""
_PREAMBLE_BYTES: Final = 4096
_PREAMBLE: Final = re.compile(
    rb'\s{0,16}\{\s{0,16}"id"\s{0,16}:\s{0,16}("(?:[^"\\]|\\.)*")\s{0,16},'
    rb'\s{0,16}"tool"\s{0,16}:\s{0,16}("(?:[^"\\]|\\.)*")\s{0,16},'
)


class RequestRefused(Exception):
    """A request that is answered with an HTTP error."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class ClientClosed(Exception):
    """The client closed the connection."""


class CallBody:
    """The body of one request."""

    def __init__(self, receive: Receive, *, length: int | None, max_bytes: int) -> None:
        """Refuse a body that is too large. `length` is the request's Content-Length.

        Raises RequestRefused.
        """
        if length is not None and length > max_bytes:
            raise RequestRefused(413, f"the body has {length} bytes, allowed are {max_bytes}")
        self._receive = receive
        self._length = length
        self._read = bytearray()
        self.is_complete = False

    async def read_request(self, lease: FlightLease, offload: Offload) -> CallRequest:
        """Return the request; that of a large body loads its arguments later. Raises RequestRefused and ClientClosed.

        The loading may raise ToolCallError and ClientClosed.
        """
        while not self.is_complete and len(self._read) <= SMALL_BYTES:
            await self._receive_part()
        if self.is_complete and len(self._read) <= SMALL_BYTES:
            if len(self._read) > _UNCOUNTED_BYTES:
                await self._reserve(lease)
            return parse_request(bytes(self._read), lease=lease)
        if self._length is None:
            raise RequestRefused(411, f"a body of more than {SMALL_BYTES} bytes needs a Content-Length")
        length = self._length
        preamble = _PREAMBLE.match(self._read[:_PREAMBLE_BYTES])
        if preamble is None:
            raise RequestRefused(400, f"a body of more than {SMALL_BYTES} bytes begins with the fields id and tool")
        fields = parse_request(b'{"id":%b,"tool":%b}' % preamble.groups(), lease=lease)

        async def load() -> CallRequest:
            await lease.acquire(length)
            while not self.is_complete:
                await self._receive_part()
            body = bytes(self._read)
            self._read.clear()
            memory = await offload.run(lambda: weigh_json(body, limit=lease.flight.limits.per_execution), size=length)
            await lease.acquire(max(memory - length, 0))
            try:
                request = await offload.run(lambda: parse_request(body, lease=lease), size=length)
            except RequestRefused as error:
                raise _build_error(str(error)) from None
            if (request.id, request.tool) != (fields.id, fields.tool):
                raise _build_error("the body has the field id or tool twice")
            return request

        return CallRequest(id=fields.id, tool=fields.tool, arguments={}, size=length, load=load, lease=lease)

    async def _reserve(self, lease: FlightLease) -> None:
        """Reserve memory for a small body. Raises RequestRefused."""
        try:
            await lease.acquire(weigh_json(bytes(self._read), limit=lease.flight.limits.per_execution))
        except ToolCallError as error:
            raise RequestRefused(429, error.message) from None

    async def _receive_part(self) -> None:
        message = await self._receive()
        if message["type"] != "http.request":
            raise ClientClosed
        self._read += message["body"]
        self.is_complete = not message.get("more_body")


def parse_request(body: bytes, *, lease: FlightLease) -> CallRequest:
    """Parse the body of a request. Raises RequestRefused."""
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        raise RequestRefused(400, "the body is not JSON") from None
    if not isinstance(fields, dict):
        raise RequestRefused(400, "the body is not a JSON object")
    if unknown := fields.keys() - _FIELDS:
        raise RequestRefused(
            400, f"field {str(min(unknown))[:100]!r} is unknown; allowed are {', '.join(sorted(_FIELDS))}"
        )
    id, tool, seconds = fields.get("id"), fields.get("tool"), fields.get("timeoutSeconds")
    arguments = fields.get("arguments", {})
    if not isinstance(id, str) or not 0 < len(id) <= _MAX_ID:
        raise RequestRefused(400, f"id: must be a text of 1 to {_MAX_ID} characters")
    if not isinstance(tool, str) or not 0 < len(tool) <= _MAX_TOOL:
        raise RequestRefused(400, f"tool: must be a text of 1 to {_MAX_TOOL} characters")
    if not isinstance(arguments, dict):
        raise RequestRefused(400, "arguments: must be an object")
    if seconds is not None and (isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0):
        raise RequestRefused(400, "timeoutSeconds: must be a number above 0")
    # as many brackets as levels are needed, so most bodies need no look at their values
    if body.count(b"{") + body.count(b"[") > MAX_DEPTH and _is_deeper(arguments, MAX_DEPTH):
        raise RequestRefused(400, f"arguments: are nested deeper than {MAX_DEPTH} levels")
    return CallRequest(id=id, tool=tool, arguments=arguments, size=len(body), timeout_seconds=seconds, lease=lease)


def _is_deeper(value: Any, levels: int) -> bool:
    """Return whether a value has more levels of objects and lists. Takes no stack."""
    layer = [value]
    for _ in range(levels):
        layer = [
            member
            for container in layer
            for member in (container.values() if isinstance(container, dict) else container)
            if isinstance(member, dict | list)
        ]
        if not layer:
            return False
    return True


def _build_error(message: str) -> ToolCallError:
    return build_rejection(ErrorReason.INVALID_ARGUMENTS, message)
