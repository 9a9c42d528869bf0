"""Typed results about what lasts. Fields that only a newer gateway has are ignored."""

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Final

from pydantic import PrivateAttr

from mcp_exec_api.meta import MicroTime, Model
from mcp_exec_api.wire.executions import ArtifactList, LinkedArtifact
from mcp_exec_client.errors import McpExecError, UnexpectedResponse
from mcp_exec_client.state.folders import UNSAFE, NameFilter
from mcp_exec_client.transport import read_all

MAX_READ_BYTES: Final = 64 * 1024 * 1024
"""Most bytes that are read into memory, unless the caller allows more."""
_OTHERS: Final = re.compile(r"[^\w.@+= -]+")
_MAX_NAME: Final = 120
Content = bytes
"""The type `bytes`, whose name the field `bytes` hides."""
Opener = Callable[[], AbstractAsyncContextManager[AsyncIterator[bytes]]]
"""Opens a download: a context with the bytes in parts."""


class ExecutionArtifact(LinkedArtifact):
    """A file, figure or table that an execution produced. An artifact of a list has a link, others have none."""

    url: str | None = None  # type: ignore[assignment] # only in lists
    expires_at: MicroTime | None = None  # type: ignore[assignment] # only in lists
    _open: Opener | None = PrivateAttr(default=None)

    def attach(self, opener: Opener) -> None:
        """Set how the bytes are read; the client that received the artifact does it."""
        self._open = opener

    async def read(self, *, max_bytes: int = MAX_READ_BYTES) -> "Content":
        """Return the artifact's bytes. Raises UnexpectedResponse if there are more than `max_bytes`."""
        async with self._opened() as parts:
            content = await read_all(parts, limit=max_bytes, what=f"artifact {self.name!r}")
        self._check(hashlib.sha256(content).hexdigest())
        return content

    async def save(self, path: str | Path | None = None) -> Path:
        """Write the artifact to a file, or by its name into a folder, and return the file's path.

        The code chose the name, so only its last part is used, without characters that could mean something.
        """
        target = Path.cwd() if path is None else Path(path)
        if target.is_dir():
            target /= safe_name(self.name, default=f"artifact-{self.id}")
        async with self._opened() as parts:
            await write_file(target, parts, check=self._check)
        return target

    def _opened(self) -> AbstractAsyncContextManager[AsyncIterator["Content"]]:
        if self._open is None:
            raise McpExecError(f"artifact {self.name!r} does not come from a client, so it can't be read")
        return self._open()

    def _check(self, digest: str) -> None:
        if self.sha256 and digest != self.sha256:
            raise UnexpectedResponse(f"artifact {self.name!r} has the digest {digest}, and not {self.sha256}")


class ExecutionArtifacts(ArtifactList):
    """An execution's artifacts, which can be read."""

    items: list[ExecutionArtifact]  # type: ignore[assignment] # the same with methods


class SyncResult(Model):
    """Result of a synchronization."""

    uploaded: tuple[str, ...] = ()
    """Paths of the files that were sent."""
    downloaded: tuple[str, ...] = ()
    """Paths of the files that were received."""
    deleted: tuple[str, ...] = ()
    """Paths of the files that were deleted."""
    unchanged: int = 0
    """Number of files that did not travel."""
    left_out: tuple[str, ...] = ()
    """Paths of the workspace's files that were not received, because a name in them is excluded."""
    version: int
    """Version of the workspace afterwards."""


def safe_name(name: str, *, default: str) -> str:
    """Return the last part of a name that code chose, as a name that is no path and that no program executes."""
    last = re.split(r"[/\\]", name)[-1]
    safe = _OTHERS.sub("_", last)[-_MAX_NAME:].strip(" .") or default
    return f"_{safe}_" if NameFilter(UNSAFE).matches(safe) else safe


async def write_file(target: Path, parts: AsyncIterator[bytes], *, check: Callable[[str], None]) -> None:
    """Write a file whole or not at all. `check` gets the digest and may raise an error. Raises OSError."""
    digest = hashlib.sha256()
    partial = target.with_name(f".{target.name}.part")
    try:
        with await asyncio.to_thread(partial.open, "wb") as file:
            async for part in parts:
                digest.update(part)
                await asyncio.to_thread(file.write, part)
        check(digest.hexdigest())
        await asyncio.to_thread(partial.replace, target)
    finally:
        partial.unlink(missing_ok=True)


def drop_unset(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}
