"""The files of the working folder: a bounded walk that follows no links, and what differs from the workspace."""

import contextlib
import hashlib
import os
import stat
import time
from collections.abc import Collection, Container, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from mcp_exec_sandbox.supervisor.files.connection import Deadline
from mcp_exec_tools.workspace_files import MAX_PATH_DEPTH, RESERVED, check_path

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
MAX_ENTRIES = 100_000
"""Files, folders and others that a walk reads at most."""
ENTRIES_PER_CHECK = 256
MAX_NOTES = 10
_KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFBLK: "a device",
    stat.S_IFCHR: "a device",
}


class NotPlain(Exception):
    """The object at a path is no regular file, or no folder."""


def find_path_problem(path: str) -> str:
    """Return why a path is not allowed in a workspace, or an empty text."""
    try:
        check_path(path)
    except ValueError as error:
        return str(error)
    return ""


@contextmanager
def open_folder(root: Path, parts: tuple[str, ...] = ()) -> Iterator[int]:
    """Open a folder below `root` without following links. Raises OSError."""
    descriptor = os.open(root, _FOLDER)
    try:
        for part in parts:
            following = os.open(part, _FOLDER, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = following
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def open_file(folder: int, name: str) -> Iterator[tuple[int, os.stat_result]]:
    """Open a regular file of an open folder to read it, and yield its descriptor and state.

    Raises:
        NotPlain: it is a link, a folder, a device, a pipe or a socket.
        OSError: it can't be opened.
    """
    try:
        descriptor = os.open(name, _FILE, dir_fd=folder)
    except OSError as error:
        if is_plain_file(folder, name):
            raise
        raise NotPlain(name) from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise NotPlain(name)
        yield descriptor, status
    finally:
        os.close(descriptor)


def is_plain_file(folder: int, name: str) -> bool:
    """Return whether a name in an open folder is a regular file."""
    try:
        return stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except OSError:
        return False


class FolderCursor:
    """The folder in use below a root. Files in the order of their paths open each folder about once."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._parts: tuple[str, ...] | None = None
        self._descriptor = -1

    def open(self, parts: tuple[str, ...], *, create: bool = False) -> int:
        """Return the descriptor of a folder, valid until the next call. Raises OSError."""
        if parts != self._parts:
            self.close()
            if create:
                _make_folders(self._root, parts)
            with open_folder(self._root, parts) as descriptor:
                self._descriptor = os.dup(descriptor)
            self._parts = parts
        return self._descriptor

    def close(self) -> None:
        """Close the folder in use."""
        if self._parts is not None:
            os.close(self._descriptor)
            self._parts = None


def create_file(folder: int, name: str, *, executable: bool) -> int:
    """Create a file in an open folder in place of any other that is not a folder. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)
    return os.open(name, _NEW_FILE, 0o755 if executable else 0o644, dir_fd=folder)


def split_path(path: str) -> tuple[tuple[str, ...], str]:
    """Return the folders of a path and its last part."""
    *folders, name = path.split("/")
    return tuple(folders), name


def _make_folders(root: Path, parts: tuple[str, ...]) -> None:
    """Make the folders of a path. What is in the way and no folder is removed."""
    for depth, name in enumerate(parts):
        with open_folder(root, parts[:depth]) as parent:
            try:
                os.mkdir(name, 0o755, dir_fd=parent)
            except FileExistsError:
                if not stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
                    os.unlink(name, dir_fd=parent)
                    os.mkdir(name, 0o755, dir_fd=parent)


class TooManyFiles(Exception):
    """The folder has more files or bytes than allowed. The text says which."""


class Signature(NamedTuple):
    """State of a file that shows a change of it without reading it. No system call of code can restore it."""

    size: int
    modified: int
    changed: int
    inode: int
    executable: bool


@dataclass(kw_only=True)
class FolderScan:
    """Findings of a walk."""

    files: dict[str, Signature] = field(default_factory=dict)
    """Regular files by path."""
    bytes: int = 0
    left_out: int = 0
    """Number of entries that are left out."""
    notes: list[str] = field(default_factory=list)
    """The first entries that are left out, each with the reason."""

    def leave_out(self, path: str, problem: str) -> None:
        """Note that an entry is left out."""
        self.left_out += 1
        if len(self.notes) < MAX_NOTES:
            self.notes.append(f"{path[:200]!r}: {problem}")


def sign(status: os.stat_result) -> Signature:
    """Return the signature of a file."""
    executable = bool(status.st_mode & stat.S_IXUSR)
    return Signature(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, executable)


def scan_folder(
    root: Path,
    *,
    skip: Collection[str],
    max_files: int = MAX_ENTRIES,
    max_bytes: int = 1 << 60,
    deadline: Deadline,
    known: Container[str] = (),
) -> FolderScan:
    """Walk a folder, without the entries of the root that `skip` names. Paths in `known` are allowed.

    It looks at each entry once, with one system call: of a run that changes nothing, this is most of what its workspace
    costs.

    Raises:
        TooManyFiles: it has more files, bytes or entries than allowed.
        OSError: the root can't be read.
    """
    scan = FolderScan()
    pending: list[tuple[str, ...]] = [()]
    entries = 0
    while pending:
        parts = pending.pop()
        prefix = "".join(f"{part}/" for part in parts)
        try:
            with open_folder(root, parts) as descriptor, os.scandir(descriptor) as listing:
                for entry in listing:
                    if not parts and entry.name in skip:
                        continue
                    if entries % ENTRIES_PER_CHECK == 0:
                        deadline.check()
                    entries += 1
                    if _take_entry(entry, prefix, len(parts), scan, known):
                        pending.append((*parts, entry.name))
                    if entries > MAX_ENTRIES or len(scan.files) > max_files or scan.bytes > max_bytes:
                        raise _explain_excess(scan, entries, max_files, max_bytes)
        except OSError as error:
            if not parts:
                raise
            scan.leave_out(prefix, f"it can't be read: {error.strerror}")
    return scan


def _take_entry(entry: os.DirEntry[str], prefix: str, depth: int, scan: FolderScan, known: Container[str]) -> bool:
    """Add an entry to the scan. Return whether it is a folder to walk."""
    path, status = prefix + entry.name, entry.stat(follow_symlinks=False)
    kind = stat.S_IFMT(status.st_mode)
    problem = _KINDS.get(kind) or (path not in known and find_path_problem(path))
    if problem:
        scan.leave_out(path, problem)
    elif kind == stat.S_IFREG:
        scan.files[path] = sign(status)
        scan.bytes += status.st_size
    elif kind == stat.S_IFDIR and depth + 2 > MAX_PATH_DEPTH:
        scan.leave_out(path, f"it is more than {MAX_PATH_DEPTH - 1} folders deep")
    else:
        return kind == stat.S_IFDIR
    return False


def _explain_excess(scan: FolderScan, entries: int, max_files: int, max_bytes: int) -> TooManyFiles:
    if entries > MAX_ENTRIES:
        return TooManyFiles(f"there are more than {MAX_ENTRIES} files and folders")
    if len(scan.files) > max_files:
        return TooManyFiles(f"there are more than {max_files} files")
    return TooManyFiles(f"the files have more than {max_bytes} bytes")


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
