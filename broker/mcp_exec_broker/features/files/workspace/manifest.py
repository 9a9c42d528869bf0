"""Versions of workspaces: their files, and where the contents are."""

import hashlib
import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from io import BytesIO
from typing import Any, Final, NamedTuple

from mcp_exec_api.wire.workspaces import WorkspaceFile, WorkspaceVersion
from mcp_exec_broker.features.files.requests import build_invalid
from mcp_exec_tools.workspace_files import MODES, check_path, check_paths, is_digest

EMPTY_DIGEST: Final = hashlib.sha256().hexdigest()
"""Digest of empty content, which is stored nowhere."""
_FORMAT: Final = 1
_FILES_PER_LINE: Final = 500
"""Files in one line of JSON: parsing one holds up other threads for less than a millisecond."""
_FILE_BYTES: Final = 600
"""Memory of a file and its location without the path."""


class Location(NamedTuple):
    """Where a content is."""

    pack: str
    offset: int
    size: int


class VersionFile(NamedTuple):
    """A file, as senders name it."""

    path: str
    size: int
    sha256: str
    mode: int

    @property
    def state(self) -> tuple[str, int]:
        """What makes a file another one."""
        return self.sha256, self.mode

    def to_line(self) -> str:
        """Return the file as a line of JSON, like that of a WorkspaceFile."""
        path = json.dumps(self.path, ensure_ascii=False)
        return f'{{"path":{path},"size":{self.size},"sha256":"{self.sha256}","mode":{self.mode}}}\n'


Files = Mapping[str, VersionFile]
"""Files by path."""


@dataclass(frozen=True, kw_only=True)
class VersionSummary:
    """What is known of a version without its files."""

    version: int
    created_at: datetime
    files: int
    bytes: int
    changed_files: int
    execution: str
    """Uid of the execution that committed it, or empty."""
    digest: str
    """Digest of the files that the execution sent. It identifies a repeated commit."""
    restored: int | None
    packs: Mapping[str, int]
    """Bytes of its contents in each pack."""

    def to_info(self) -> WorkspaceVersion:
        """Return it as gateway and operator get it."""
        return WorkspaceVersion(
            version=self.version,
            created_at=self.created_at,
            files=self.files,
            bytes=self.bytes,
            changed_files=self.changed_files,
            execution=self.execution,
            restored=self.restored,
        )


_NO_VERSION: Final = VersionSummary(
    version=0,
    created_at=datetime.fromtimestamp(0, UTC),
    files=0,
    bytes=0,
    changed_files=0,
    execution="",
    digest="",
    restored=None,
    packs={},
)


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """A version with its files."""

    summary: VersionSummary = _NO_VERSION
    """What is known of it. Version 0 has no files and is stored nowhere."""
    files: Files = field(default_factory=dict)
    """Files in the order of their paths."""
    contents: Mapping[str, Location] = field(default_factory=dict)
    """Where the contents are, by their digests."""

    @property
    def version(self) -> int:
        """Number of the version."""
        return self.summary.version

    @cached_property
    def total_bytes(self) -> int:
        """Bytes of all files."""
        return sum(entry.size for entry in self.files.values())

    @cached_property
    def memory(self) -> int:
        """Memory that it takes, about."""
        return 2000 + sum(_FILE_BYTES + sys.getsizeof(path) for path in self.files)

    def encode(self) -> bytes:
        """Return the object of the store: a line about the version, lines of files, and a checksum."""
        summary = {**vars(self.summary), "created_at": self.summary.created_at.isoformat(), "format": _FORMAT}
        entries = list(self.files.values())
        numbers = {pack: number for number, pack in enumerate(self.summary.packs)}
        lines = [_encode_line(summary)]
        for start in range(0, len(entries), _FILES_PER_LINE):
            chunk = entries[start : start + _FILES_PER_LINE]
            lines.append(_encode_line([self._build_row(entry, numbers) for entry in chunk]))
        digest = hashlib.sha256()
        for line in lines:
            digest.update(line)
        return b"".join([*lines, digest.hexdigest().encode() + b"\n"])

    def _build_row(self, entry: VersionFile, numbers: Mapping[str, int]) -> list[Any]:
        location = self.contents.get(entry.sha256)
        return [*entry, -1, 0] if location is None else [*entry, numbers[location.pack], location.offset]


