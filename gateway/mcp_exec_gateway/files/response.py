"""Responses with bytes of any size, in bounded memory."""

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, ExitStack
from typing import Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from mcp_exec_common.broker.files_client import FileStream
from mcp_exec_gateway.files.refusals import VERSION_HEADER
from mcp_exec_gateway.http.limits import MemoryBudget
from mcp_exec_gateway.http.problems import HttpProblem

_SEND_SECONDS: Final = 60.0
"""Time in which a client must accept one part."""
TRANSFER_BYTES: Final = 1024 * 1024
"""Memory of one transfer: a part, and the buffers of both connections."""


class ContentResponse(Response):
    """A response whose bytes come from the broker while they are sent. Problems are responses until bytes are sent."""

    def __init__(
        self,
        opening: AbstractAsyncContextManager[FileStream],
        *,
        headers: dict[str, str],
        slots: Sequence[AbstractContextManager[None]],
        memory: MemoryBudget,
        namespace: str,
        if_none_match: str = "",
    ) -> None:
        super().__init__(headers=headers)
        self._opening = opening
        self._slots = slots
        self._memory = memory
        self._namespace = namespace
        self._if_none_match = if_none_match

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the content. Raises TimeoutError, which closes the connection, if the client is too slow."""
        is_started = False
        try:
            with ExitStack() as stack:
                for slot in self._slots:
                    stack.enter_context(slot)
                stack.enter_context(self._memory.reserving(self._namespace)).require(TRANSFER_BYTES)
                async with self._opening as stream:
                    if stream.etag and f'"{stream.etag}"' in self._if_none_match:
                        await _send_unchanged(stream, send)
                        return
                    self._describe(stream)
                    is_started = True
                    await self._relay(stream, scope, send)
        except HttpProblem as problem:
            if is_started:
                # the client sees that the response is incomplete
                raise ConnectionAbortedError(f"the content broke off: {problem.detail}") from problem
            await problem.response()(scope, receive, send)

    def _describe(self, stream: FileStream) -> None:
        del self.headers["Content-Length"]
        if stream.size is not None:
            self.headers["Content-Length"] = str(stream.size)
        if stream.etag:
            self.headers["ETag"] = f'"{stream.etag}"'
        if stream.version is not None:
            self.headers[VERSION_HEADER] = str(stream.version)

    async def _relay(self, stream: FileStream, scope: Scope, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        if scope["method"] != "HEAD":
            async for part in stream.chunks:
                async with asyncio.timeout(_SEND_SECONDS):
                    await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _send_unchanged(stream: FileStream, send: Send) -> None:
    headers = [(b"etag", f'"{stream.etag}"'.encode()), (b"cache-control", b"private, no-cache")]
    await send({"type": "http.response.start", "status": 304, "headers": headers})
    await send({"type": "http.response.body", "body": b"", "more_body": False})
