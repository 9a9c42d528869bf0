"""Processes that a benchmark starts, and the resource use of these and of the cluster's daemons, from /proc.

Resident memory of a Go process is up to twice its live heap, depending on when it last collected garbage, and that of
etcd has the pages of its mapped database file, which the kernel may take back at any time.
"""

import asyncio
import os
import re
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from waits import within

DAEMONS = ("kube-apiserver", "etcd", "kube-scheduler", "kube-controller-manager", "kubelet", "kube-proxy", "netpol")
"""Processes of a devcluster, by the names of their programs."""
MB: Final = 1e6
PROFILE: Final = "/debug/pprof/heap"
"""Path of a Go process's heap profile. With COLLECT, a garbage collection runs first."""
COLLECT: Final = {"gc": "1"}
METRICS: Final = "/metrics"
_LIVE: Final = re.compile(r"^go_memstats_heap_alloc_bytes (\S+)$", re.MULTILINE)
_FIELD: Final = re.compile(r"^(VmRSS|RssAnon):\s+(\d+) kB$", re.MULTILINE)
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class ProcessEnded(Exception):
    """A process ended unexpectedly. The text has the last lines of its log."""


def cpu_seconds(pid: int) -> float:
    """Return the CPU seconds of a process and its reaped children, in user and kernel mode."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(used) for used in fields[11:15]) / _TICKS


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE


@dataclass(frozen=True, kw_only=True)
class ProcessMemory:
    """Memory of a process in MB (10^6 bytes)."""

    resident: float
    anonymous: float
    """Part of the resident memory that is not of files."""

    @classmethod
    def read(cls, pid: int) -> Self:
        """Read the memory of a process. Raises OSError if there is none with this pid."""
        found = dict(_FIELD.findall(Path(f"/proc/{pid}/status").read_text()))
        resident, anonymous = (round(int(found[name]) * 1024 / MB, 1) for name in ("VmRSS", "RssAnon"))
        return cls(resident=resident, anonymous=anonymous)


def read_heap(metrics: str) -> float:
    """Return the MB of a Go process's heap from its metrics. Raises ValueError if they do not have it."""
    if (found := _LIVE.search(metrics)) is None:
        raise ValueError("the metrics have no go_memstats_heap_alloc_bytes")
    return round(float(found[1]) / MB, 1)


def parent_of(pid: int) -> int:
    """Return the pid of a process's parent."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def daemons(names: Sequence[str] = DAEMONS, *, parent: int | None = None) -> dict[str, int]:
    """Return the pids of running programs by the name of the program, or of the script that it runs.

    Of several with one name, the child of `parent` counts, by default of this process or of its parent: who starts a
    control plane for a benchmark starts both or is the benchmark, and another one may end meanwhile.
    """
    found: dict[str, int] = {}
    preferred = (os.getpid(), os.getppid()) if parent is None else (parent,)
    for folder in Path("/proc").glob("[0-9]*"):
        pid = int(folder.name)
        try:
            words = folder.joinpath("cmdline").read_bytes().split(b"\0")[:2]
            is_preferred = parent_of(pid) in preferred
        except OSError:
            continue  # the process has ended
        for name in {word.decode(errors="replace").rpartition("/")[2] for word in words} & set(names):
            if is_preferred or name not in found:
                found[name] = pid
    return {name: found[name] for name in names if name in found}


@dataclass(kw_only=True)
class ProcessMeter:
    """Resource use of processes since the creation of the meter."""

    pids: Mapping[str, int]
    _before: dict[str, float] = field(init=False)
    _since: float = field(init=False)

    def __post_init__(self) -> None:
        self._since = time.perf_counter()
        self._before = {name: cpu_seconds(pid) for name, pid in self.pids.items()}

    def rows(self) -> dict[str, dict[str, Any]]:
        """Return CPU time, its share of one core, and the current memory of each process."""
        elapsed = time.perf_counter() - self._since
        rows = {}
        for name, pid in self.pids.items():
            used = cpu_seconds(pid) - self._before[name]
            rows[name] = {
                "cpu s": round(used, 2),
                "cores": round(used / elapsed, 3),
                "rss MB": round(resident_bytes(pid) / 1e6),
            }
        return rows


@dataclass(frozen=True, kw_only=True)
class ChildProcess:
    """A process that a benchmark started."""

    process: asyncio.subprocess.Process
    log: Path

    @property
    def pid(self) -> int:
        """The process's id."""
        return self.process.pid

    def check(self) -> None:
        """Raise ProcessEnded if the process has ended."""
        if self.process.returncode is not None:
            raise ProcessEnded(f"{self.log.stem} ended with {self.process.returncode}:\n{self.tail()}")

    def tail(self) -> str:
        """Return the last lines of the log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])

    async def wait_for_line(self, word: str, *, seconds: float = 120) -> None:
        """Wait until the log has a line that is this word."""
        async with within(seconds, f"the line {word!r} in {self.log}", state=self.tail):
            while word not in self.log.read_text(errors="replace").splitlines():
                self.check()
                await asyncio.sleep(0.1)


@asynccontextmanager
async def child(
    command: Sequence[str], *, environment: Mapping[str, str], log: Path, end_seconds: float = 60
) -> AsyncIterator[ChildProcess]:
    """Run a process during the context, then terminate it, and kill it if it does not end.

    If the context fails, the last lines of the log are printed.
    """
    with log.open("ab") as file:
        process = await asyncio.create_subprocess_exec(*command, env=dict(environment), stdout=file, stderr=file)
    running = ChildProcess(process=process, log=log)
    try:
        yield running
    except Exception:
        print(running.tail(), file=sys.stderr)
        raise
    finally:
        if process.returncode is None:
            process.terminate()
        try:
            async with within(end_seconds, f"the end of {command[0]}"):
                await process.wait()
        except TimeoutError:
            process.kill()
            async with within(10, f"the end of {command[0]} after SIGKILL"):
                await process.wait()
