"""Watches a run for what no limit of the kernel ends clearly: processes, memory and storage in all."""

import asyncio
from collections.abc import Callable

from mcp_exec_sandbox.supervisor.memory import MemoryGauge
from mcp_exec_sandbox.supervisor.processes import Process, descendants
from mcp_exec_sandbox.supervisor.settings import MIB, Settings
from mcp_exec_sandbox.supervisor.storage import measure
from mcp_exec_sandbox.supervisor.verdict import Reason, Verdict

INTERVAL_SECONDS = 0.05
TICKS_PER_STORAGE_WALK = 10


class Watchdog:
    """Looks at the sandbox while code runs, and at no other time."""

    def __init__(self, *, settings: Settings, gauge: MemoryGauge, supervisor: int) -> None:
        self._settings = settings
        self._gauge = gauge
        self._supervisor = supervisor
        self._kills_before = gauge.kernel_kills()
        self.peak_bytes = 0
        """The most memory seen."""

    def kernel_kill(self) -> bool:
        """Whether the kernel has killed a process for want of memory since the watch began."""
        return self._gauge.kernel_kills() > self._kills_before

    async def watch(self, condemn: Callable[[Verdict], None]) -> None:
        """Look again and again; call `condemn` once a limit is passed, and stop."""
        tick = 0
        while True:
            await asyncio.sleep(INTERVAL_SECONDS)
            tick += 1
            processes = descendants(self._supervisor)
            verdict = self._judge(processes)
            if verdict is None and tick % TICKS_PER_STORAGE_WALK == 0:
                verdict = await self._judge_storage(processes)
            if verdict is not None:
                condemn(verdict)
                return

    def _judge(self, processes: list[Process]) -> Verdict | None:
        tasks = sum(process.threads for process in processes)
        if tasks > self._settings.max_processes:
            return _limit("ProcessLimit", f"more than {self._settings.max_processes} processes and threads")
        used = self._gauge.used(processes)
        self.peak_bytes = max(self.peak_bytes, used)
        if used > self._settings.memory_bytes - self._gauge.reserve_bytes or self.kernel_kill():
            size = self._settings.memory_bytes // MIB
            return _limit("OutOfMemory", f"the processes need more memory than the sandbox has ({size} MiB in all)")
        return None

    async def _judge_storage(self, processes: list[Process]) -> Verdict | None:
        folders = (self._settings.workspace, self._settings.temporary)
        bound = self._settings.storage_bytes
        if await measure(folders, [process.pid for process in processes], enough=bound) <= bound:
            return None
        names = " and ".join(str(folder) for folder in folders)
        return _limit("StorageLimit", f"the files in {names} take more than {bound // MIB} MiB or are too many")


def runner_memory_bytes(limit: int) -> int:
    """The private memory that one process may have, so that it gets a `MemoryError` before the container is full."""
    return limit - min(max(limit // 8, 32 * MIB), 96 * MIB)


def _limit(reason: Reason, message: str) -> Verdict:
    return Verdict(phase="Failed", reason=reason, message=message)
