"""Quotas of callers whose calls come without an execution: a rate, and a number of concurrent calls.

Each replica of the broker counts by itself. A quota that nobody used for a minute is full again, so that dropping it
changes nothing.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from math import ceil
from time import monotonic
from typing import Final
from weakref import WeakValueDictionary

from cachetools import LRUCache

from mcp_exec_broker.access.limiters import FifoLimiter
from mcp_exec_broker.errors import ErrorReason, build_denial
from mcp_exec_common.broker.grants import DirectGrant
from mcp_exec_common.util.token_bucket import TokenBucket

CONCURRENCY: Final = 10
"""Concurrent calls of one caller; more wait."""
_MINUTE: Final = 60.0
_DENIALS_SECONDS: Final = 600.0
"""Seconds after which denied calls are counted from zero, so that their causes are recorded again."""
_MAX_QUOTAS: Final = 10_000
"""More than the API keys of a Secret."""


class CallerQuota:
    """Calls of one caller, counted against its limits."""

    is_closed: Final = False

    def __init__(self, calls_per_minute: int, *, clock: Callable[[], float]) -> None:
        self.calls_per_minute = calls_per_minute
        self.active_calls = 0
        """Calls that began and have not ended."""
        self.denied_calls = 0
        """Calls that were denied before their audit record was written, in these ten minutes."""
        self._clock = clock
        self._bucket = TokenBucket(per_second=calls_per_minute / _MINUTE, burst=calls_per_minute)
        self._limiter = FifoLimiter()
        self._denials_end = 0.0

    def begin_call(self, tool: str, *, argument_bytes: int) -> None:
        """Count a call, even if it is denied; `end_call` must follow in any case.

        Raises ToolCallError (RateLimited).
        """
        now = self._clock()
        self.active_calls += 1
        if now >= self._denials_end:
            self.denied_calls, self._denials_end = 0, now + _DENIALS_SECONDS
        if not self._bucket.available(now):
            seconds = max(ceil(self._bucket.ready_at(now) - now), 1)
            raise build_denial(
                ErrorReason.RATE_LIMITED,
                f"the caller may make {self.calls_per_minute} direct calls in a minute, and has made them; "
                f"the next one in {seconds} s",
            )
        self._bucket.spend(1, now)

    def end_call(self, *, failed: bool, result_bytes: int) -> None:
        """Count the end of a call."""
        self.active_calls -= 1

    @asynccontextmanager
    async def acquire_slot(self) -> AsyncIterator[None]:
        """Hold one of the caller's slots, after a wait that must be limited."""
        await self._limiter.acquire(CONCURRENCY)
        try:
            yield
        finally:
            self._limiter.release(CONCURRENCY)

    def add_close_callback(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Return a function that does nothing: the quota of a caller is never closed."""
        return lambda: None


class CallerQuotas:
    """Quotas by caller and namespace."""

    def __init__(self, *, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._recent: LRUCache[str, CallerQuota] = LRUCache(_MAX_QUOTAS)
        self._referenced: WeakValueDictionary[str, CallerQuota] = WeakValueDictionary()
        """Also those that were dropped while a call used them."""

    def get_or_create(self, grant: DirectGrant) -> CallerQuota:
        """Return the caller's quota. A limit that has changed starts with a full one."""
        account = grant.account
        quota = self._recent.get(account) or self._referenced.get(account)
        if quota is None or quota.calls_per_minute != grant.calls_per_minute:
            quota = CallerQuota(grant.calls_per_minute, clock=self._clock)
        self._recent[account] = self._referenced[account] = quota
        return quota
