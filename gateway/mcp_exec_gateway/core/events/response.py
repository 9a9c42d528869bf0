"""Event streams as responses: server-sent events or lines of JSON, kept alive between events."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, aclosing, suppress
from dataclasses import dataclass
from typing import Final

from starlette.types import Receive, Scope, Send

from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.util.weight import weigh
from mcp_exec_gateway.core.events.follower import EventFrame
from mcp_exec_gateway.core.executions.index import ShuttingDown
from mcp_exec_gateway.core.http.json import to_json
from mcp_exec_gateway.core.http.limits import MemoryBudget, Reservation
from mcp_exec_gateway.core.http.problems import HttpProblem
from mcp_exec_gateway.core.http.request_body import wait_for_disconnect
from mcp_exec_gateway.core.http.stream import KEEP_ALIVE_SECONDS, StreamResponse, cancel_all

log = logging.getLogger(__name__)

MAX_STREAM_SECONDS: Final = 900.0
"""Maximum duration of a stream; the client then resumes it."""
_MAX_BUFFERED_BYTES: Final = 128 * 1024
"""Bytes of a stream that wait for a slow client, besides one event: 64 MiB for 512 streams. What an event takes beyond
them counts against the memory of requests in flight."""


@dataclass(frozen=True, kw_only=True)
class StreamEncoding:
    """Format of a stream."""

    content_type: str
    head: bytes
    keep_alive: bytes
    encode: Callable[[EventFrame], bytes]


def _encode_sse(frame: EventFrame) -> bytes:
    return b"id: %s\nevent: %s\ndata: %s\n\n" % (
        str(frame.position).encode(),
        frame.type.encode(),
        to_json(frame.to_json_data()),
    )


SSE: Final = StreamEncoding(
    content_type="text/event-stream; charset=utf-8",
    head=b"retry: 1000\n\n",
    keep_alive=b": keep-alive\n\n",
    encode=_encode_sse,
)
NDJSON: Final = StreamEncoding(
    content_type="application/x-ndjson",
    head=b"",
    keep_alive=b"\n",
    encode=lambda frame: to_json(frame.to_json_data()) + b"\n",
)


def choose_encoding(accept: str) -> StreamEncoding:
    """Return the encoding for an Accept header. Without a preference, it is server-sent events."""
    accepted = {part.partition(";")[0].strip().lower() for part in accept.split(",")} - {""}
    if not accepted or accepted & {"text/event-stream", "text/*", "*/*"}:
        return SSE
    if accepted & {"application/x-ndjson", "application/*"}:
        return NDJSON
    raise HttpProblem("not-acceptable", 406, "events are available as text/event-stream and application/x-ndjson")


class _EventBuffer:
    """Encoded events that wait to be sent or are sent, bounded in bytes. None ends the stream."""

    def __init__(self, memory: Reservation) -> None:
        self._memory = memory
        self._events: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._size = self._sent_size = 0
        self._has_room = asyncio.Event()

    async def put(self, event: bytes | None) -> None:
        """Add an event once there is room. One event always has room, unless the gateway's memory is short.

        Raises HttpProblem in that case.
        """
        while event is not None and self._size and self._size + len(event) > _MAX_BUFFERED_BYTES:
            self._has_room.clear()
            await self._has_room.wait()
        size = self._size + len(event or b"")
        self._memory.require(_exceeding(size))
        self._size = size
        self._events.put_nowait(event)

    async def get(self) -> bytes | None:
        """Return the next event. The one before has been sent."""
        self._size -= self._sent_size
        self._sent_size = 0
        self._memory.resize(_exceeding(self._size))
        self._has_room.set()
        event = await self._events.get()
        self._sent_size = len(event or b"")
        return event


def _exceeding(size: int) -> int:
    return max(size - _MAX_BUFFERED_BYTES, 0)


class StreamingEventResponse(StreamResponse):
    """Sends frames as they arrive, until they end, the client disconnects, the gateway closes or time runs out."""

    def __init__(
        self,
        frames: AsyncGenerator[EventFrame, None],
        *,
        encoding: StreamEncoding,
        closing: asyncio.Event,
        memory: MemoryBudget,
        namespace: str,
        slots: Sequence[AbstractContextManager[None]],
        keep_alive_seconds: float = KEEP_ALIVE_SECONDS,
        max_seconds: float = MAX_STREAM_SECONDS,
    ) -> None:
        super().__init__(
            content_type=encoding.content_type, keep_alive=encoding.keep_alive, keep_alive_seconds=keep_alive_seconds
        )
        self._frames = frames
        self._encoding = encoding
        self._closing = closing
        self._memory = memory
        self._namespace = namespace
        self._slots = slots
        self._max_seconds = max_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream. Raises HttpProblem if a slot is taken."""
        with ExitStack() as stack:
            for slot in self._slots:
                stack.enter_context(slot)
            queue = _EventBuffer(stack.enter_context(self._memory.reserving(self._namespace)))
            pump = asyncio.create_task(self._fill(queue))
            leaving = asyncio.create_task(wait_for_disconnect(receive))
            closing = asyncio.create_task(self._wait_closing())
            try:
                async with asyncio.timeout(self._max_seconds):
                    await self.send_part(self._encoding.head, send)
                    await self.relay(queue.get, send, leaving=leaving, ending=closing)
            except TimeoutError:
                log.info("event stream cut: the client is slow, or the maximum duration is over")
            finally:
                await cancel_all(pump, leaving, closing)
            # a client that accepts no event may not accept the end either
            with suppress(TimeoutError):
                async with asyncio.timeout(1):
                    await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _wait_closing(self) -> None:
        await self._closing.wait()

    async def _fill(self, queue: "_EventBuffer") -> None:
        try:
            async with aclosing(self._frames):
                async for frame in self._frames:
                    with self._memory.reserving(self._namespace) as reservation:
                        # until the event is in the buffer, its values are in memory as well
                        reservation.require(_exceeding(weigh(frame.fields, limit=self._memory.limit)))
                        await queue.put(self._encoding.encode(frame))
        except (ApiError, ShuttingDown, HttpProblem) as error:
            # the headers are sent, so the stream ends without an `end` event, and the client resumes it
            log.warning("event stream ended early: %s %s", type(error).__name__, error)
        except Exception:
            log.exception("event stream failed")
        await queue.put(None)
