"""Memory, CPU time and disk space of a sandbox, as its cgroup, its processes and its folders show them."""

import asyncio
import contextlib
import math
import os
import resource
import stat
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from mcp_exec_sandbox.protocol import CPU_COUNT_VARIABLE
from mcp_exec_sandbox.supervisor.resources.processes import Process, ProcFile, find_folder, list_descendants
from mcp_exec_sandbox.supervisor.settings import MIB

CGROUP_ROOT = Path("/sys/fs/cgroup")
PROC_ROOT = Path("/proc")
LIMIT_TOLERANCE_BYTES = 64 * 1024

SENTRY_BYTES = 64 * MIB
"""Part of the container's limit that stays free in gVisor: its kernel uses 10-35 MiB (measured), and the processes may
grow before the watchdog's next check. gVisor kills the whole sandbox if it exceeds the limit."""

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_FIRST_CPU_FIELD = 11
"""Position of the four CPU fields in /proc/PID/stat after the name: user and system time of the process and of its
children that it has waited for."""


THREAD_VARIABLES = (
    "GOMAXPROCS",
    "LOKY_MAX_CPU_COUNT",
    "MKL_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "NUMEXPR_MAX_THREADS",
    "NUMEXPR_NUM_THREADS",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "POLARS_MAX_THREADS",
    "RAYON_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)
"""Variables that limit the threads of libraries. Without them, some count the processors of the node."""

_QUOTAS = (("cpu.max", None), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"))


class MemoryGauge(ABC):
    """Source of the sandbox's memory use."""

    reserve_bytes: int
    """The part of the container's limit that the processes can't use."""
    shows_held_bytes = False
    """Whether the bytes in use show what the kernel holds for no process: without caches, and of this sandbox only."""

    @abstractmethod
    def read_used_bytes(self, list_processes: Callable[[], Iterable[Process]]) -> int:
        """Return the bytes in use that the kernel can't reclaim at once."""

    def count_kernel_kills(self) -> int:
        """Return how many processes of this container the kernel killed because memory ran out, 0 if unknown."""
        return 0


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


class CgroupGauge(MemoryGauge):
    """The container's cgroup."""

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


class GvisorGauge(MemoryGauge):
    """gVisor's /proc/meminfo, which shows the one sandbox as if it were the machine.

    gVisor kills the whole sandbox in place of one process, so it has no kills to count.
    """

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


class ProcessGauge(MemoryGauge):
    """The sum over all processes, used if the system offers no better source."""

    def __init__(self, *, limit: int) -> None:
        self.reserve_bytes = limit // 32

    def read_used_bytes(self, list_processes: Callable[[], Iterable[Process]]) -> int:
        """Return the sum of the processes' proportional shares."""
        return sum(read_proportional_bytes(process) for process in list_processes())


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


def build_cpu_variables(environment: Mapping[str, str], *, cgroup_root: Path = CGROUP_ROOT) -> dict[str, str]:
    """Return the variables of the code that say how many processors it has; those of the environment are kept.

    A number that the environment lacks is that of the cgroup's quota. Without a quota, there are no variables.
    """
    number = environment.get(CPU_COUNT_VARIABLE) or _read_quota(cgroup_root)
    if number is None or not number.isdecimal():
        return {}
    return {name: environment.get(name, number) for name in (CPU_COUNT_VARIABLE, *THREAD_VARIABLES)}


def _read_quota(root: Path) -> str | None:
    for quota, period in _QUOTAS:
        with contextlib.suppress(OSError, ValueError, ZeroDivisionError):
            fields = (root / quota).read_text().split()
            if period is not None:
                fields.append((root / period).read_text())
            return str(max(1, math.ceil(int(fields[0]) / int(fields[1])))) if int(fields[0]) > 0 else None
    return None


class CpuMeter:
    """CPU time of the runner and of the processes that the code starts, since the meter was made.

    With `runner_seconds`, the runner's part begins earlier: when it had used so much, at the end of the last run.
    The time of a process that is still alive counts in steps of /proc, 10 ms, except for the runner's own. In gVisor
    all times have such steps.
    """

    def __init__(self, *, find_runner: Callable[[], int], runner_seconds: float | None = None) -> None:
        """Begin. `find_runner` returns the pid of the runner, or 0 as long as it is being forked."""
        self._find_runner = find_runner
        self._stat: ProcFile | None = None
        self.runner_seconds = self._read_runner() if runner_seconds is None else runner_seconds
        """CPU time of the runner, when it was measured last."""
        self._before = self.runner_seconds + _read_reaped()

    def measure(self, *, all_processes: bool) -> float:
        """Return the seconds until now. Unless `all_processes`, processes other than the runner count if they ended."""
        runner = self._find_runner()
        living = list_descendants(os.getpid()) if all_processes else []
        others = sum(process.cpu_seconds for process in living if process.pid != runner)
        self.runner_seconds = self._read_runner()
        return max(0.0, self.runner_seconds + _read_reaped() + others - self._before)

    def _read_runner(self) -> float:
        """Return the CPU time of the runner and of its ended children; 0 if it was reaped."""
        runner = self._find_runner()
        if not runner:
            return 0.0
        if self._stat is None:
            self._stat = ProcFile(Path(f"/proc/{runner}/stat"))
        children = _parse_stat(self._stat.read_text())[2:]
        return read_process_clock(runner) + sum(children)


def read_process_clock(pid: int) -> float:
    """Return the CPU time of a process, or 0 if it is gone. A clock of Linux has the process's number in its own."""
    with contextlib.suppress(OSError):
        return time.clock_gettime(~pid << 3 | 2)
    return 0.0


def _read_reaped() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _parse_stat(text: str) -> list[float]:
    """Return the four CPU times of a process in seconds, or zeros."""
    fields = text.rpartition(")")[2].split()[_FIRST_CPU_FIELD : _FIRST_CPU_FIELD + 4]
    if len(fields) < 4 or not all(value.isdigit() for value in fields):
        return [0.0] * 4
    return [int(value) / _TICKS_PER_SECOND for value in fields]


MAX_ENTRIES = 50_000
"""More files and folders than this count as a full disk, because each uses space in addition to its data."""

ENTRIES_PER_TURN = 500
BLOCK_BYTES = 512
DELETED_SUFFIX = " (deleted)"


@dataclass(frozen=True, kw_only=True)
class FileEntry:
    """A file or folder: device and inode, the bytes that it occupies, and whether it can have other names."""

    key: tuple[int, int]
    size: int
    has_other_names: bool


async def measure_storage(folders: Iterable[Path], processes: Iterable[str], *, enough: int) -> int:
    """Return the bytes on disk below `folders` and in deleted files that `processes` still hold open.

    `processes` are folders of /proc.

    A file with several names counts once. The walk yields to the event loop and stops once it has counted more than
    `enough` bytes.
    """
    total = counted = 0
    seen: set[tuple[int, int]] = set()
    for number, entry in enumerate(_list_entries(folders, processes)):
        if number % ENTRIES_PER_TURN == ENTRIES_PER_TURN - 1:
            await asyncio.sleep(0)
        if entry is None:
            continue
        if entry.key not in seen:
            total += entry.size
        if entry.has_other_names:
            seen.add(entry.key)
        if total > enough:
            return total
        counted += 1
        if counted > MAX_ENTRIES:
            return enough + 1
    return total


def _list_entries(folders: Iterable[Path], processes: Iterable[str]) -> Iterator[FileEntry | None]:
    """Yield the files, and None for each open descriptor that counts for nothing, because it costs time as well."""
    for folder in folders:
        yield from _walk(folder)
    for process in processes:
        yield from _list_deleted_files(f"{process}/fd")


def _walk(folder: Path) -> Iterator[FileEntry]:
    queue = [str(folder)]
    while queue:
        try:
            scan = os.scandir(queue.pop())
        except OSError:
            continue
        with scan:
            for item in scan:
                try:
                    status = item.stat(follow_symlinks=False)
                except OSError:
                    continue
                is_folder = stat.S_ISDIR(status.st_mode)
                yield FileEntry(
                    key=(status.st_dev, status.st_ino),
                    size=status.st_blocks * BLOCK_BYTES,
                    has_other_names=status.st_nlink > 1 and not is_folder,
                )
                if is_folder:
                    queue.append(item.path)


def _list_deleted_files(folder: str) -> Iterator[FileEntry | None]:
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in names:
        path = f"{folder}/{name}"
        try:
            # The link's text decides, because gVisor reports wrong link counts.
            status = os.stat(path) if os.readlink(path).endswith(DELETED_SUFFIX) else None
        except OSError:
            status = None
        if status is None or not stat.S_ISREG(status.st_mode):
            yield None
        else:
            size = status.st_blocks * BLOCK_BYTES or status.st_size
            yield FileEntry(key=(status.st_dev, status.st_ino), size=size, has_other_names=True)
