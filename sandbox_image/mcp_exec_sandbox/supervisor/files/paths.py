"""Folders and files opened step by step so that no symbolic link is ever followed.

The supervisor can read what code must not, such as its own memory in /proc, so a link must lead it nowhere.
"""

import contextlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mcp_exec_tools.workspace_files import check_path

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class NotPlain(Exception):
    """What is at a path is no regular file, or no folder."""


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
