"""Responses with bytes of any size, in bounded memory."""

import asyncio
import re
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Final
from urllib.parse import quote

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from mcp_exec_common.broker.client import BrokerResponse
from mcp_exec_gateway.core.http.limits import MemoryBudget
from mcp_exec_gateway.core.http.problems import HttpProblem
from mcp_exec_gateway.core.http.request_body import wait_for_disconnect
from mcp_exec_gateway.core.http.stream import SEND_SECONDS
from mcp_exec_gateway.features.files.forwarding import TAG

TRANSFER_BYTES: Final = 1024 * 1024
"""Memory of one transfer: a part, and the buffers of both connections."""


class ContentResponse(Response):
    """A response whose bytes come from the broker while they are sent. Problems are responses until bytes are sent."""

    def __init__(
        self,
        opening: AbstractAsyncContextManager[BrokerResponse],
        *,
        headers: dict[str, str],
        slot: AbstractContextManager[None],
        memory: MemoryBudget,
        namespace: str,
        if_none_match: str = "",
    ) -> None:
        super().__init__(headers=headers)
        self._opening = opening
        self._slot = slot
        self._memory = memory
        self._namespace = namespace
        self._if_none_match = if_none_match

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the content. Raises TimeoutError, which closes the connection, if the client is too slow."""
        is_started = False
        try:
            with self._slot, self._memory.reserving(self._namespace) as reservation:
                reservation.require(TRANSFER_BYTES)
                async with self._opening as content:
                    tag = content.pick_headers(TAG)
                    if tag and tag["ETag"] in self._if_none_match:
                        await _send_unchanged(tag["ETag"], send)
                        return
                    del self.headers["Content-Length"]
                    self.headers.update(tag if content.size is None else {"Content-Length": str(content.size), **tag})
                    is_started = True
                    await self._relay(content, scope, receive, send)
        except HttpProblem as problem:
            if is_started:
                # the client sees that the response is incomplete
                raise ConnectionAbortedError(f"the content broke off: {problem.detail}") from problem
            await problem.response()(scope, receive, send)

    async def _relay(self, content: BrokerResponse, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the content until its end, or until the client disconnects."""
        leaving = asyncio.create_task(wait_for_disconnect(receive))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            if scope["method"] != "HEAD":
                async for part in content.iterate():
                    if leaving.done():
                        return
                    async with asyncio.timeout(SEND_SECONDS):
                        await send({"type": "http.response.body", "body": part, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            leaving.cancel()


async def _send_unchanged(tag: str, send: Send) -> None:
    headers = [(b"etag", tag.encode()), (b"cache-control", b"private, no-cache")]
    await send({"type": "http.response.start", "status": 304, "headers": headers})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


OCTETS: Final = "application/octet-stream"
_SHOWN: Final = {
    "image/png": "image/png",
    "image/jpeg": "image/jpeg",
    "image/gif": "image/gif",
    "image/webp": "image/webp",
    "image/svg+xml": "image/svg+xml",
    "text/html": "text/html; charset=utf-8",
    "text/plain": "text/plain; charset=utf-8",
    "text/csv": "text/plain; charset=utf-8",
    "text/markdown": "text/plain; charset=utf-8",
    "application/json": "application/json",
}
"""Content-Type of what a browser shows, by media type. With the policy below, none of them runs a script."""
_POLICY: Final = (
    "sandbox; default-src 'none'; img-src data:; style-src 'unsafe-inline'; font-src data:; media-src data:; "
    "base-uri 'none'; form-action 'none'"
)
_PLAIN: Final = re.compile(r"[^A-Za-z0-9_.@+= -]")
_MAX_NAME: Final = 150


def build_content_headers(*, name: str, media_type: str, shows: bool) -> dict[str, str]:
    """Return the headers of content. With `shows`, a browser shows it if that is safe, and does not store it."""
    shown = _SHOWN.get(media_type.partition(";")[0].strip().lower()) if shows else None
    return {
        "Content-Type": shown or OCTETS,
        "Content-Disposition": format_disposition(name, shows=shown is not None),
        "Content-Security-Policy": _POLICY,
        "Connection-Allowlist": "()",
        "X-DNS-Prefetch-Control": "off",
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "private, no-cache",
    }


def format_disposition(name: str, *, shows: bool) -> str:
    """Return a Content-Disposition with the last part of a name, in ASCII and in full (RFC 6266)."""
    last = re.split(r"[/\\]", name)[-1][-_MAX_NAME:] or "file"
    plain = _PLAIN.sub("_", last).strip(" .") or "file"
    full = "" if plain == last else f"; filename*=UTF-8''{quote(last.encode(errors='replace'), safe='')}"
    return f'{"inline" if shows else "attachment"}; filename="{plain}"{full}'
