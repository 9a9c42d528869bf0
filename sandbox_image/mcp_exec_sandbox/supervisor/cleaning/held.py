"""Memory and disk that the kernel of a sandbox still holds after a run, although no process of it is left.

gVisor never frees sockets that hold each other as messages, nor the files that they hold. Linux does.
"""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

from mcp_exec_sandbox.supervisor.cleaning.emptying import NotCleaned
from mcp_exec_sandbox.supervisor.settings import MIB

MEMORY_BYTES = 64 * MIB
"""Memory that a clean sandbox may use in addition: the next interpreter's, and the supervisor's for the last run."""
_INTERVAL_SECONDS = 0.01


class HeldResources:
    """Memory and disk used before the first run; each later use is compared with it."""

    def __init__(self, *, read_memory: Callable[[], int], folder: Path, disk_bytes: int) -> None:
        """Measure. `disk_bytes` may be missing on the disk of `folder`, which others may use as well."""
        self._read_memory, self._folder = read_memory, folder
        self._memory_bytes = read_memory() + MEMORY_BYTES
        self._free_bytes = self._read_free_bytes() - disk_bytes

    async def check(self, *, seconds: float) -> None:
        """Wait until the kernel has freed what the last run used.

        Raises:
            NotCleaned: it has not in time.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while problem := self._find_problem():
            if loop.time() > deadline:
                raise NotCleaned(problem)
            await asyncio.sleep(_INTERVAL_SECONDS)

    def _find_problem(self) -> str:
        if self._read_memory() > self._memory_bytes:
            return "memory of the code is still in use"
        if self._read_free_bytes() < self._free_bytes:
            return f"the disk of {self._folder} has less free space than before the first run"
        return ""

    def _read_free_bytes(self) -> int:
        status = os.statvfs(self._folder)
        return status.f_bavail * status.f_frsize
