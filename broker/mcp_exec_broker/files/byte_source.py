"""Reading of bodies that arrive in parts of any size."""

from collections.abc import AsyncIterator
from typing import Final

from mcp_exec_broker.files.errors import build_invalid

_PART_BYTES: Final = 256 * 1024


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
