"""Tar archives of versions, as a stream."""

import tarfile
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Final

from mcp_exec_broker.files.workspace.manifest import Location, Manifest, VersionFile
from mcp_exec_broker.files.workspace.packs import ContentStream, PackReader

_BLOCK: Final = 512
_END: Final = bytes(2 * _BLOCK)
_REUSED_BYTES: Final = 256 * 1024
"""Size of a content that is read once, whatever the number of files that have it."""


async def write_tar(manifest: Manifest, reader: PackReader, *, prefix: str = "") -> AsyncIterator[bytes]:
    """Yield an archive of a version's files whose paths begin with `prefix`, in the order of their contents."""
    files: defaultdict[str, list[VersionFile]] = defaultdict(list)
    for entry in manifest.files.values():
        if entry.path.startswith(prefix):
            files[entry.sha256].append(entry)
    moment = int(manifest.summary.created_at.timestamp())
    contents = {sha256: manifest.contents[sha256] for sha256 in files if sha256 in manifest.contents}
    for sha256 in files.keys() - contents.keys():  # empty files
        for entry in files[sha256]:
            yield _build_header(entry, moment)
    async for sha256, location, stream in reader.read(contents):
        headers = [_build_header(entry, moment) for entry in files[sha256]]
        if location.size <= _REUSED_BYTES:
            content = await stream.read(location.size) + bytes(-location.size % _BLOCK)
            for header in headers:
                yield header + content
        else:
            async for part in _write_large(headers, location, stream, partial(reader.read, {sha256: location})):
                yield part
    yield _END


async def _write_large(
    headers: list[bytes],
    location: Location,
    stream: ContentStream,
    read_again: Callable[[], AsyncIterator[tuple[str, Location, ContentStream]]],
) -> AsyncIterator[bytes]:
    """Yield files with the same content, which is read once for each of them."""
    padding = bytes(-location.size % _BLOCK)
    yield headers[0]
    async for part in stream.iterate(location.size):
        yield part
    yield padding
    for header in headers[1:]:
        yield header
        async for _, _, again in read_again():
            async for part in again.iterate(location.size):
                yield part
        yield padding


def _build_header(entry: VersionFile, moment: int) -> bytes:
    info = tarfile.TarInfo(entry.path)
    info.size, info.mode, info.mtime = entry.size, entry.mode, moment
    return info.tobuf(tarfile.PAX_FORMAT)
