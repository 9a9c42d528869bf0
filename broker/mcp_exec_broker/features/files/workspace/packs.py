"""Packs: objects with many contents, one after the other.

10,000 small files are one object and one sync, not 10,000. A content is found only after its pack is durable and its
digest was verified. A commit moves contents out of packs that versions hardly use any more, so that the collector can
remove these.
"""

import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from operator import itemgetter
from secrets import token_hex
from types import TracebackType
from typing import Final, Self

from mcp_exec_broker.features.files.requests import build_invalid
from mcp_exec_broker.features.files.storage import ObjectWriter, Storage
from mcp_exec_broker.features.files.workspace.manifest import Location, Manifest

PACK_BYTES: Final = 16 * 1024 * 1024
"""Size of a complete pack. Larger contents have packs of their own, so that no others are kept with them."""
_LARGE_BYTES: Final = PACK_BYTES // 4
"""Size of a content that gets a pack of its own. Smaller ones of unknown digest are kept in memory."""
STREAM_BYTES: Final = 2 * _LARGE_BYTES
"""Memory of a content of unknown size."""
_BUFFER_BYTES: Final = 256 * 1024
_MAX_GAP: Final = 64 * 1024
"""Bytes between two contents that are read and dropped, because another request takes longer."""
MOVED_BYTES: Final = 8 * 1024 * 1024
"""Most bytes that one commit moves."""
_MOVED_PACKS: Final = 32
"""Most packs that one commit moves contents from."""
_MANY_PACKS: Final = 32
"""Packs of a version; if there are more, small ones are joined."""


def choose_pack() -> str:
    """Return the name of a new pack."""
    return token_hex(12)


@dataclass(kw_only=True, eq=False)
class PackWriter:
    """Writes contents into packs of a workspace. A context that fails drops the pack that is not complete."""

    storage: Storage
    folder: str
    reserve: Callable[[int], None]
    """Called with the size of each part before it is written, and with a negative one if it is dropped. Raises
    FilesRefused if the owner may not store as much."""
    is_stored: Callable[[str], bool] = lambda sha256: False
    """Returns whether a content needs no other copy."""
    stored: dict[str, Location] = field(default_factory=dict)
    """Contents in packs that are durable."""
    _open: dict[str, Location] = field(default_factory=dict)
    """Contents in the pack that is being written."""
    _writer: ObjectWriter | None = None
    _pack: str = ""
    _size: int = 0
    """Bytes of the pack that is being written."""
    _buffer: bytearray = field(default_factory=bytearray)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            await self._finish_pack()
        elif self._writer is not None:
            await self._writer.abort()
            self.reserve(-self._size)

    async def add(self, sha256: str, size: int, parts: AsyncIterator[bytes]) -> None:
        """Read a content of `size` bytes and write it. Raises FilesRefused if it has another digest."""
        is_needed = size > 0 and sha256 not in self._open and sha256 not in self.stored and not self.is_stored(sha256)
        if is_needed and self._size and (size >= _LARGE_BYTES or self._size + size > PACK_BYTES):
            await self._finish_pack()
        offset, digest, received = self._size, hashlib.sha256(), 0
        async for part in parts:
            digest.update(part)
            received += len(part)
            if is_needed:
                await self._write(part)
        if received != size or digest.hexdigest() != sha256:
            raise build_invalid(f"a content of {received} bytes has not the digest {sha256} that was sent with it")
        if is_needed:
            self._open[sha256] = Location(self._pack, offset, size)
            if size >= _LARGE_BYTES:
                await self._finish_pack()

    async def add_bytes(self, content: bytes) -> str:
        """Write a content; return its digest."""
        sha256 = hashlib.sha256(content).hexdigest()
        await self.add(sha256, len(content), iterate_bytes(content))
        return sha256

    async def add_stream(
        self, parts: AsyncIterator[bytes], *, max_bytes: int, refuse: Callable[[], Exception]
    ) -> tuple[str, int]:
        """Write a content of unknown size and digest, in a pack of its own if it is not small; return both.

        Raises what `refuse` returns if it has more than `max_bytes`.
        """
        head = bytearray()
        async for part in parts:
            head += part
            if len(head) > _LARGE_BYTES:
                break
        else:
            if len(head) > max_bytes:
                raise refuse()
            return await self.add_bytes(bytes(head)), len(head)
        await self._finish_pack()
        digest, size = hashlib.sha256(), 0

        async def take(part: bytes) -> None:
            nonlocal size
            size += len(part)
            if size > max_bytes:
                raise refuse()
            digest.update(part)
            await self._write(part)

        await take(bytes(head))
        async for part in parts:
            await take(part)
        sha256 = digest.hexdigest()
        self._open[sha256] = Location(self._pack, 0, size)
        await self._finish_pack()
        return sha256, size

    async def _write(self, part: bytes) -> None:
        self.reserve(len(part))
        if self._writer is None:
            self._pack, self._size = choose_pack(), 0
            self._writer = self.storage.open_writer(f"{self.folder}/{self._pack}")
        self._size += len(part)
        self._buffer += part
        if len(self._buffer) >= _BUFFER_BYTES:
            await self._flush()

    async def _flush(self) -> None:
        if self._buffer and self._writer is not None:
            data, self._buffer = bytes(self._buffer), bytearray()
            await self._writer.write(data)

    async def _finish_pack(self) -> None:
        if self._writer is None:
            return
        await self._flush()
        await self._writer.commit()
        self._writer, self._size = None, 0
        self.stored |= self._open
        self._open = {}


