"""The places of a sandbox that its code can write to, found before any code runs.

In a pod the root file system is read-only, so the code can write to some of the mounts and nowhere else: the emptyDirs
of the pool, /dev/shm, /dev/mqueue, and the file for the termination message, which the kubelet makes for everyone.
"""

import asyncio
import os
import re
import stat
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from mcp_exec_sandbox.supervisor.cleaning.emptying import Emptying, NotCleaned, remove_attributes

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