def _encode_line(content: object) -> bytes:
    # characters as they are: escaped, one may take three times its bytes
    return (json.dumps(content, separators=(",", ":"), ensure_ascii=False) + "\n").encode()


def decode_manifest(data: bytes) -> Manifest:
    """Return the manifest in an object of the store. Raises ValueError."""
    if data[-65:] != hashlib.sha256(memoryview(data)[:-65]).hexdigest().encode() + b"\n":
        raise ValueError("the checksum of a version is wrong")
    lines = BytesIO(data)  # copies one at a time
    summary = decode_summary(lines.readline())
    packs = list(summary.packs)
    files: dict[str, VersionFile] = {}
    contents: dict[str, Location] = {}
    while lines.tell() < len(data) - 65:
        for path, size, sha256, mode, pack, offset in json.loads(lines.readline()):
            files[path] = VersionFile(path, size, sha256, mode)
            if pack >= 0:
                contents[sha256] = Location(packs[pack], offset, size)
    return Manifest(summary=summary, files=files, contents=contents)


def decode_summary(line: bytes) -> VersionSummary:
    """Return the summary in the first line of a version's object. Raises ValueError."""
    fields: dict[str, Any] = json.loads(line)
    if fields.pop("format") != _FORMAT:
        raise ValueError("a version has a format that this broker cannot read")
    return VersionSummary(**{**fields, "created_at": datetime.fromisoformat(fields["created_at"])})


def parse_entry(line: bytes) -> VersionFile:
    """Return the file in a line of a commit. Raises FilesRefused."""
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        raise build_invalid("a line of the commit is not JSON") from None
    if not isinstance(fields, dict) or not fields.keys() <= WorkspaceFile.model_fields.keys():
        raise build_invalid("a line of the commit has other fields than path, size, sha256 and mode")
    path, size, sha256, mode = (fields.get(name) for name in ("path", "size", "sha256", "mode"))
    if not isinstance(path, str):
        raise build_invalid("path: must be a text")
    return check_entry(VersionFile(path, size, sha256, 0o644 if mode is None else mode))  # type: ignore[arg-type]


def check_entry(entry: VersionFile) -> VersionFile:
    """Return a file whose fields may have any type but the path. Raises FilesRefused."""
    try:
        check_path(entry.path)
    except ValueError as error:
        raise build_invalid(error) from None
    if type(entry.size) is not int or not 0 <= entry.size < 2**53:
        raise build_invalid(f"size: must be a number of bytes, at {entry.path[:80]!r}")
    if type(entry.sha256) is not str or not is_digest(entry.sha256):
        raise build_invalid(f"sha256: must be 64 lower-case hexadecimal digits, at {entry.path[:80]!r}")
    if (entry.size == 0) != (entry.sha256 == EMPTY_DIGEST):
        raise build_invalid(f"sha256: is not that of {entry.size} bytes, at {entry.path[:80]!r}")
    if type(entry.mode) is not int or entry.mode not in MODES:
        raise build_invalid(f"mode: must be one of {', '.join(map(str, MODES))}, at {entry.path[:80]!r}")
    return entry


def index_files(entries: Iterable[VersionFile]) -> dict[str, VersionFile]:
    """Return files by path, in the order of paths. Raises FilesRefused if two do not go together."""
    listed = sorted(entries)
    try:
        check_paths(entry.path for entry in listed)
    except ValueError as error:
        raise build_invalid(error) from None
    return {entry.path: entry for entry in listed}


def compute_digest(files: Files) -> str:
    """Return the digest of files in the order of their paths."""
    digest = hashlib.sha256()
    for entry in files.values():
        digest.update(json.dumps(entry).encode())
    return digest.hexdigest()
