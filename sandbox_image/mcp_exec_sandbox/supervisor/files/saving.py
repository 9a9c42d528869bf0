"""Upload of a workspace after the run: only changed files are read, only new contents travel, all of it or nothing."""

import contextlib
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from mcp_exec_sandbox.supervisor.files.connection import (
    PASSING,
    Deadline,
    FilesConnection,
    TransferFailed,
    encode_line,
    repeat,
)
from mcp_exec_sandbox.supervisor.files.workspace import (
    FolderCursor,
    KeptFile,
    NotPlain,
    TooManyFiles,
    WorkspaceFolder,
    WorkspaceVersion,
    open_file,
    split_path,
)
from mcp_exec_tools.workspace_files import RESERVED, build_frame_head

MISSING_PATH = "/v1/files/blobs/missing"
BLOBS_PATH = "/v1/files/blobs"
BLOBS_PER_REQUEST = 10_000
UPLOAD_BYTES = 32 * 1024 * 1024
"""Bytes in one upload before another begins: the broker limits the time of each."""
UNASKED_BYTES = 64 * 1024
"""Contents of at most this size together are sent at once, without a request for those that are missing."""
READ_BYTES = 256 * 1024
COMMIT_PATH = "/v1/files/commit"
_PASSING = PASSING | {"MissingContents"}
"""Reasons of refusals that another attempt may not meet: the last one, if a restarted broker has lost contents."""


Content = tuple[str, KeptFile]
"""Content of a file, with the path below the folder that it is read from."""


def upload_blobs(root: Path, blobs: Mapping[str, Content], client: FilesConnection) -> None:
    """Send the contents, by digest, that the broker does not have.

    Raises:
        TransferRefused: the broker refused.
        TransferFailed: the broker did not confirm, or a file has changed since it was hashed.
        OutOfTime: it took too long.
    """
    wanted = sorted(blobs)
    if sum(file.size for _, file in blobs.values()) > UNASKED_BYTES:
        wanted = [digest for digest in _find_missing(wanted, client) if digest in blobs]
    for batch in _split(sorted((blobs[digest] for digest in wanted), key=lambda blob: blob[0])):
        size = sum(len(build_frame_head(file.sha256, file.size)) + file.size for _, file in batch)
        client.upload(BLOBS_PATH, _read_frames(root, batch), size)


def _split(blobs: list[Content]) -> Iterator[list[Content]]:
    batch, size = list[Content](), 0
    for blob in blobs:
        batch.append(blob)
        size += blob[1].size
        if size >= UPLOAD_BYTES or len(batch) >= BLOBS_PER_REQUEST:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _find_missing(digests: list[str], client: FilesConnection) -> list[str]:
    missing: list[str] = []
    for start in range(0, len(digests), BLOBS_PER_REQUEST):
        answer = client.call(MISSING_PATH, {"sha256": digests[start : start + BLOBS_PER_REQUEST]})
        listed = answer.get("missing")
        if not isinstance(listed, list) or not all(isinstance(each, str) for each in listed):
            raise TransferFailed("the broker's list of missing files is invalid")
        missing += listed
    return missing


def _read_frames(root: Path, blobs: list[Content]) -> Iterator[bytes]:
    with contextlib.closing(FolderCursor(root)) as cursor:
        small = bytearray()
        for path, file in blobs:
            small += build_frame_head(file.sha256, file.size)
            for data in _read_content(cursor, path, file.size):
                # small files travel together
                small += data
                if len(small) >= READ_BYTES:
                    yield bytes(small)
                    small.clear()
        yield bytes(small)


def _read_content(cursor: FolderCursor, path: str, left: int) -> Iterator[bytes]:
    """Yield the bytes of a file, which the broker compares with the digest."""
    parts, name = split_path(path)
    try:
        with open_file(cursor.open(parts), name) as (descriptor, _):
            while left and (data := os.read(descriptor, min(left, READ_BYTES))):
                left -= len(data)
                yield data
    except (OSError, NotPlain) as error:
        raise TransferFailed(f"{path[:200]!r} changed while it was saved") from error
    if left:
        raise TransferFailed(f"{path[:200]!r} changed while it was saved")


