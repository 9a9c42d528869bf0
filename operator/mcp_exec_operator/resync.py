"""Periodic full relist of all caches, once before the first pod is claimed and then every few seconds.

It finds objects that watches missed, executions without a task, and pods without an execution.
"""

import asyncio
import logging
from dataclasses import dataclass, field
from time import monotonic
from typing import Final

from mcp_exec_api.meta import now
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_operator.executions.controller import ExecutionController
from mcp_exec_operator.kube.api import OperatorApi
from mcp_exec_operator.metrics import Metrics
from mcp_exec_operator.pools.registry import PoolRegistry

log = logging.getLogger(__name__)

_STALLED_AFTER: Final = 3
"""Resyncs in a row that find objects which no watch delivered, after which the watches count as stalled."""


@dataclass(kw_only=True, eq=False)
class Resync:
    """Compares all caches with lists of the API server."""

    api: OperatorApi
    pools: PoolRegistry
    executions: ExecutionController
    metrics: Metrics
    namespaces: tuple[str, ...]
    interval_seconds: float
    done: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once the first resync has succeeded."""
    _ended_at: float = field(default_factory=monotonic)
    """When the last resync ended, whether it succeeded or failed, by the monotonic clock."""
    _succeeded_at: float = field(default_factory=monotonic)
    """When the last resync succeeded, by the monotonic clock."""
    _missed_in_a_row: int = 0
    """Resyncs in a row that found objects which no watch delivered."""

    def restart_clock(self) -> None:
        """Measure the time without a resync from now on: a standby makes none."""
        self._ended_at = self._succeeded_at = monotonic()

    def find_problem(self, *, stuck_seconds: float, failing_seconds: float) -> str:
        """Return what is wrong, or an empty text.

        Resyncs may take `stuck_seconds`, and may fail for `failing_seconds`.
        """
        at = monotonic()
        if (silence := at - self._ended_at) > stuck_seconds:
            return f"no resync has ended for {silence:.0f} s"
        if (failing := at - self._succeeded_at) > failing_seconds:
            return f"no resync has succeeded for {failing:.0f} s"
        if self._missed_in_a_row >= _STALLED_AFTER:
            return "the watches have stalled: resyncs find objects that no watch delivers"
        return ""

    async def run(self) -> None:
        """Resync at each interval, until cancelled."""
        while True:
            await asyncio.sleep(self.interval_seconds)
            try:
                await self.resync()
            except ApiError as error:
                log.warning("a resync failed: %s", error)
                self.metrics.resync_failures.inc()
            except Exception:
                log.exception("a resync failed")
                self.metrics.resync_failures.inc()
            self._ended_at = monotonic()

    async def resync(self) -> None:
        """Relist all namespaces once. Raises ApiError."""
        first, missed = not self.done.is_set(), 0
        with self.metrics.time_resync():
            for namespace in self.namespaces:
                missed += await self._resync_namespace(namespace)
        self.pools.delete_leftovers(self.executions.list_pods(), at_once=first)
        if not first and missed:
            self.metrics.missed.inc(missed)
        self._missed_in_a_row = self._missed_in_a_row + 1 if missed and not first else 0
        self._ended_at = self._succeeded_at = monotonic()
        self.done.set()

    async def _resync_namespace(self, namespace: str) -> int:
        """Relist one namespace. Return how many objects no watch had delivered.

        Pods are listed last, so that the pod of a listed execution is in the list or gone.
        """
        listed_at = now()
        pools = await self.api.list_pools(namespace)
        executions = await self.api.list_executions(namespace)
        pods_listed_at = monotonic()
        pods = await self.api.list_pods(namespace)
        missed = self.pools.replace(namespace, pools, pods, listed_at=pods_listed_at)
        return missed + self.executions.replace(namespace, executions, listed_at=listed_at)
