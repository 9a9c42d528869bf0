"""How many requests an API key may make in a minute: a token bucket for each key, of this replica alone.

Replicas don't ask each other: a key whose requests come to all of them alike may make so many times as many.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from mcp_exec_gateway.auth.authenticator import Caller
from mcp_exec_gateway.http.problems import too_many

_MINUTE: Final = 60.0
_MOST_BUCKETS: Final = 4096


@dataclass(kw_only=True)
class _Bucket:
    per_minute: int
    tokens: float
    at: float

    def refill(self, now: float) -> None:
        gained = (now - self.at) * self.per_minute / _MINUTE
        self.tokens, self.at = min(self.tokens + gained, float(self.per_minute)), now


@dataclass(kw_only=True)
class Rates:
    """The buckets of the keys that have a limit. One starts full."""

    clock: Callable[[], float] = time.monotonic
    _buckets: dict[str, _Bucket] = field(default_factory=dict, init=False)

    def check(self, caller: Caller) -> None:
        """Takes one token for a request. Raises Problem, with the seconds until there is one, where none is left."""
        per_minute = caller.limits.requests_per_minute
        if per_minute is None:
            return
        now = self.clock()
        bucket = self._buckets.get(caller.name)
        if bucket is None or bucket.per_minute != per_minute:
            self._make_room(now)
            bucket = self._buckets[caller.name] = _Bucket(per_minute=per_minute, tokens=float(per_minute), at=now)
        bucket.refill(now)
        if bucket.tokens < 1:
            seconds = (1 - bucket.tokens) * _MINUTE / per_minute
            detail = f"the API key {caller.name} may make {per_minute} requests a minute, and has made them"
            raise too_many(detail, kind="rate-limited", retry_after=max(math.ceil(seconds), 1))
        bucket.tokens -= 1

    def _make_room(self, now: float) -> None:
        """Forgets buckets that are full, as new ones are: of keys that came and went."""
        if len(self._buckets) < _MOST_BUCKETS:
            return
        for name, bucket in list(self._buckets.items()):
            bucket.refill(now)
            if bucket.tokens >= bucket.per_minute:
                del self._buckets[name]
