"""Rate of Events about executions: the API server keeps each for an hour, and whole batches may fail at once."""

from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import Final

from mcp_exec_common.util.token_bucket import TokenBucket

_PER_SECOND: Final = 0.5
_BURST: Final = 20
_MAX_NAMESPACES: Final = 1000
"""Namespaces whose rate is remembered; after more, all begin again."""


@dataclass(kw_only=True)
class EventBudget:
    """Events that each namespace may still have: 20 at once, and one every two seconds."""

    clock: Callable[[], float] = monotonic
    _buckets: dict[str, TokenBucket] = field(default_factory=dict, init=False)

    def take(self, namespace: str) -> bool:
        """Return whether one more Event may be created in the namespace, and count it."""
        if namespace not in self._buckets and len(self._buckets) >= _MAX_NAMESPACES:
            self._buckets.clear()
        bucket = self._buckets.setdefault(namespace, TokenBucket(per_second=_PER_SECOND, burst=_BURST))
        now = self.clock()
        if not bucket.available(now):
            return False
        bucket.spend(1, now)
        return True
