"""Responses with bytes of any size, in bounded memory."""

import asyncio
import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, ExitStack, contextmanager
from typing import Final
from urllib.parse import quote

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from mcp_exec_common.broker.files import FilesReason
from mcp_exec_common.broker.files_client import FilesError, FileStream
from mcp_exec_gateway.http.limits import MemoryBudget
from mcp_exec_gateway.http.problems import HttpProblem, too_many, unavailable

log = logging.getLogger(__name__)

VERSION_HEADER: Final = "X-Workspace-Version"
_KINDS: Final = {
    FilesReason.INVALID: ("invalid", 422),
    FilesReason.DISABLED: ("not-found", 404),
    FilesReason.NO_WORKSPACE: ("not-found", 404),
    FilesReason.NO_VERSION: ("not-found", 404),
    FilesReason.NO_FILE: ("not-found", 404),
    FilesReason.NO_ARTIFACT: ("not-found", 404),
    FilesReason.OUTDATED: ("outdated", 412),
    FilesReason.CONFLICT: ("changed", 409),
    FilesReason.MISSING: ("changed", 409),
    FilesReason.TOO_LARGE: ("quota", 413),
}
"""Kind and status of the problem; of other reasons it is that of an unavailable broker."""


@contextmanager
def translating_refusals() -> Iterator[None]:
    """Raise FilesError as HttpProblem."""
    try:
        yield
    except FilesError as error:
        raise translate_files_error(error) from error


def translate_files_error(error: FilesError) -> HttpProblem:
    """Return the problem of a refused request on files."""
    if error.reason in _KINDS:
        kind, status = _KINDS[error.reason]
        headers = {} if error.version is None else {VERSION_HEADER: str(error.version)}
        return HttpProblem(kind, status, str(error), headers=headers)
    if error.reason is FilesReason.BUSY:
        return too_many(str(error), retry_after=2)
    log.warning("the broker did not serve a request on files: %s %s", error.reason, error)
    return unavailable("the broker, which stores files, does not answer")


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
