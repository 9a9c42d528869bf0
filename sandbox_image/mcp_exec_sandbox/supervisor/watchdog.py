"""Watches a run for what no limit of the kernel ends clearly: processes, memory and storage in all."""

import asyncio
from collections.abc import Callable

from mcp_exec_sandbox.supervisor.memory import MemoryGauge
from mcp_exec_sandbox.supervisor.outcome import Reason, Verdict
from mcp_exec_sandbox.supervisor.processes import Process, descendants
from mcp_exec_sandbox.supervisor.settings import MIB, Settings
from mcp_exec_sandbox.supervisor.storage import measure
from mcp_exec_sandbox.supervisor.task_count import TaskGauge

INTERVAL_SECONDS = 0.05
TICKS_PER_STORAGE_WALK = 10

MANY_TASKS = 16
SMALL_TASK_BYTES = 32 * MIB
"""More tasks than `MANY_TASKS` that take less than this each, and yet all memory, are too many."""


class Watchdog:
    """Looks at the sandbox while code runs, and at no other time."""

    def __init__(self, *, settings: Settings, memory: MemoryGauge, tasks: TaskGauge, supervisor: int) -> None:
        self._settings = settings
        self._memory = memory
        self._tasks = tasks
        self._supervisor = supervisor
        self.peak_bytes = 0
        """The most memory seen."""

    def kernel_kill(self) -> bool:
        """Whether the kernel has killed a process of this sandbox for want of memory."""
        return self._memory.kernel_kills() > 0

    async def watch(self, condemn: Callable[[Verdict], None]) -> None:
        """Look again and again; call `condemn` once a limit is passed, and stop."""
        tick = 0
        while True:
            await asyncio.sleep(INTERVAL_SECONDS)
            tick += 1
            tasks = self._tasks.count()
            verdict = self._judge_tasks(tasks) or self._judge_memory(tasks)
            if verdict is None and tick % TICKS_PER_STORAGE_WALK == 0:
                verdict = await self._judge_storage()
            if verdict is not None:
                condemn(verdict)
                return

    def _judge_tasks(self, tasks: int) -> Verdict | None:
        if tasks <= self._settings.max_processes:
            return None
        return _limit("ProcessLimit", f"more than {self._settings.max_processes} processes and threads")

    def _judge_memory(self, tasks: int) -> Verdict | None:
        used = self._memory.used(self._processes)
        self.peak_bytes = max(self.peak_bytes, used)
        if used <= self._settings.memory_bytes - self._memory.reserve_bytes and not self.kernel_kill():
            return None
        size = self._settings.memory_bytes // MIB
        if tasks > MANY_TASKS and used // tasks < SMALL_TASK_BYTES:
            # Not what they hold, but how many they are: in gVisor each fork of an idle interpreter takes 13 MiB.
            return _limit("ProcessLimit", f"{tasks} processes and threads need more memory than there is ({size} MiB)")
        return _limit("OutOfMemory", f"the processes need more memory than the sandbox has ({size} MiB in all)")

    def _processes(self) -> list[Process]:
        return descendants(self._supervisor)

    async def _judge_storage(self) -> Verdict | None:
        folders = (self._settings.workspace, self._settings.temporary)
        bound = self._settings.storage_bytes
        if await measure(folders, [process.pid for process in self._processes()], enough=bound) <= bound:
            return None
        names = " and ".join(str(folder) for folder in folders)
        return _limit("StorageLimit", f"the files in {names} take more than {bound // MIB} MiB or are too many")


def runner_memory_bytes(limit: int) -> int:
    """The private memory that one process may have, so that it gets a `MemoryError` before the container is full."""
    return limit - min(max(limit // 5, 32 * MIB), 128 * MIB)


def _limit(reason: Reason, message: str) -> Verdict:
    return Verdict(phase="Failed", reason=reason, message=message)
