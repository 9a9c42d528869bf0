"""Cleanup of a sandbox between the runs of one owner: places to empty, what stays of them, and the removal of files."""

import asyncio
import errno
import os
import re
import stat
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from mcp_exec_sandbox.supervisor.settings import MIB

MOUNTS = Path("/proc/self/mountinfo")
MAX_MOUNTS = 1000
_KERNEL_TYPES = frozenset(
    {
        *("proc", "sysfs", "cgroup", "cgroup2", "devpts", "securityfs", "debugfs", "tracefs", "configfs", "pstore"),
        *("bpf", "fusectl", "binfmt_misc", "selinuxfs", "efivarfs", "rpc_pipefs", "nsfs"),
    }
)
"""File systems that keep nothing of the code after its processes end, or that only root can write to."""
_ESCAPED = re.compile(r"\\([0-7]{3})")
MEMORY_BYTES = 64 * MIB
"""Memory that a clean sandbox may use in addition: the next interpreter's, and the supervisor's for the last run."""
_INTERVAL_SECONDS = 0.01
ENTRIES_PER_TURN = 100
"""Entries that are removed before the event loop gets its turn."""
MAX_FOLDERS = 1000
"""Names of folders that are kept in memory at a time."""
MAX_SCANS = 10
"""Times that one folder is read. A file system may leave entries out while others are removed."""
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, kw_only=True)
class _Mount:
    path: Path
    kind: str
    is_read_only: bool


@dataclass(frozen=True, kw_only=True)
class WritablePlaces:
    """Folders that are emptied, and files that are truncated, after a run."""

    folders: dict[Path, int]
    """The folders, all empty before the first run, and their modes."""
    files: tuple[Path, ...]
    problem: str = ""
    """Why these places can't be as they were before the first run."""

    @classmethod
    def find(
        cls,
        own: Iterable[Path],
        *,
        expected: Collection[str] = (),
        mounts: Path = MOUNTS,
        is_container: bool | None = None,
    ) -> "WritablePlaces":
        """Return the places: `own`, and in a container all other writable ones.

        Outside of a container, as in tests, the machine has other places that are not the sandbox's to empty. Entries
        with the names `expected` are the supervisor's.
        """
        folders, files = list(own), list[Path]()
        if os.getpid() == 1 if is_container is None else is_container:
            found = list(_read_mounts(mounts))
            if not any(mount.path == Path("/") and mount.is_read_only for mount in found):
                return cls(folders={}, files=(), problem="the root file system of the sandbox can be written to")
            for mount in found:
                if mount.is_read_only or mount.kind in _KERNEL_TYPES or not os.access(mount.path, os.W_OK):
                    continue
                if mount.path.is_dir():
                    folders.append(mount.path)
                elif mount.path.is_file():
                    files.append(mount.path)
        modes = {folder: stat.S_IMODE(folder.stat().st_mode) for folder in folders}
        full = (folder for folder in modes if any(entry.name not in expected for entry in folder.iterdir()))
        problem = next((f"{folder} was not empty before the first run" for folder in full), "")
        return cls(folders=modes, files=tuple(files), problem=problem)

    async def clean(self, *, seconds: float) -> None:
        """Empty the folders and the files.

        Raises:
            NotCleaned: a place can't be as it was before the first run.
        """
        if self.problem:
            raise NotCleaned(self.problem)
        deadline = asyncio.get_running_loop().time() + seconds
        for folder, mode in self.folders.items():
            _restore_mode(folder, mode)
            await Emptying(folder, deadline=deadline).run()
        for file in self.files:
            try:
                os.truncate(file, 0)
                remove_attributes(file)
            except OSError as error:
                raise NotCleaned(f"{file} can't be emptied: {error.strerror}") from None


def _restore_mode(folder: Path, mode: int) -> None:
    """Set the mode of a folder back. Only its owner can have changed it, who in a pod is root."""
    try:
        if stat.S_IMODE(folder.stat().st_mode) != mode:
            folder.chmod(mode)
    except OSError as error:
        raise NotCleaned(f"the mode of {folder} can't be set: {error.strerror}") from None


def _read_mounts(mounts: Path) -> Iterator[_Mount]:
    """Yield the mounts that `proc_pid_mountinfo(5)` describes. Of several at a path, all are listed."""
    for line in mounts.read_text(errors="surrogateescape").splitlines()[:MAX_MOUNTS]:
        fields = line.split(" ")
        if len(fields) < 6 or "-" not in fields[6:-1]:
            continue
        path = _ESCAPED.sub(lambda match: chr(int(match[1], 8)), fields[4])
        options = fields[5].split(",")
        yield _Mount(path=Path(path), kind=fields[fields.index("-", 6) + 1], is_read_only="ro" in options)


class HeldResources:
    """Memory and disk used before the first run; each later use is compared with it."""

    def __init__(self, *, read_memory: Callable[[], int], folder: Path, disk_bytes: int) -> None:
        """Measure. `disk_bytes` may be missing on the disk of `folder`, which others may use as well."""
        self._read_memory, self._folder = read_memory, folder
        self._memory_bytes = read_memory() + MEMORY_BYTES
        self._free_bytes = self._read_free_bytes() - disk_bytes

    async def check(self, *, seconds: float) -> None:
        """Wait until the kernel has freed what the last run used.

        Raises:
            NotCleaned: it has not in time.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while problem := self._find_problem():
            if loop.time() > deadline:
                raise NotCleaned(problem)
            await asyncio.sleep(_INTERVAL_SECONDS)

    def _find_problem(self) -> str:
        if self._read_memory() > self._memory_bytes:
            return "memory of the code is still in use"
        if self._read_free_bytes() < self._free_bytes:
            return f"the disk of {self._folder} has less free space than before the first run"
        return ""

    def _read_free_bytes(self) -> int:
        status = os.statvfs(self._folder)
        return status.f_bavail * status.f_frsize


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
