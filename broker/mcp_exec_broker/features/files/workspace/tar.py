"""Tar archives as streams: read from strangers, and written from versions.

The standard library's reader takes memory as a header demands, and accepts what no workspace has. This one has bounds
for each header, and refuses everything but files and folders in the formats ustar, pax and GNU.
"""

import re
import tarfile
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from mcp_exec_broker.features.files.requests import ByteSource, build_invalid, build_too_large
from mcp_exec_broker.features.files.workspace.manifest import Location, Manifest, VersionFile
from mcp_exec_broker.features.files.workspace.packs import ContentStream, PackReader
from mcp_exec_tools.workspace_files import MAX_PATH_BYTES, check_new_path, check_path

_BLOCK: Final = 512
_MAX_PAX_BYTES: Final = 16 * 1024
_MAX_EXTRAS: Final = 4
"""Most headers that may precede the one of a file."""
_MAX_ENTRIES_PER_FILE: Final = 4
"""Entries of an archive for each file that is allowed: folders count as entries, too."""
_MAX_TRAILER: Final = 1024 * 1024
"""Bytes of zeros that may follow the archive's end: tools fill up their last record."""
_TYPES: Final = {
    b"1": "a hard link",
    b"2": "a symbolic link",
    b"3": "a character device",
    b"4": "a block device",
    b"6": "a pipe",
    b"7": "a contiguous file",
    b"S": "a sparse file",
    b"K": "a link with a long target",
    b"V": "the label of a volume",
    b"M": "a part of a file",
    b"D": "a list of a folder",
}
_MAGICS: Final = {
    b"\x1f\x8b": "gzip",
    b"PK\x03\x04": "zip",
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
}
"""First bytes of archives that are compressed."""
_PAX_RECORD: Final = re.compile(rb"([1-9][0-9]{0,5}) ([^=\n]{1,200})=")
_OCTAL: Final = re.compile(rb"[ \0]*([0-7]*)[ \0]*")
_END: Final = bytes(2 * _BLOCK)
_REUSED_BYTES: Final = 256 * 1024
"""Size of a content that is read once, whatever the number of files that have it."""


@dataclass(frozen=True, kw_only=True)
class TarFile:
    """A file in an archive. Its content must be read before the next file."""

    path: str
    size: int
    mode: int
    parts: AsyncIterator[bytes]


async def read_tar(parts: AsyncIterator[bytes], *, max_files: int) -> AsyncGenerator[TarFile, None]:
    """Yield the files of an archive. Raises FilesRefused, also for an archive without an end."""
    source = ByteSource(parts)
    files = entries = 0
    while True:
        header, extras = await _read_header(source, is_first=entries == 0)
        if header is None:
            await _read_trailer(source)
            return
        entries += 1
        if entries > _MAX_ENTRIES_PER_FILE * max_files + 64:
            raise build_too_large(f"the archive has more than {entries - 1} entries")
        path = extras.get("path") or _read_name(header)
        size = int(extras["size"]) if "size" in extras else _read_number(header[124:136], "size")
        kind = header[156:157]
        if kind == b"5":
            _check_folder(path, size)
            continue
        if kind not in (b"0", b"\0"):
            raise build_invalid(
                f"{path[:100]!r} in the archive is {_TYPES.get(kind, 'an entry of unknown type')}; allowed are files "
                "and folders"
            )
        path = path.removeprefix("./")
        _check(check_new_path, path)
        files += 1
        if files > max_files:
            raise build_too_large(f"the archive has more than {max_files} files, which is the limit")
        mode = 0o755 if _read_number(header[100:108], "mode") & 0o100 else 0o644
        yield TarFile(path=path, size=size, mode=mode, parts=source.iterate(size))
        await source.read(-size % _BLOCK)


