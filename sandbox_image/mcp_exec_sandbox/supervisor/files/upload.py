"""Upload of file contents that the broker does not have."""

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from mcp_exec_sandbox.supervisor.files.connection import FilesConnection, TransferFailed
from mcp_exec_sandbox.supervisor.files.paths import FolderCursor, NotPlain, open_file, split_path
from mcp_exec_tools.workspace_files import build_frame_head

MISSING_PATH = "/v1/files/blobs/missing"
BLOBS_PATH = "/v1/files/blobs"
BLOBS_PER_REQUEST = 10_000
UPLOAD_BYTES = 32 * 1024 * 1024
"""Bytes in one upload before another begins: the broker limits the time of each."""
UNASKED_BYTES = 64 * 1024
"""Contents of at most this size together are sent at once, without a request for those that are missing."""
READ_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class Content:
    """Content of a file: its digest, its size and a path below the folder that it is read from."""

    sha256: str
    size: int
    path: str


def upload_blobs(root: Path, blobs: Mapping[str, Content], client: FilesConnection) -> None:
    """Send the contents, by digest, that the broker does not have.

    Raises:
        TransferRefused: the broker refused.
        TransferFailed: the broker did not confirm, or a file has changed since it was hashed.
        OutOfTime: it took too long.
    """
    wanted = sorted(blobs)
    if sum(blob.size for blob in blobs.values()) > UNASKED_BYTES:
        wanted = [digest for digest in _find_missing(wanted, client) if digest in blobs]
    for batch in _split(sorted((blobs[digest] for digest in wanted), key=lambda blob: blob.path)):
        size = sum(len(build_frame_head(blob.sha256, blob.size)) + blob.size for blob in batch)
        client.upload(BLOBS_PATH, _read_frames(root, batch), size)


def _split(blobs: list[Content]) -> Iterator[list[Content]]:
    batch, size = list[Content](), 0
    for blob in blobs:
        batch.append(blob)
        size += blob.size
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
        for blob in blobs:
            small += build_frame_head(blob.sha256, blob.size)
            for data in _read_content(cursor, blob):
                # small files travel together
                small += data
                if len(small) >= READ_BYTES:
                    yield bytes(small)
                    small.clear()
        yield bytes(small)


def _read_content(cursor: FolderCursor, blob: Content) -> Iterator[bytes]:
    """Yield the bytes of a file, which the broker compares with the digest."""
    parts, name = split_path(blob.path)
    left = blob.size
    try:
        with open_file(cursor.open(parts), name) as (descriptor, _):
            while left and (data := os.read(descriptor, min(left, READ_BYTES))):
                left -= len(data)
                yield data
    except (OSError, NotPlain) as error:
        raise TransferFailed(f"{blob.path[:200]!r} changed while it was saved") from error
    if left:
        raise TransferFailed(f"{blob.path[:200]!r} changed while it was saved")