SMALL_FILES, SMALL_BYTES = 256, 4 * 1024 * 1024
"""Of a workspace with at most so many files and bytes all files are read: in gVisor a write through a memory map
changes no time of its file."""


@dataclass(frozen=True, kw_only=True)
class SavedWorkspace:
    """Result of a save. `version` is the newest one, also if nothing has changed."""

    version: int
    changed_files: int
    bytes: int
    left_out: int
    notes: list[str] = field(default_factory=list)


def save_workspace(folder: WorkspaceFolder, client: FilesConnection, *, deadline: Deadline) -> SavedWorkspace:
    """Commit what differs from the version that was put in place.

    Raises:
        TooManyFiles: there are more files or bytes than the workspace may have.
        TransferRefused: the broker refused.
        TransferFailed: the broker did not confirm.
        OutOfTime: it took too long.
        OSError: the folder can't be read.
    """
    base = folder.base
    assert base is not None  # noqa: S101 - a workspace was put in place
    scan = folder.scan(deadline=deadline, base=base)
    large = [path for path, signature in scan.files.items() if signature.size > base.max_file_bytes]
    if large:
        raise TooManyFiles(f"{min(large)[:200]!r} has more than {base.max_file_bytes} bytes")
    is_small = len(scan.files) <= SMALL_FILES and scan.bytes <= SMALL_BYTES
    found = folder.identify(scan, deadline, reads_all=is_small)
    # files with reserved names, which earlier releases accepted, are never in place
    found |= {path: file for path, file in folder.files.items() if path.partition("/")[0] in RESERVED}
    changed = len(found.keys() | folder.files.keys()) - _count_same(folder.files, found)
    version, merged = _commit_with_retries(folder, base, found, client, deadline) if changed else (base.version, False)
    # of a version with changes of others, too, this folder does not have all files
    folder.base, folder.files = None if merged else replace(base, version=version), found
    folder.is_untouched = not merged
    total = sum(file.size for file in found.values())
    return SavedWorkspace(version=version, changed_files=changed, bytes=total, left_out=scan.left_out, notes=scan.notes)


def _count_same(before: Mapping[str, KeptFile], after: Mapping[str, KeptFile]) -> int:
    return sum(
        1
        for path, file in after.items()
        if (known := before.get(path)) is not None and (known is file or known.has_content_of(file))
    )


def _commit_with_retries(
    folder: WorkspaceFolder,
    base: WorkspaceVersion,
    found: Mapping[str, KeptFile],
    client: FilesConnection,
    deadline: Deadline,
) -> tuple[int, bool]:
    known: Collection[str] = {file.sha256 for file in folder.files.values()}

    def attempt() -> tuple[int, bool]:
        nonlocal known
        assumed, known = known, ()  # what a restarted broker has received need not be sent again, but must be asked
        return _commit(folder, base, found, client, known=assumed)

    return repeat(attempt, deadline, passing=_PASSING)


def _commit(
    folder: WorkspaceFolder,
    base: WorkspaceVersion,
    found: Mapping[str, KeptFile],
    client: FilesConnection,
    *,
    known: Collection[str],
) -> tuple[int, bool]:
    """Send contents that are not `known`, then the list of all files. A repetition has the same answer.

    Return the version, and whether it has changes of others as well.
    """
    blobs = {file.sha256: (path, file) for path, file in found.items() if file.sha256 not in known}
    upload_blobs(folder.root, blobs, client)
    lines = [encode_line({"id": base.id, "base": base.version, "files": len(found)})]
    lines += [_describe(path, file) for path, file in sorted(found.items())]
    answer = client.upload(COMMIT_PATH, [b"".join(lines)], sum(map(len, lines)))
    version = answer.get("version")
    if type(version) is not int or version < base.version:
        raise TransferFailed("the broker's answer has no version")
    return version, answer.get("merged") is True


def _describe(path: str, file: KeptFile) -> bytes:
    mode = 0o755 if file.executable else 0o644
    return encode_line({"path": path, "size": file.size, "sha256": file.sha256, "mode": mode})
