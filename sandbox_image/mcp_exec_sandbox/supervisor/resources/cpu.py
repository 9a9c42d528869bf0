"""CPU of the code: its number of processors, and its time from clocks and /proc, which Linux and gVisor both have."""

import contextlib
import math
import os
import resource
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from mcp_exec_sandbox.protocol import CPU_COUNT_VARIABLE
from mcp_exec_sandbox.supervisor.resources.memory import CGROUP_ROOT
from mcp_exec_sandbox.supervisor.resources.proc_file import ProcFile
from mcp_exec_sandbox.supervisor.resources.processes import list_descendants

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
        others = _read_living(os.getpid(), without=self._find_runner()) if all_processes else 0.0
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


def _read_living(ancestor: int, *, without: int) -> float:
    total = 0.0
    for process in list_descendants(ancestor):
        if process.pid != without:
            with contextlib.suppress(OSError), open(f"/proc/{process.pid}/stat") as file:
                total += sum(_parse_stat(file.read()))
    return total


def _parse_stat(text: str) -> list[float]:
    """Return the four CPU times of a process in seconds, or zeros."""
    fields = text.rpartition(")")[2].split()[_FIRST_CPU_FIELD : _FIRST_CPU_FIELD + 4]
    if len(fields) < 4 or not all(value.isdigit() for value in fields):
        return [0.0] * 4
    return [int(value) / _TICKS_PER_SECOND for value in fields]
