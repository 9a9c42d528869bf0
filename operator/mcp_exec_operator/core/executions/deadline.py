"""When a run ends at the latest."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from math import ceil, inf
from typing import Final

from mcp_exec_common.supervisor.client import SupervisorConnection
from mcp_exec_common.supervisor.protocol import SandboxError

log = logging.getLogger(__name__)

_GRANT_GRACE_SECONDS: Final = 60


@dataclass(kw_only=True, eq=False)
class RunDeadline:
    """When a run ends at the latest. Waits for approvals extend it; a cancellation or a loss shortens it."""

    uid: str
    """Uid of the execution."""
    seconds: float
    """The limit without waits."""
    over: bool = False
    """Whether the run has ended."""
    _connection: SupervisorConnection | None = None
    _timeout: asyncio.Timeout | None = None
    _base: float = 0.0
    """The limit without waits, by the loop's clock."""
    _extension_seconds: float = 0.0
    """How long calls wait for approvals, as the broker confirmed it."""
    _cut: float = inf
    """When a run ends at the latest that was cancelled or lost, by the loop's clock."""

    @property
    def grant_seconds(self) -> int:
        """Validity of the run's grants without waits: until its end, with the binding before and the calls after it."""
        return ceil(self.seconds) + _GRANT_GRACE_SECONDS

    @asynccontextmanager
    async def running(self, connection: SupervisorConnection) -> AsyncIterator[None]:
        """End the context with TimeoutError when the time is over. `connection` is that to the run's sandbox."""
        self._connection = connection
        self._base = asyncio.get_running_loop().time() + self.seconds
        # calls may wait already, in a run that an earlier operator has begun
        async with asyncio.timeout_at(self._base + self._extension_seconds) as self._timeout:
            try:
                yield
            finally:
                # before the context ends, whose time cannot be changed afterwards
                self.over = True

    async def extend(self, seconds: float) -> bool:
        """Let the run take so much longer for its waits, in all. Return whether the sandbox has it, too."""
        self._extension_seconds = seconds
        self._apply()
        if self._connection is None:
            return False
        try:
            await self._connection.extend(self.uid, seconds)
        except SandboxError as error:
            log.info("the clock of a run was not set: %s", error, extra={"uid": self.uid})
            return False
        return True

    def cut(self, seconds: float) -> None:
        """Let the run end at most so many seconds from now."""
        self._cut = min(self._cut, asyncio.get_running_loop().time() + seconds)
        self._apply()

    def _apply(self) -> None:
        if self._timeout is not None and not self.over and not self._timeout.expired():
            self._timeout.reschedule(min(self._base + self._extension_seconds, self._cut))
