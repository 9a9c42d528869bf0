"""Number of processes and threads of the code."""

from collections.abc import Collection
from pathlib import Path

from mcp_exec_sandbox.supervisor.resources.proc_file import ProcFile
from mcp_exec_sandbox.supervisor.resources.processes import list_descendants

CGROUP_FILES = ("pids.current", "pids/pids.current")


class TaskCounter:
    """Counts the tasks of the container without the supervisor's one.

    The container's cgroup gives the number in one cheap read, which matters if a fork bomb leaves the supervisor
    little CPU time. Only PID 1 can rely on the cgroup being the container's alone; any other process walks /proc.
    """

    def __init__(self, *, supervisor: int, cgroup_root: Path) -> None:
        self._supervisor = supervisor
        self._file: ProcFile | None = None
        if supervisor == 1:
            files = [ProcFile(cgroup_root / name) for name in CGROUP_FILES]
            self._file = next((file for file in files if file.read_number() is not None), None)

    def count(self, *, without: Collection[int] = ()) -> int:
        """Return the number of processes and threads of the code, its interpreter included.

        `without` are other processes of the sandbox itself, with one thread each.
        """
        if self._file is not None and (number := self._file.read_number()) is not None:
            return number - 1 - len(without)
        return sum(process.threads for process in list_descendants(self._supervisor) if process.pid not in without)
