"""Bodies of requests on files, which arrive in parts of any size, and refusals of requests."""

from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from mcp_exec_api.wire.problems import ProblemDetails
from mcp_exec_common.broker.files import FilesReason
from mcp_exec_tools.workspace_files import check_new_path

_PART_BYTES: Final = 256 * 1024
_MAX_DETAIL: Final = 2000
_PROBLEMS: Final = {
    FilesReason.INVALID: ("invalid", 422),
    FilesReason.NOT_AUTHENTICATED: ("unauthenticated", 401),
    FilesReason.NOT_ALLOWED: ("forbidden", 403),
    FilesReason.DISABLED: ("not-found", 404),
    FilesReason.NO_WORKSPACE: ("not-found", 404),
    FilesReason.NO_VERSION: ("not-found", 404),
    FilesReason.NO_FILE: ("not-found", 404),
    FilesReason.NO_ARTIFACT: ("not-found", 404),
    FilesReason.OUTDATED: ("outdated", 412),
    FilesReason.CONFLICT: ("changed", 409),
    FilesReason.MISSING: ("changed", 409),
    FilesReason.TOO_LARGE: ("quota", 413),
    FilesReason.BUSY: ("too-many", 429),
    FilesReason.UNAVAILABLE: ("unavailable", 503),
}
"""Kind and status of the problem that the gateway passes on to its caller."""


class FilesRefused(Exception):
    """A request on files that is refused. The message is for the sender: it has no keys and addresses of the store."""

    def __init__(
        self, reason: FilesReason, message: str, *, missing: Sequence[str] = (), version: int | None = None
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.missing = missing
        """Contents that a commit needs and that are not stored."""
        self.version = version
        """Newest version of the workspace, if the sender does not know it."""

    @property
    def status(self) -> int:
        """HTTP status of the answer to a sandbox."""
        return 400 if self.reason is FilesReason.INVALID else _PROBLEMS[self.reason][1]

    def to_problem(self) -> ProblemDetails:
        """Return the problem that the gateway passes on to its caller."""
        kind, status = _PROBLEMS[self.reason]
        return ProblemDetails.build(kind, status, str(self)[:_MAX_DETAIL])

    def to_json(self) -> dict[str, Any]:
        """Return the body of the answer to a sandbox."""
        more: dict[str, Any] = {"missing": list(self.missing)} if self.missing else {}
        if self.version is not None:
            more["version"] = self.version
        return {"reason": self.reason.value, "message": str(self), **more}


def build_invalid(message: object) -> FilesRefused:
    """Return the refusal of a malformed request."""
    return FilesRefused(FilesReason.INVALID, str(message))


def check_writable(path: str) -> None:
    """Raise FilesRefused if a request cannot write a file to a path."""
    try:
        check_new_path(path)
    except ValueError as error:
        raise build_invalid(error) from None


def build_too_large(message: str) -> FilesRefused:
    """Return the refusal of a request that exceeds a quota or a limit."""
    return FilesRefused(FilesReason.TOO_LARGE, message)


class ByteSource:
    """Bytes of a stream, in the amounts that are asked for. Lines and small amounts only are kept in memory."""

    def __init__(self, parts: AsyncIterator[bytes]) -> None:
        self._parts = parts
        self._part = memoryview(b"")

    async def read_some(self, most: int) -> bytes:
        """Return 1 to `most` bytes, or none at the end."""
        if not self._part and not await self._fill():
            return b""
        taken, self._part = bytes(self._part[:most]), self._part[most:]
        return taken

    async def read(self, size: int) -> bytes:
        """Return `size` bytes, which must be few, or fewer at the end."""
        data = await self.read_some(size)
        while len(data) < size and (more := await self.read_some(size - len(data))):
            data += more
        return data

    async def rest(self) -> AsyncIterator[bytes]:
        """Return all that follows, in parts of at most 256 KiB."""
        while part := await self.read_some(_PART_BYTES):
            yield part

    async def iterate(self, size: int) -> AsyncIterator[bytes]:
        """Return `size` bytes in parts. Raises FilesRefused if the stream ends before."""
        while size:
            part = await self.read_some(size)
            if not part:
                raise build_invalid("the body ends within a file")
            size -= len(part)
            yield part

    async def read_line(self, limit: int) -> bytes:
        """Return the next line with its line break, or nothing at the end. Raises FilesRefused if it is too long."""
        line = b""
        while True:
            if not self._part and not await self._fill():
                return line
            end = self._find_break(limit + 1 - len(line))
            line += bytes(self._part[:end])
            self._part = self._part[end:]
            if line.endswith(b"\n"):
                return line
            if len(line) > limit:
                raise build_invalid(f"a line of the body has more than {limit} bytes")

    def _find_break(self, most: int) -> int:
        """Return the end of the line in what was received, or of what may belong to it."""
        found = bytes(self._part[:most]).find(b"\n")
        return found + 1 if found >= 0 else min(most, len(self._part))

    async def _fill(self) -> bool:
        while not self._part:
            part = await anext(self._parts, None)
            if part is None:
                return False
            self._part = memoryview(part)
        return True
