"""Streams as responses: server-sent events or lines of JSON, with signs of life while nothing happens."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractContextManager, aclosing, suppress
from dataclasses import dataclass
from typing import Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from mcp_exec_common.kube.errors import ApiError
from mcp_exec_gateway.events.follower import Frame
from mcp_exec_gateway.executions.index import Released
from mcp_exec_gateway.executions.views import to_json
from mcp_exec_gateway.executions.wait import disconnected
from mcp_exec_gateway.http.problems import Problem

log = logging.getLogger(__name__)

KEEP_ALIVE_SECONDS: Final = 15.0
MAX_STREAM_SECONDS: Final = 900.0
"""The longest that a stream stands; its reader resumes it."""
_QUEUED: Final = 32
_SEND_SECONDS: Final = 60.0
"""How long a reader may take nothing."""


@dataclass(frozen=True, kw_only=True)
class Encoding:
    """How frames look on the wire."""

    media_type: str
    head: bytes
    keep_alive: bytes
    encode: Callable[[Frame], bytes]


def _as_event(frame: Frame) -> bytes:
    return b"id: %s\nevent: %s\ndata: %s\n\n" % (
        str(frame.position).encode(),
        frame.type.encode(),
        to_json(frame.data()),
    )


SSE: Final = Encoding(
    media_type="text/event-stream", head=b"retry: 1000\n\n", keep_alive=b": keep-alive\n\n", encode=_as_event
)
NDJSON: Final = Encoding(
    media_type="application/x-ndjson", head=b"", keep_alive=b"\n", encode=lambda frame: to_json(frame.data()) + b"\n"
)


def encoding_for(accept: str) -> Encoding:
    """The encoding that an Accept header asks for; server-sent events where it leaves the choice."""
    accepted = {part.partition(";")[0].strip().lower() for part in accept.split(",")} - {""}
    if not accepted or accepted & {"text/event-stream", "text/*", "*/*"}:
        return SSE
    if accepted & {"application/x-ndjson", "application/*"}:
        return NDJSON
    raise Problem("not-acceptable", 406, "events come as text/event-stream or application/x-ndjson")


class FrameResponse(Response):
    """Sends frames as they come, until they end, the reader goes away, the process stops or time is over."""

    def __init__(
        self,
        frames: AsyncGenerator[Frame, None],
        *,
        encoding: Encoding,
        closing: asyncio.Event,
        slot: AbstractContextManager[None],
        keep_alive_seconds: float = KEEP_ALIVE_SECONDS,
        max_seconds: float = MAX_STREAM_SECONDS,
    ) -> None:
        self.status_code = 200
        self.background = None
        self.body = b""
        self.media_type = encoding.media_type
        self.init_headers({"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._frames = frames
        self._encoding = encoding
        self._closing = closing
        self._slot = slot
        self._keep_alive_seconds = keep_alive_seconds
        self._max_seconds = max_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends it all."""
        with self._slot:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await send({"type": "http.response.body", "body": self._encoding.head, "more_body": True})
            queue: asyncio.Queue[bytes | None] = asyncio.Queue(_QUEUED)
            pump = asyncio.create_task(self._pump(queue))
            stops = {asyncio.create_task(disconnected(receive)), asyncio.create_task(self._wait_closing())}
            try:
                async with asyncio.timeout(self._max_seconds):
                    await self._send_all(queue, stops, send)
            except TimeoutError:
                log.info("a stream was cut: its reader is slow, or it has stood for as long as one may")
            finally:
                for task in (pump, *stops):
                    task.cancel()
                await asyncio.gather(pump, *stops, return_exceptions=True)
            # a reader that takes nothing does not take this either
            with suppress(TimeoutError):
                async with asyncio.timeout(1):
                    await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _wait_closing(self) -> None:
        await self._closing.wait()

    async def _pump(self, queue: "asyncio.Queue[bytes | None]") -> None:
        try:
            async with aclosing(self._frames):
                async for frame in self._frames:
                    await queue.put(self._encoding.encode(frame))
        except (ApiError, Released, Problem) as error:
            # the headers are gone: the stream ends without an `end`, and the reader resumes it
            log.warning("a stream broke: %s %s", type(error).__name__, error)
        except Exception:
            log.exception("a stream broke")
        await queue.put(None)

    async def _send_all(
        self, queue: "asyncio.Queue[bytes | None]", stops: "set[asyncio.Task[None]]", send: Send
    ) -> None:
        getting: asyncio.Task[bytes | None] | None = None
        try:
            while True:
                getting = getting or asyncio.create_task(queue.get())
                done, _ = await asyncio.wait(
                    {getting, *stops}, timeout=self._keep_alive_seconds, return_when=asyncio.FIRST_COMPLETED
                )
                if getting in done:
                    body, getting = getting.result(), None
                elif done:
                    return
                else:
                    body = self._encoding.keep_alive
                if body is None:
                    return
                async with asyncio.timeout(_SEND_SECONDS):
                    await send({"type": "http.response.body", "body": body, "more_body": True})
        finally:
            if getting is not None:
                getting.cancel()
