"""How many processes and threads the code has."""

from pathlib import Path

from mcp_exec_sandbox.supervisor.proc_file import PseudoFile
from mcp_exec_sandbox.supervisor.processes import descendants

CGROUP_FILES = ("pids.current", "pids/pids.current")


class TaskGauge:
    """Counts the tasks beside the supervisor's one.

    The container's cgroup tells it in one cheap reading, which matters when a fork bomb leaves the supervisor little
    of the CPU. Only as PID 1 is the cgroup known to be the container's alone; elsewhere processes are walked.
    """

    def __init__(self, *, supervisor: int, cgroup_root: Path) -> None:
        self._supervisor = supervisor
        self._file: PseudoFile | None = None
        if supervisor == 1:
            files = [PseudoFile(cgroup_root / name) for name in CGROUP_FILES]
            self._file = next((file for file in files if file.number() is not None), None)

    def count(self) -> int:
        """Processes and threads of the code, its interpreter included."""
        if self._file is not None and (number := self._file.number()) is not None:
            return number - 1
        return sum(process.threads for process in descendants(self._supervisor))