class ContentStream:
    """Contents of one pack, in the order of their places. Each is read before the next, or left out."""

    def __init__(self, parts: AsyncGenerator[bytes, None], start: int) -> None:
        self._parts = parts
        self._position = start
        self._part = memoryview(b"")

    async def read(self, size: int) -> bytes:
        """Return the next `size` bytes, which should be few."""
        if len(self._part) >= size:  # mostly, if contents are small
            return bytes(self._cut(size))
        return b"".join([bytes(part) async for part in self.iterate(size)])

    async def iterate(self, size: int) -> AsyncIterator[bytes]:
        """Return the next `size` bytes in parts."""
        while size > 0:
            if not self._part:
                self._part = memoryview(await anext(self._parts))
            part = self._cut(size)
            size -= len(part)
            yield bytes(part)

    async def skip_to(self, offset: int) -> None:
        """Drop the bytes before an offset in the pack."""
        async for _ in self.iterate(offset - self._position):
            pass

    async def close(self) -> None:
        """End the request."""
        await self._parts.aclose()

    def _cut(self, size: int) -> memoryview:
        part, self._part = self._part[:size], self._part[size:]
        self._position += len(part)
        return part


@dataclass(frozen=True, kw_only=True)
class PackReader:
    """Reads contents of a workspace."""

    storage: Storage
    folder: str

    async def read(self, contents: Mapping[str, Location]) -> AsyncGenerator[tuple[str, Location, ContentStream], None]:
        """Yield digest, place and stream of each content, sorted by place. Neighbours are read with one request."""
        for run in _plan_runs(contents):
            first, last = run[0][1], run[-1][1]
            parts = self.storage.stream(f"{self.folder}/{first.pack}", first.offset, last.offset + last.size)
            stream = ContentStream(parts, first.offset)
            try:
                for sha256, location in run:
                    await stream.skip_to(location.offset)
                    yield sha256, location, stream
            finally:
                await stream.close()


def _plan_runs(contents: Mapping[str, Location]) -> Iterator[list[tuple[str, Location]]]:
    """Yield contents that one request reads."""
    run: list[tuple[str, Location]] = []
    for sha256, location in sorted(contents.items(), key=itemgetter(1)):
        if run:
            last = run[-1][1]
            if location.pack != last.pack or not 0 <= location.offset - (last.offset + last.size) <= _MAX_GAP:
                yield run
                run = []
        run.append((sha256, location))
    if run:
        yield run


async def iterate_bytes(content: bytes) -> AsyncIterator[bytes]:
    """Return a content as a stream of one part."""
    yield content


async def compact(manifest: Manifest, reader: PackReader, writer: PackWriter) -> Manifest:
    """Return the manifest with contents in new packs, or itself if nothing is to be moved. Raises FilesRefused."""
    sizes = {item.key.rpartition("/")[2]: item.size async for item in reader.storage.list_objects(reader.folder)}
    packs = choose_packs(manifest.summary.packs, sizes)
    moved = {sha256: location for sha256, location in manifest.contents.items() if location.pack in packs}
    if not moved:
        return manifest
    async with writer:
        async for sha256, location, stream in reader.read(moved):
            await writer.add(sha256, location.size, stream.iterate(location.size))
    contents = {**manifest.contents, **writer.stored}
    return replace(manifest, contents=contents, summary=replace(manifest.summary, packs=count_bytes(contents)))


def choose_packs(used: Mapping[str, int], sizes: Mapping[str, int]) -> set[str]:
    """Return the packs whose contents should be moved: those with much waste, and small ones if there are many."""
    chosen: set[str] = set()
    moved = 0
    surplus = len(used) - _MANY_PACKS
    for pack, live in sorted(used.items(), key=lambda item: item[1]):
        if moved + live > MOVED_BYTES or len(chosen) >= _MOVED_PACKS:
            break
        if live * 2 < sizes.get(pack, 0) or len(chosen) <= surplus:
            chosen.add(pack)
            moved += live
    return chosen if len(chosen) > 1 or any(used[pack] * 2 < sizes.get(pack, 0) for pack in chosen) else set()


def count_bytes(contents: Mapping[str, Location]) -> dict[str, int]:
    """Return the bytes of contents in each pack."""
    packs: dict[str, int] = {}
    for location in contents.values():
        packs[location.pack] = packs.get(location.pack, 0) + location.size
    return packs
