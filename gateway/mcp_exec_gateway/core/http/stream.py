"""Streams as responses: parts that are sent as they come, in bounded time, and kept alive between them."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from starlette.responses import Response
from starlette.types import Send

KEEP_ALIVE_SECONDS: Final = 15.0
"""Silence after which something is sent: proxies close connections that are silent for long."""
SEND_SECONDS: Final = 60.0
"""Maximum time that a client may take to accept one part."""


class StreamResponse(Response):
    """Base of responses in parts. The first part sends status and headers, which can change until then."""

    def __init__(self, *, content_type: str, keep_alive: bytes, keep_alive_seconds: float = KEEP_ALIVE_SECONDS) -> None:
        """Create a response. `keep_alive` is the part that is sent after silence; empty for none."""
        self.status_code = 200
        self.background = None
        self.body = b""
        self.raw_headers = [
            (b"content-type", content_type.encode()),
            (b"cache-control", b"no-store"),
            (b"x-accel-buffering", b"no"),
        ]
        self.is_started = False
        self._keep_alive = keep_alive
        self._keep_alive_seconds = keep_alive_seconds

    async def send_part(self, part: bytes, send: Send, *, more: bool = True) -> None:
        """Send a part. Raises TimeoutError if the client takes too long to accept it."""
        async with asyncio.timeout(SEND_SECONDS):
            if not self.is_started:
                self.is_started = True
                await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            await send({"type": "http.response.body", "body": part, "more_body": more})

    async def relay(
        self,
        read: Callable[[], Awaitable[bytes | None]],
        send: Send,
        *,
        leaving: "asyncio.Task[None]",
        ending: "asyncio.Task[Any]",
    ) -> None:
        """Send what `read` returns until that is None, `leaving` is done, or `ending` is done and no part waits.

        Raises TimeoutError if the client takes too long to accept a part.
        """
        reading: asyncio.Future[bytes | None] | None = None
        try:
            while True:
                reading = reading or asyncio.ensure_future(read())
                either: set[asyncio.Future[Any]] = {reading, leaving, ending}
                done, _ = await asyncio.wait(
                    either, timeout=self._keep_alive_seconds, return_when=asyncio.FIRST_COMPLETED
                )
                part: bytes | None = self._keep_alive
                if leaving in done:
                    return
                if reading in done:
                    part, reading = reading.result(), None
                elif ending in done:
                    return
                if part is None:
                    return
                if part:
                    await self.send_part(part, send)
        finally:
            if reading is not None:
                reading.cancel()


async def cancel_all(*tasks: "asyncio.Task[Any]") -> None:
    """Cancel tasks, and return once they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
