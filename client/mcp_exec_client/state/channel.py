"""Requests about one kind of object: paths, the namespace, and results that are checked."""

import asyncio
import io
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, Self, TypeVar
from urllib.parse import quote

from pydantic import BaseModel

from mcp_exec_api.meta import FieldError
from mcp_exec_client.errors import (
    GatewayError,
    GatewayUnreachable,
    NotFound,
    Outdated,
    RequestInvalid,
    UnexpectedResponse,
)
from mcp_exec_client.transport import Attempts, HttpReply, Query, Transport, read_bounded
from mcp_exec_client.types import parse_reply
from mcp_exec_tools.workspace_files import check_path

Parsed = TypeVar("Parsed", bound=BaseModel)
_PART_BYTES: Final = 256 * 1024
_MAX_REPLY_BYTES: Final = 8 * 1024 * 1024
OCTETS: Final = "application/octet-stream"


@dataclass(frozen=True, kw_only=True)
class RequestChannel:
    """Requests of one client."""

    transport: Transport
    namespace: str | None

    def query(self, **params: str | None) -> dict[str, str | None]:
        """Return the parameters of a request, with the namespace."""
        return {**params, "namespace": self.namespace}

    async def send(
        self, method: str, path: str, *, query: dict[str, str | None] | None = None, **more: Any
    ) -> HttpReply:
        """Send a request with JSON, if any, and return the response. Raises McpExecError."""
        return await self.transport.request(method, path, query=self.query(**(query or {})), **more)

    async def fetch(
        self, result: type[Parsed], method: str, path: str, *, query: dict[str, str | None] | None = None, **more: Any
    ) -> Parsed:
        """Send a request and return its result. Raises McpExecError."""
        return parse_reply(result, await self.send(method, path, query=query, **more))

    async def list_items(
        self,
        result: type[Parsed],
        path: str,
        *,
        query: dict[str, str | None],
        cursor: str,
        find_next: Callable[[Parsed], str | None],
        limit: int | None = None,
        max_pages: int = 1000,
    ) -> AsyncGenerator[Any, None]:
        """Yield the `items` of a list's pages, at most `limit` (1 or more). Each page is requested when needed.

        The parameter `cursor` has what the page before it names. Raises McpExecError, also if there are more pages.
        """
        position: str | None = None
        for _ in range(max_pages):
            page: Any = await self.fetch(result, "GET", path, query={**query, cursor: position})
            for item in page.items if limit is None else page.items[:limit]:
                yield item
            limit = None if limit is None else limit - len(page.items)
            position = find_next(page)
            if position is None or (limit is not None and limit <= 0):
                return
        raise UnexpectedResponse(f"the list has more than {max_pages} pages")


def quote_segment(name: str) -> str:
    """Return a name as one part of a URL's path. Raises NotFound for a name that no URL can have there.

    `.` and `..` are not names in a URL, whose other parts they would change.
    """
    try:
        if name not in ("", ".", ".."):
            return quote(name, safe="")
    except UnicodeEncodeError:
        pass  # a surrogate
    raise NotFound(f"nothing has the name {name!r}", kind="not-found", status=404)


def quote_path(path: str) -> str:
    """Return a file's path as parts of a URL's path. Raises RequestInvalid for one that no workspace can have."""
    try:
        check_path(path)
    except ValueError as error:
        message = str(error)
        raise RequestInvalid(
            f"path: {message}", kind="invalid", status=422, errors=[FieldError(field="path", message=message)]
        ) from None
    return "/".join(map(quote_segment, path.split("/")))


@dataclass(frozen=True, kw_only=True)
class Upload:
    """Bytes that can be read several times."""

    open: Callable[[], IO[bytes]]
    size: int
    media_type: str = OCTETS

    @classmethod
    def of(cls, content: bytes | Path, *, media_type: str = OCTETS) -> Self:
        """Return the upload of bytes or of a file. Raises OSError."""
        if isinstance(content, Path):
            return cls(open=lambda: content.open("rb"), size=content.stat().st_size, media_type=media_type)
        return cls(open=lambda: io.BytesIO(content), size=len(content), media_type=media_type)

    async def read(self) -> AsyncIterator[bytes]:
        """Yield the bytes in parts. A file's reads do not block the event loop."""
        with await asyncio.to_thread(self.open) as file:
            while part := await asyncio.to_thread(file.read, _PART_BYTES):
                yield part


async def send_upload(
    transport: Transport, method: str, path: str, *, query: Query, upload: Upload, headers: dict[str, str] | None = None
) -> HttpReply:
    """Send an upload until there is a response without an error, and return it. The request must be repeatable."""
    address = f"{method} {transport.url}{path}"
    sent = {"Content-Type": upload.media_type, "Content-Length": str(upload.size), **(headers or {})}
    attempts, was_lost = Attempts(transport), False
    while True:
        try:
            async with transport.open(
                method, path, query=query, content=upload.read(), headers=sent, read_seconds=transport.timeout_seconds
            ) as response:
                content = await read_bounded(response, _MAX_REPLY_BYTES, address)
                return HttpReply(
                    status=response.status_code, content=content, address=address, headers=dict(response.headers)
                )
        except (GatewayError, GatewayUnreachable) as error:
            if was_lost and isinstance(error, Outdated):
                error.explain("an earlier attempt was not answered, and may be what exists: read it to see whose it is")
            was_lost = was_lost or isinstance(error, GatewayUnreachable)
            await attempts.pause(error)


@asynccontextmanager
async def open_download(transport: Transport, path: str, *, query: Query) -> AsyncIterator[AsyncIterator[bytes]]:
    """Open a download, again if that is safe, and yield its parts. Raises an error if it ends early."""
    attempts = Attempts(transport)
    async with AsyncExitStack() as stack:
        while True:
            try:
                response = await stack.enter_async_context(
                    transport.open(
                        "GET", path, query=query, headers={"Accept": "*/*"}, read_seconds=transport.timeout_seconds
                    )
                )
                break
            except (GatewayError, GatewayUnreachable) as error:
                await attempts.pause(error)
        yield response.aiter_raw(_PART_BYTES)
