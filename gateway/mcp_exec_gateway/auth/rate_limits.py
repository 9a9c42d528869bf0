"""Rate limits of API keys: a token bucket for each key, in this replica alone.

Replicas do not share the buckets, so a key whose requests reach all replicas has the limit once for each.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from cachetools import LRUCache

from mcp_exec_api.wire.stats import KeyLimits
from mcp_exec_common.util.token_bucket import TokenBucket
from mcp_exec_gateway.http.problems import too_many

_MINUTE: Final = 60.0
_MAX_BUCKETS: Final = 8192
"""More than the keys that a Secret of 1 MiB can hold, so that only buckets of revoked keys are dropped."""


class LimitHolder(Protocol):
    """Who sends requests, with its limits."""

    @property
    def name(self) -> str:
        """Name of the API key."""

    @property
    def limits(self) -> KeyLimits:
        """Limits of the API key."""


@dataclass(kw_only=True)
class RateLimiter:
    """Token buckets of the API keys with a rate limit. A bucket starts full."""

    clock: Callable[[], float] = time.monotonic
    _buckets: LRUCache[tuple[str, int], TokenBucket] = field(
        default_factory=lambda: LRUCache(maxsize=_MAX_BUCKETS), init=False
    )
    """By the key's name and limit, so that a changed limit applies at once."""

    def check(self, caller: LimitHolder) -> None:
        """Take one token for a request. Raises HttpProblem if none is left, with the seconds until there is one."""
        per_minute = caller.limits.requests_per_minute
        if per_minute is None:
            return
        now = self.clock()
        bucket = self._buckets.get((caller.name, per_minute))
        if bucket is None:
            bucket = TokenBucket(per_second=per_minute / _MINUTE, burst=per_minute)
            self._buckets[caller.name, per_minute] = bucket
        if not bucket.available(now):
            seconds = bucket.ready_at(now) - now
            detail = f"the API key {caller.name} may send {per_minute} requests in a minute and has sent them"
            raise too_many(detail, kind="rate-limited", retry_after=max(math.ceil(seconds - 1e-6), 1))
        bucket.spend(1, now)
