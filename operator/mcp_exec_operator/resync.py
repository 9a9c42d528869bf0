"""Compares everything with fresh lists, at the start before any claim and every few seconds from then on.

It finds what watches did not tell, executions that nobody drives, and pods that nobody has.
"""

import asyncio
import logging
from dataclasses import dataclass, field
from time import monotonic
from typing import Final

from mcp_exec_api.meta import now
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_operator.executions.controller import Reconciler
from mcp_exec_operator.kube.api import OperatorApi
from mcp_exec_operator.metrics import Metrics
from mcp_exec_operator.pools.registry import PoolRegistry

log = logging.getLogger(__name__)

_DEAF_AFTER: Final = 3
"""Sweeps in a row with news that no watch had told, after which the watches count as deaf."""


@dataclass(kw_only=True, eq=False)
class Sweep:
    """The lists, and what they say about the watches."""

    api: OperatorApi
    pools: PoolRegistry
    reconciler: Reconciler
    metrics: Metrics
    namespaces: tuple[str, ...]
    every_seconds: float
    done: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once the first sweep is over."""
    turned_at: float = field(default_factory=monotonic)
    """When the last sweep was over, whether it succeeded or not, by the monotonic clock."""
    _in_a_row: int = 0

    @property
    def watches_are_deaf(self) -> bool:
        """Whether the watches have ceased to tell."""
        return self._in_a_row >= _DEAF_AFTER

    async def run(self) -> None:
        """Sweeps until it is cancelled."""
        while True:
            await asyncio.sleep(self.every_seconds)
            try:
                await self.once()
            except ApiError as error:
                log.warning("a sweep failed: %s", error)
            except Exception:
                log.exception("a sweep failed")
            self.turned_at = monotonic()

    async def once(self) -> None:
        """One sweep over all namespaces. Raises ApiError."""
        first, news = not self.done.is_set(), 0
        with self.metrics.sweep():
            for namespace in self.namespaces:
                news += await self._namespace(namespace)
        self.pools.delete_leftovers(self.reconciler.held(), at_once=first)
        if not first and news:
            self.metrics.missed.inc(news)
        self._in_a_row = self._in_a_row + 1 if news and not first else 0
        self.turned_at = monotonic()
        self.done.set()

    async def _namespace(self, namespace: str) -> int:
        """Pods are listed last: one that a listed execution has is then in the list, or gone."""
        listed_at = now()
        pools = await self.api.list_pools(namespace)
        executions = await self.api.list_executions(namespace)
        pods_listed_at = monotonic()
        pods = await self.api.list_pods(namespace)
        news = self.pools.replace(namespace, pools, pods, listed_at=pods_listed_at)
        return news + self.reconciler.replace(namespace, executions, listed_at=listed_at)
