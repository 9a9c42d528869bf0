"""How much memory the sandbox takes: from the container's cgroup where it can be read, else from its processes."""

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from mcp_exec_sandbox.supervisor.processes import Process

CGROUP_ROOT = Path("/sys/fs/cgroup")
LIMIT_TOLERANCE_BYTES = 64 * 1024


@dataclass(frozen=True, kw_only=True)
class CgroupFiles:
    """The memory files of a cgroup hierarchy, relative to its root, and the names of the fields that are read."""

    limit: str
    usage: str
    peak: str
    statistics: str
    inactive: str
    events: str


_VERSIONS = (
    CgroupFiles(
        limit="memory.max",
        usage="memory.current",
        peak="memory.peak",
        statistics="memory.stat",
        inactive="inactive_file",
        events="memory.events",
    ),
    CgroupFiles(
        limit="memory/memory.limit_in_bytes",
        usage="memory/memory.usage_in_bytes",
        peak="memory/memory.max_usage_in_bytes",
        statistics="memory/memory.stat",
        inactive="total_inactive_file",
        events="memory/memory.oom_control",
    ),
)


class MemoryGauge:
    """Reads memory use. A cgroup counts only if its limit is the container's: then it is the container's own."""

    def __init__(self, *, limit: int, root: Path = CGROUP_ROOT) -> None:
        self._root = root
        self._files = next((files for files in _VERSIONS if self._is_own(files, limit)), None)

    def used(self, processes: Iterable[Process]) -> int:
        """Bytes in use that can't be reclaimed at once."""
        if self._files is None:
            return sum(proportional_bytes(process) for process in processes)
        usage = self._number(self._files.usage) or 0
        return usage - self._field(self._files.statistics, self._files.inactive)

    def kernel_kills(self) -> int:
        """How many processes the kernel has killed for want of memory in this container."""
        return 0 if self._files is None else self._field(self._files.events, "oom_kill")

    def peak(self) -> int | None:
        """The most that the container has used, where the kernel keeps it."""
        return None if self._files is None else self._number(self._files.peak)

    def _is_own(self, files: CgroupFiles, limit: int) -> bool:
        number = self._number(files.limit)
        return number is not None and abs(number - limit) <= LIMIT_TOLERANCE_BYTES

    def _number(self, name: str) -> int | None:
        with contextlib.suppress(OSError, ValueError):
            return int((self._root / name).read_text())
        return None

    def _field(self, name: str, field: str) -> int:
        with contextlib.suppress(OSError, ValueError):
            for line in (self._root / name).read_text().splitlines():
                key, _, value = line.partition(" ")
                if key == field:
                    return int(value)
        return 0


def proportional_bytes(process: Process) -> int:
    """A process's share of memory: pages that several processes share count once in all.

    Without this a few forks of a large process would look like many times its size.
    """
    try:
        lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
    except (FileNotFoundError, PermissionError):
        # The file is of Linux 4.14, and a process can hide it.
        return process.resident_bytes
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)
