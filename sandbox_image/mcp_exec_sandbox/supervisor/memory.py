"""How much memory the sandbox takes: from the container's cgroup, from gVisor's own account, or from its processes."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from mcp_exec_sandbox.supervisor.proc_file import PseudoFile
from mcp_exec_sandbox.supervisor.processes import Process
from mcp_exec_sandbox.supervisor.settings import MIB

CGROUP_ROOT = Path("/sys/fs/cgroup")
PROC_ROOT = Path("/proc")
LIMIT_TOLERANCE_BYTES = 64 * 1024

SENTRY_BYTES = 64 * MIB
"""What gVisor's kernel takes of the container's limit beside the processes (10-35 MiB were measured), and what these
may gain before the watchdog looks again: beyond the limit the whole sandbox is killed."""


class MemoryGauge(Protocol):
    """Tells the use of memory in the sandbox."""

    reserve_bytes: int
    """The part of the container's limit that the processes can't have."""

    def used(self, processes: Callable[[], Iterable[Process]]) -> int:
        """Bytes in use that can't be reclaimed at once."""

    def kernel_kills(self) -> int:
        """How many processes the kernel has killed for want of memory in this container, as far as it tells."""


@dataclass(frozen=True, kw_only=True)
class CgroupFiles:
    """The memory files of a cgroup hierarchy, relative to its root, and the field that tells reclaimable bytes."""

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
    """The best gauge that there is here.

    A cgroup or an account counts only if its limit is the container's: else it is the machine's.
    """
    for files in CGROUP_VERSIONS:
        if _is_near(PseudoFile(cgroup_root / files.limit).number(), limit):
            return CgroupGauge(root=cgroup_root, files=files, limit=limit)
    account = SandboxGauge(path=proc_root / "meminfo")
    return account if _is_near(account.total(), limit) else ProcessGauge(limit=limit)


class CgroupGauge:
    """The container's cgroup."""

    def __init__(self, *, root: Path, files: CgroupFiles, limit: int) -> None:
        self._usage = PseudoFile(root / files.usage)
        self._statistics = PseudoFile(root / files.statistics)
        self._events = PseudoFile(root / files.events)
        self._inactive = files.inactive
        self.reserve_bytes = limit // 32

    def used(self, processes: Callable[[], Iterable[Process]]) -> int:
        """What the kernel charges, without file contents that it would drop first."""
        return (self._usage.number() or 0) - self._statistics.field(self._inactive)

    def kernel_kills(self) -> int:
        """The kernel's own count."""
        return self._events.field("oom_kill")


class SandboxGauge:
    """gVisor's account of its one sandbox, which it shows as the machine's memory."""

    reserve_bytes = SENTRY_BYTES

    def __init__(self, *, path: Path) -> None:
        self._file = PseudoFile(path)

    def total(self) -> int:
        """The limit of the sandbox."""
        return self._file.field("MemTotal:") * 1024

    def used(self, processes: Callable[[], Iterable[Process]]) -> int:
        """What isn't available any more."""
        return self.total() - self._file.field("MemAvailable:") * 1024

    def kernel_kills(self) -> int:
        """None is ever told: beyond the limit the whole sandbox is killed."""
        return 0


class ProcessGauge:
    """The sum over the processes, where nothing better is at hand."""

    def __init__(self, *, limit: int) -> None:
        self.reserve_bytes = limit // 32

    def used(self, processes: Callable[[], Iterable[Process]]) -> int:
        """The processes' shares of memory."""
        return sum(proportional_bytes(process) for process in processes())

    def kernel_kills(self) -> int:
        """Not known."""
        return 0


def proportional_bytes(process: Process) -> int:
    """A process's share of memory: pages that several processes share count once in all.

    Without this a few forks of a large process would look like many times its size.
    """
    try:
        lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
    except (FileNotFoundError, PermissionError):
        # The file is of Linux 4.14, and a process can hide it; with one that has ended all is gone, its folder too.
        return process.resident_bytes if Path(f"/proc/{process.pid}").exists() else 0
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)


def _is_near(number: int | None, limit: int) -> bool:
    return number is not None and abs(number - limit) <= LIMIT_TOLERANCE_BYTES
