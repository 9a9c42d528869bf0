"""Memory use of the sandbox: from the container's cgroup, from gVisor's /proc/meminfo, or from its processes."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from mcp_exec_sandbox.supervisor.resources.proc_file import ProcFile
from mcp_exec_sandbox.supervisor.resources.processes import Process, find_folder
from mcp_exec_sandbox.supervisor.settings import MIB

CGROUP_ROOT = Path("/sys/fs/cgroup")
PROC_ROOT = Path("/proc")
LIMIT_TOLERANCE_BYTES = 64 * 1024

SENTRY_BYTES = 64 * MIB
"""Part of the container's limit that stays free in gVisor: its kernel uses 10-35 MiB (measured), and the processes may
grow before the watchdog's next check. gVisor kills the whole sandbox if it exceeds the limit."""


class MemoryGauge(Protocol):
    """Source of the sandbox's memory use."""

    reserve_bytes: int
    """The part of the container's limit that the processes can't use."""
    shows_held_bytes: bool
    """Whether the bytes in use show what the kernel holds for no process: without caches, and of this sandbox only."""

    def read_used_bytes(self, list_processes: Callable[[], Iterable[Process]]) -> int:
        """Return the bytes in use that the kernel can't reclaim at once."""

    def count_kernel_kills(self) -> int:
        """Return how many processes of this container the kernel killed because memory ran out, 0 if unknown."""


@dataclass(frozen=True, kw_only=True)
class CgroupFiles:
    """The memory files of one cgroup version, relative to its root, and the name of the field of reclaimable bytes."""

    limit: str
    usage: str
    statistics: str
    inactive: str
    events: str


CGROUP_VERSIONS = (
    CgroupFiles(
        limit="memory.max",
        usage="memory.current",
        statistics="memory.stat",
        inactive="inactive_file",
        events="memory.events",
    ),
    CgroupFiles(
        limit="memory/memory.limit_in_bytes",
        usage="memory/memory.usage_in_bytes",
        statistics="memory/memory.stat",
        inactive="total_inactive_file",
        events="memory/memory.oom_control",
    ),
)


def find_gauge(limit: int, *, cgroup_root: Path = CGROUP_ROOT, proc_root: Path = PROC_ROOT) -> MemoryGauge:
    """Return the most exact gauge that this system offers.

    A cgroup or /proc/meminfo is used only if its limit is the container's; otherwise it describes the machine.
    """
    for files in CGROUP_VERSIONS:
        if _is_near(ProcFile(cgroup_root / files.limit).read_number(), limit):
            return CgroupGauge(root=cgroup_root, files=files, limit=limit)
    gauge = GvisorGauge(path=proc_root / "meminfo")
    return gauge if _is_near(gauge.read_total_bytes(), limit) else ProcessGauge(limit=limit)


class CgroupGauge:
    """The container's cgroup."""

    shows_held_bytes = False

    def __init__(self, *, root: Path, files: CgroupFiles, limit: int) -> None:
        self._usage = ProcFile(root / files.usage)
        self._statistics = ProcFile(root / files.statistics)
        self._events = ProcFile(root / files.events)
        self._inactive = files.inactive
        self.reserve_bytes = limit // 32

    def read_used_bytes(self, list_processes: Callable[[], Iterable[Process]]) -> int:
        """Return what the kernel charges, without inactive file contents, which it drops first."""
        return (self._usage.read_number() or 0) - self._statistics.read_field(self._inactive)

    def count_kernel_kills(self) -> int:
        """Return the kernel's own count."""
        return self._events.read_field("oom_kill")


class GvisorGauge:
    """gVisor's /proc/meminfo, which shows the one sandbox as if it were the machine."""

    reserve_bytes = SENTRY_BYTES
    shows_held_bytes = True

    def __init__(self, *, path: Path) -> None:
        self._file = ProcFile(path)

    def read_total_bytes(self) -> int:
        """Return the limit of the sandbox."""
        return self._file.read_field("MemTotal:") * 1024

    def read_used_bytes(self, list_processes: Callable[[], Iterable[Process]]) -> int:
        """Return the bytes that aren't available."""
        return self.read_total_bytes() - self._file.read_field("MemAvailable:") * 1024

    def count_kernel_kills(self) -> int:
        """Return 0: gVisor kills the whole sandbox instead of one process."""
        return 0


class ProcessGauge:
    """The sum over all processes, used if the system offers no better source."""

    shows_held_bytes = False

    def __init__(self, *, limit: int) -> None:
        self.reserve_bytes = limit // 32

    def read_used_bytes(self, list_processes: Callable[[], Iterable[Process]]) -> int:
        """Return the sum of the processes' proportional shares."""
        return sum(read_proportional_bytes(process) for process in list_processes())

    def count_kernel_kills(self) -> int:
        """Return 0: the number is unknown."""
        return 0


def read_proportional_bytes(process: Process) -> int:
    """Return a process's proportional share of memory (PSS), where each shared page counts once over all processes.

    With the resident size instead, a few forks of a large process would count as many times its memory.
    """
    try:
        folder = find_folder(process) or f"/proc/{process.pid}"
        lines = Path(f"{folder}/smaps_rollup").read_text().splitlines()
    except (FileNotFoundError, PermissionError):
        # Kernels before Linux 4.14 lack the file and a process can hide it. An ended process lacks its folder too.
        return process.resident_bytes if Path(f"/proc/{process.pid}").exists() else 0
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)


def _is_near(number: int | None, limit: int) -> bool:
    return number is not None and abs(number - limit) <= LIMIT_TOLERANCE_BYTES
