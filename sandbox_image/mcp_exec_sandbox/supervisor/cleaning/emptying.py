"""Emptying of a folder whose contents are hostile, in bounded time and with few open files, whatever its depth.

Nothing runs that could change the folder meanwhile. Links are removed and never followed. A subfolder's own subfolders
move to the top before it is removed, so no path gets long.
"""

import asyncio
import errno
import os
import stat
from pathlib import Path

ENTRIES_PER_TURN = 100
"""Entries that are removed before the event loop gets its turn."""
MAX_FOLDERS = 1000
"""Names of folders that are kept in memory at a time."""
MAX_SCANS = 10
"""Times that one folder is read. A file system may leave entries out while others are removed."""
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class NotCleaned(Exception):
    """Something that a run left can't be removed, so the sandbox must not be used again."""


class Emptying:
    """One emptying of a folder. It ends at `deadline`, in seconds of the event loop's clock."""

    def __init__(self, folder: Path, *, deadline: float) -> None:
        self._folder = folder
        self._deadline = deadline
        self._done = 0
        self._moved = 0
        self._token = ""

    async def run(self) -> None:
        """Remove all that is in the folder, and its extended attributes.

        Raises:
            NotCleaned: something can't be removed, or not in time.
        """
        try:
            remove_attributes(self._folder)
            # Mostly it is empty. A scan by its path makes half the system calls of one by a descriptor.
            with os.scandir(self._folder) as entries:
                if next(entries, None) is None:
                    return
            self._token = os.urandom(8).hex()
            root = os.open(self._folder, _OPEN)
            try:
                while folders := await self._unlink_files(root):
                    for name in folders:
                        await self._remove_folder(root, name)
            finally:
                os.close(root)
        except OSError as error:
            raise NotCleaned(f"{self._folder} can't be emptied: {error.strerror}") from None

    async def _remove_folder(self, root: int, name: str) -> None:
        """Remove a folder of the root. Its subfolders move into the root."""
        own = _open_folder(root, name)
        try:
            for _ in range(MAX_SCANS):
                while folders := await self._unlink_files(own):
                    for inner in folders:
                        await self._count()
                        self._moved += 1
                        _move_folder(own, inner, root, f"{self._token}{self._moved}")
                if _remove_if_empty(root, name):
                    return
        finally:
            os.close(own)
        raise NotCleaned(f"{self._folder} can't be emptied: a folder in it does not get empty")

    async def _unlink_files(self, folder: int) -> list[str]:
        """Remove the files of a folder. Return its folders, or some if they are many, then with files left."""
        for _ in range(MAX_SCANS):
            folders, files = list[str](), 0
            with os.scandir(folder) as entries:
                for entry in entries:
                    await self._count()
                    if not entry.is_dir(follow_symlinks=False):
                        os.unlink(entry.name, dir_fd=folder)
                        files += 1
                        continue
                    folders.append(entry.name)
                    if len(folders) >= MAX_FOLDERS:
                        return folders
            if not files:
                return folders
        raise NotCleaned(f"{self._folder} can't be emptied: its files come again")

    async def _count(self) -> None:
        self._done += 1
        if self._done % ENTRIES_PER_TURN == 0:
            await asyncio.sleep(0)
            if asyncio.get_running_loop().time() > self._deadline:
                raise NotCleaned(f"{self._folder} has more entries than can be removed in time")


def remove_attributes(file: int | Path) -> None:
    """Remove the extended attributes that the code may have set. Raises OSError."""
    try:
        names = os.listxattr(file)
    except OSError as error:
        if error.errno in (errno.ENOTSUP, errno.ENOSYS):
            return
        raise
    for name in names:
        if name.startswith("user."):
            os.removexattr(file, name)


def _remove_if_empty(root: int, name: str) -> bool:
    try:
        os.rmdir(name, dir_fd=root)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            return False
        raise
    return True


def _open_folder(parent: int, name: str) -> int:
    """Open a folder that may deny everything to its owner, and permit everything."""
    try:
        opened = os.open(name, _OPEN, dir_fd=parent)
    except PermissionError:
        # a folder, not a link, as its parent says
        os.chmod(name, stat.S_IRWXU, dir_fd=parent)
        opened = os.open(name, _OPEN, dir_fd=parent)
    if stat.S_IMODE(os.fstat(opened).st_mode) & stat.S_IRWXU != stat.S_IRWXU:
        os.fchmod(opened, stat.S_IRWXU)
    return opened


def _move_folder(parent: int, name: str, root: int, target: str) -> None:
    try:
        os.rename(name, target, src_dir_fd=parent, dst_dir_fd=root)
    except PermissionError:
        os.chmod(name, stat.S_IRWXU, dir_fd=parent)
        os.rename(name, target, src_dir_fd=parent, dst_dir_fd=root)
