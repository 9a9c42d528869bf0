"""Rate at which callers read executions from the API server: it cannot separate them, since all are the gateway."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from cachetools import LRUCache

from mcp_exec_common.util.token_bucket import TokenBucket
from mcp_exec_gateway.auth.callers import Caller
from mcp_exec_gateway.http.problems import too_many

_BYTES_PER_SECOND: Final = 16 * 1024 * 1024
"""About 12 objects of maximal size, or 1,000 ordinary ones, which an API server reads with a tenth of a processor."""
_BURST_BYTES: Final = 64 * 1024 * 1024
_MIN_BYTES: Final = 16 * 1024
"""What a read costs at least: its request does, however small the object."""
_MAX_BUCKETS: Final = 10_000


@dataclass(kw_only=True)
class ReadLimiter:
    """Token buckets of bytes by namespace and caller, in this replica."""

    clock: Callable[[], float] = time.monotonic
    per_second: int = _BYTES_PER_SECOND
    burst: int = _BURST_BYTES
    _buckets: LRUCache[tuple[str, str], TokenBucket] = field(
        default_factory=lambda: LRUCache(maxsize=_MAX_BUCKETS), init=False
    )

    def take(self, caller: Caller, size: int) -> None:
        """Count a read of an object of so many bytes. Raises HttpProblem, a 429, if the caller read too much before."""
        now = self.clock()
        bucket = self._buckets.get((caller.namespace, caller.name))
        if bucket is None:
            bucket = TokenBucket(per_second=self.per_second, burst=self.burst)
            self._buckets[caller.namespace, caller.name] = bucket
        if not bucket.available(now):
            seconds = bucket.ready_at(now) - now
            detail = f"{caller.name} has read executions of more than {self.per_second // 2**20} MiB in each second"
            raise too_many(detail, kind="rate-limited", retry_after=max(math.ceil(seconds), 1))
        bucket.spend(max(size, _MIN_BYTES), now)
