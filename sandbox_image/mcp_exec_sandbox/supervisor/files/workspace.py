"""The workspace's files in the working folder: as they were put in place or saved, and what differs from that."""

import contextlib
import hashlib
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from mcp_exec_sandbox.protocol import ARTIFACTS_FOLDER, SERVERS_FOLDER
from mcp_exec_sandbox.supervisor.files.connection import Deadline
from mcp_exec_sandbox.supervisor.files.tree import (
    FolderCursor,
    FolderScan,
    NotPlain,
    Signature,
    open_file,
    scan_folder,
    sign,
    split_path,
)
from mcp_exec_sandbox.supervisor.wrapper_store import HIDDEN_FOLDER

RESERVED = frozenset({SERVERS_FOLDER, HIDDEN_FOLDER, ARTIFACTS_FOLDER})
"""Entries of the working folder that are no part of the workspace. `skills` is none: a job's skills are no files."""
READ_BYTES = 1024 * 1024
TICK_NANOSECONDS = 20_000_000
"""Longest step of a file system's clock. Two changes of a file within it may leave the same times."""


@dataclass(frozen=True, slots=True)
class KeptFile:
    """A file of the workspace: its content, and its state when that was known to be its content."""

    sha256: str
    size: int
    executable: bool
    signature: Signature | None = None
    """None if the state is unknown, or so young that a later change might leave the same times."""

    def has_content_of(self, other: "KeptFile") -> bool:
        """Return whether both are the same for the workspace."""
        return (self.sha256, self.executable) == (other.sha256, other.executable)


@dataclass(frozen=True, kw_only=True)
class WorkspaceVersion:
    """Identity of a version, and the most that a newer one may have."""

    id: str
    """Identity of the workspace at the broker."""
    version: int
    max_files: int
    max_bytes: int
    max_file_bytes: int

    @property
    def tag(self) -> str:
        """The ETag of its manifest."""
        return f'"{self.id}-{self.version}"'


@dataclass(kw_only=True)
class WorkspaceFolder:
    """The working folder, and the version of a workspace that was put into it or saved from it."""

    root: Path
    base: WorkspaceVersion | None = None
    """The version; None if none was put in place."""
    files: dict[str, KeptFile] = field(default_factory=dict)
    """The files of that version by path."""
    is_untouched: bool = False
    """Whether no code has run since the files were saved, so that the folder has exactly these."""

    def scan(self, *, deadline: Deadline, base: WorkspaceVersion | None = None) -> FolderScan:
        """Return the files that belong to the workspace as they are, at most as many as `base` allows.

        Raises:
            TooManyFiles: there are more files or bytes than allowed.
            OSError: the folder can't be read.
        """
        limits = {} if base is None else {"max_files": base.max_files, "max_bytes": base.max_bytes}
        return scan_folder(self.root, skip=RESERVED, deadline=deadline, known=self.files, **limits)

    def identify(self, scan: FolderScan, deadline: Deadline, *, reads_all: bool = False) -> dict[str, KeptFile]:
        """Return the content of each file of a scan. Only files that may have changed are read, unless `reads_all`.

        Files that can't be read, or change meanwhile, are left out of the scan.
        """
        found: dict[str, KeptFile] = {}
        now = time.time_ns()
        with contextlib.closing(FolderCursor(self.root)) as cursor:
            for path in sorted(scan.files):
                known, signature = self.files.get(path), scan.files[path]
                if reads_all or known is None or known.signature != signature:
                    try:
                        known = hash_file(cursor, path, now=now, deadline=deadline)
                    except (OSError, NotPlain) as error:
                        scan.leave_out(path, f"it can't be read: {type(error).__name__}")
                        continue
                found[path] = known
        return found

    def remove(self, paths: Iterable[str]) -> None:
        """Remove files of the workspace, and the folders that are empty then."""
        folders: set[tuple[str, ...]] = set()
        with contextlib.closing(FolderCursor(self.root)) as cursor:
            for path in sorted(paths):
                parts, name = split_path(path)
                self.files.pop(path, None)
                with contextlib.suppress(OSError):
                    os.unlink(name, dir_fd=cursor.open(parts))
                folders.update(parts[:length] for length in range(1, len(parts) + 1))
            for parts in sorted(folders, key=len, reverse=True):
                with contextlib.suppress(OSError):
                    os.rmdir(parts[-1], dir_fd=cursor.open(parts[:-1]))


def hash_file(cursor: FolderCursor, path: str, *, now: int, deadline: Deadline) -> KeptFile:
    """Read a file and return its content. `now` is the time in nanoseconds.

    Raises:
        NotPlain: it is no regular file, or it changes while it is read.
        OSError: it can't be read.
    """
    parts, name = split_path(path)
    digest, size = hashlib.sha256(), 0
    with open_file(cursor.open(parts), name) as (descriptor, status):
        while data := os.read(descriptor, READ_BYTES):
            deadline.check()
            digest.update(data)
            size += len(data)
        signature = sign(os.fstat(descriptor))
    if signature != sign(status) or size != signature.size:
        raise NotPlain(path)
    return KeptFile(
        sha256=digest.hexdigest(),
        size=size,
        executable=signature.executable,
        signature=signature if signature.modified < now - TICK_NANOSECONDS else None,
    )