async def _read_header(source: ByteSource, *, is_first: bool) -> tuple[bytes | None, dict[str, str]]:
    """Return the next header and what those before it say about its entry; None at the archive's end."""
    extras: dict[str, str] = {}
    for _ in range(_MAX_EXTRAS + 1):
        header = await source.read(_BLOCK)
        if is_first:
            _check_format(header)
        if len(header) == _BLOCK and not any(header) and not extras:
            return None, {}
        if len(header) < _BLOCK:
            raise build_invalid("the archive has no end: it was cut off")
        _check_sum(header)
        kind, size = header[156:157], _read_number(header[124:136], "size")
        if kind not in (b"x", b"g", b"L"):
            return header, extras
        if size > _MAX_PAX_BYTES:
            raise build_too_large(f"a header of the archive has {size} bytes, allowed are {_MAX_PAX_BYTES}")
        data = await source.read(size)
        await source.read(-size % _BLOCK)
        if kind == b"L":
            extras["path"] = _decode(data.rstrip(b"\0"))
        else:
            found = _parse_pax(data)
            if kind == b"g" and found:
                raise build_invalid("the archive has a global header that names files, which is not supported")
            extras |= found
    raise build_invalid(f"an entry of the archive has more than {_MAX_EXTRAS} headers")


def _check_format(header: bytes) -> None:
    for magic, name in _MAGICS.items():
        if header.startswith(magic):
            raise build_invalid(f"the archive is compressed with {name}: send an uncompressed tar archive")


def _check_sum(header: bytes) -> None:
    expected = 256 + sum(header[:148]) + sum(header[156:])
    if _read_number(header[148:156], "checksum") != expected:
        raise build_invalid("the archive is damaged, or no tar archive: the checksum of a header is wrong")


def _read_number(text: bytes, name: str) -> int:
    if text[0] == 0o200:  # GNU: a binary number
        number = int.from_bytes(text[1:], "big")
    else:
        match = _OCTAL.fullmatch(text)
        if match is None:
            raise build_invalid(f"a header of the archive has no valid number as {name}")
        number = int(match[1] or b"0", 8)
    if number >= 2**53:
        raise build_too_large(f"a header of the archive has {number} as {name}")
    return number


def _read_name(header: bytes) -> str:
    name = header[:100].partition(b"\0")[0]
    prefix = header[345:500].partition(b"\0")[0] if header[257:263] == b"ustar\0" else b""
    return _decode(prefix + b"/" + name if prefix else name)


def _decode(name: bytes) -> str:
    if len(name) > MAX_PATH_BYTES + 2:
        raise build_invalid(f"a path in the archive has {len(name)} bytes, allowed are {MAX_PATH_BYTES}")
    try:
        return name.decode()
    except UnicodeDecodeError:
        raise build_invalid(f"a path in the archive is not UTF-8: {name[:80]!r}") from None


def _parse_pax(data: bytes) -> dict[str, str]:
    """Return path and size of a pax header. Raises FilesRefused if it describes something else than a file."""
    found: dict[str, str] = {}
    position = 0
    while position < len(data):
        match = _PAX_RECORD.match(data, position)
        end = position + int(match[1]) if match else 0
        if match is None or not match.end() < end <= len(data) or data[end - 1 : end] != b"\n":
            raise build_invalid("a pax header of the archive is malformed")
        key, value = match[2], data[match.end() : end - 1]
        if key.startswith((b"GNU.sparse", b"SCHILY.realsize")):
            raise build_invalid("the archive has a sparse file; allowed are files and folders")
        if key in (b"path", b"size", b"linkpath", b"hdrcharset"):
            _take_record(key.decode(), value, found)
        position = end
    return found


def _take_record(key: str, value: bytes, found: dict[str, str]) -> None:
    if key in found or key in ("linkpath", "hdrcharset"):
        raise build_invalid(f"a pax header of the archive has {key!r}, or has it twice")
    if key == "size":
        if not value.isdigit() or len(value) > 15:
            raise build_invalid("a pax header of the archive has no valid size")
        found[key] = value.decode()
    else:
        found[key] = _decode(value)


def _check_folder(path: str, size: int) -> None:
    """Raise FilesRefused unless a folder has an allowed path. It is not stored: files make their folders."""
    name = path.removeprefix("./").rstrip("/")
    if name not in ("", "."):
        _check(check_path, name)
    if size:
        raise build_invalid(f"folder {path[:100]!r} in the archive has content")


def _check(rule: Callable[[str], None], path: str) -> None:
    try:
        rule(path)
    except ValueError as error:
        raise build_invalid(f"a path in the archive is not allowed: {error}") from None


async def _read_trailer(source: ByteSource) -> None:
    """Read to the end of the stream. Raises FilesRefused if anything but zeros follows."""
    size = 0
    while part := await source.read_some(_MAX_TRAILER):
        size += len(part)
        if any(part) or size > _MAX_TRAILER:
            raise build_invalid("something follows the archive's end")


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
