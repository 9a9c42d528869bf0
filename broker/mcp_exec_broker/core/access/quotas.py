"""Quotas of calls: how many calls and bytes an execution may use, and how often a caller may call without one."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from math import ceil, inf
from time import monotonic
from typing import Final
from weakref import WeakValueDictionary

from cachetools import LRUCache, TLRUCache

from mcp_exec_api.code_execution import ToolCalls
from mcp_exec_broker.core.access.limiters import FifoLimiter
from mcp_exec_broker.core.errors import ErrorReason, ToolCallError, build_denial
from mcp_exec_common.broker.grants import MAX_GRANT_SECONDS, DirectGrant, Grant
from mcp_exec_common.util.token_bucket import TokenBucket

MAX_TOOL_NAMES: Final = 50
"""Tools whose calls are counted by name; the rest count as `other`."""
MAX_NAME_CHARACTERS: Final = 4096
"""Characters of these names together; the code chooses the names of unknown tools."""
MAX_SERVERS: Final = 8
"""Servers whose names are kept of an execution."""
_OTHER: Final = "other"
CLOCK_SECONDS: Final = 60
"""Seconds that a quota is kept longer than its grant is valid: clocks differ."""
KEEP_SECONDS: Final = MAX_GRANT_SECONDS + CLOCK_SECONDS
"""Seconds that a quota is kept after a call, and after its end if nobody says how long its grant may be valid."""
_MAX_QUOTAS: Final = 50_000
"""Quotas in memory, of about 1 KiB each: 100 executions with tools end in each second."""
CONCURRENCY: Final = 10
"""Concurrent calls of one caller; more wait."""
_MINUTE: Final = 60.0
_DENIALS_SECONDS: Final = 600.0
"""Seconds until denied calls are counted from zero, so that their causes are recorded again."""
_MAX_CALLER_QUOTAS: Final = 10_000
"""More than the API keys of a Secret."""


@dataclass(kw_only=True, eq=False)
class WaitingTime:
    """Time while at least one call of one execution waits for an approval, while the execution's clock stands still.

    Calls that wait at the same time count once.
    """

    clock: Callable[[], float] = monotonic
    _passed: float = 0.0
    """Seconds until the last time without a waiting call."""
    _since: float = 0.0
    """When the first of the calls that wait now began to."""
    _deadlines: dict[object, float] = field(default_factory=dict)
    """Ends of the waits."""

    @property
    def seconds(self) -> float:
        """Seconds until now."""
        return self._passed + (self.clock() - self._since if self._deadlines else 0.0)

    @property
    def remaining_seconds(self) -> float:
        """Seconds until the last of the waiting calls is denied; 0 if none waits."""
        return max(0.0, max(self._deadlines.values()) - self.clock()) if self._deadlines else 0.0

    @contextmanager
    def wait(self, seconds: float) -> Iterator[None]:
        """Count the time inside the context, which the caller limits to `seconds`."""
        key, begin = object(), self.clock()
        if not self._deadlines:
            self._since = begin
        self._deadlines[key] = begin + seconds
        try:
            yield
        finally:
            del self._deadlines[key]
            if not self._deadlines:
                self._passed += self.clock() - self._since


@dataclass(frozen=True, kw_only=True)
class ExecutionUsage:
    """What an execution has used of its budget, as the audit log counts it."""

    uid: str
    calls: int = 0
    failed: int = 0
    denied: int = 0
    bytes_in: int = 0
    """Bytes of results."""
    bytes_out: int = 0
    """Bytes of arguments."""
    is_closed: bool = False
    keep_seconds: float = KEEP_SECONDS
    """How much longer it is kept."""


@dataclass(frozen=True, kw_only=True)
class ExecutionBudget:
    """Limits of one execution, in addition to the number of calls in its grant."""

    concurrency: int = 10
    """Concurrent calls; more wait."""
    argument_bytes: int = 256 * 1024 * 1024
    """Bytes of all arguments."""
    result_bytes: int = 512 * 1024 * 1024
    """Bytes of all results."""


class ExecutionQuota:
    """Tool calls of one execution, counted against its limits."""

    def __init__(self, grant: Grant | None, budget: ExecutionBudget) -> None:
        self.grant = grant
        """None for an execution that has made no call since this process started, or has ended."""
        self.is_closed = False
        self.keep_seconds: float = KEEP_SECONDS
        """Seconds that it is kept after its last use."""
        self.denied_calls = 0
        """Calls that were denied before their audit record was written."""
        self.limiter = FifoLimiter()
        """Limits concurrent calls."""
        self.waiting = WaitingTime()
        """Time that calls wait for approvals."""
        self._budget = budget
        self._total = self._failed = self._bytes_in = self._bytes_out = 0
        self._by_tool: dict[str, int] = {}
        self._servers: set[str] = set()
        self._close_callbacks: dict[object, Callable[[], None]] = {}

    @property
    def tool_calls(self) -> ToolCalls:
        """The counted calls."""
        return ToolCalls(total=self._total, failed=self._failed, by_tool=dict(self._by_tool), bytes_in=self._bytes_in)

    def restore(self, usage: ExecutionUsage) -> None:
        """Continue with what an earlier process counted. Calls by tool are unknown and count as `other`."""
        self._total, self._failed, self.denied_calls = usage.calls, usage.failed, usage.denied
        self._bytes_in, self._bytes_out = usage.bytes_in, usage.bytes_out
        self._by_tool = {_OTHER: usage.calls} if usage.calls else {}
        self.is_closed = usage.is_closed
        if usage.is_closed:
            self.keep_seconds = usage.keep_seconds

    def begin_call(self, tool: str, *, argument_bytes: int) -> None:
        """Count a call of SERVER.TOOL, even if it is denied; `end_call` must follow in any case.

        Raises ToolCallError (BudgetExceeded, ExecutionEnded).
        """
        name = tool if tool in self._by_tool or self._has_room_for(tool) else _OTHER
        self._by_tool[name] = self._by_tool.get(name, 0) + 1
        self._total += 1
        if self.is_closed:
            raise _build_ended_error()
        max_calls = 0 if self.grant is None else self.grant.tool_calls
        if self._total > max_calls:
            raise build_denial(
                ErrorReason.BUDGET_EXCEEDED, f"the execution may make {max_calls} tool calls, and has made them"
            )
        if self._bytes_out + argument_bytes > self._budget.argument_bytes:
            raise build_denial(
                ErrorReason.BUDGET_EXCEEDED,
                f"the execution may send {self._budget.argument_bytes} bytes of arguments in all",
            )
        if self._bytes_in >= self._budget.result_bytes:
            raise build_denial(
                ErrorReason.BUDGET_EXCEEDED,
                f"the execution may receive {self._budget.result_bytes} bytes of results in all, and has received them",
            )
        self._bytes_out += argument_bytes

    def _has_room_for(self, tool: str) -> bool:
        names = self._by_tool
        return len(names) < MAX_TOOL_NAMES and sum(map(len, names)) + len(tool) <= MAX_NAME_CHARACTERS

    @property
    def servers(self) -> frozenset[str]:
        """The names of the servers that the execution has called, at most `MAX_SERVERS`."""
        return frozenset(self._servers)

    def add_server(self, name: str) -> None:
        """Note a server that the execution has called."""
        if len(self._servers) < MAX_SERVERS:
            self._servers.add(name)

    def end_call(self, *, failed: bool, result_bytes: int) -> None:
        """Count the end of a call, and the bytes sent to the sandbox."""
        self._failed += failed
        self._bytes_in += result_bytes

    @asynccontextmanager
    async def acquire_slot(self) -> AsyncIterator[None]:
        """Hold one of the execution's slots, after a wait that the caller must limit."""
        await self.limiter.acquire(self._budget.concurrency)
        try:
            if self.is_closed:
                raise _build_ended_error()
            yield
        finally:
            self.limiter.release(self._budget.concurrency)

    def add_close_callback(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back once when the execution is closed, or now if it is; return a function that removes the callback."""
        if self.is_closed:
            callback()
            return lambda: None
        key = object()
        self._close_callbacks[key] = callback

        def remove() -> None:
            self._close_callbacks.pop(key, None)

        return remove

    def close(self) -> None:
        """Deny all further calls, and run the callbacks."""
        self.is_closed = True
        self.grant = None  # it may have many tools, and the quota is kept for minutes
        callbacks, self._close_callbacks = list(self._close_callbacks.values()), {}
        for callback in callbacks:
            callback()


def _build_ended_error() -> ToolCallError:
    return build_denial(ErrorReason.EXECUTION_ENDED, "the execution has ended")


class ExecutionQuotas:
    """Quotas by execution UID.

    A quota is kept longer after its last call or its end than any grant is valid, so that no execution starts again
    with a full budget. Waits for approvals prolong a grant, and each ends with its call. If too many are kept, calls of
    further executions are denied: none is dropped early.
    """

    def __init__(
        self,
        *,
        budget: ExecutionBudget | None = None,
        clock: Callable[[], float] = monotonic,
        max_quotas: int = _MAX_QUOTAS,
    ) -> None:
        self._budget = budget or ExecutionBudget()
        self._max_quotas = max_quotas
        self._kept: TLRUCache[str, ExecutionQuota] = TLRUCache(
            inf, ttu=lambda uid, quota, now: now + quota.keep_seconds, timer=clock
        )
        self._referenced: WeakValueDictionary[str, ExecutionQuota] = WeakValueDictionary()
        """Also those that expired while a call used them."""

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def has_open(self) -> bool:
        """Whether an execution that has made calls may make more."""
        return any(not quota.is_closed for quota in list(self._referenced.values()))

    def get_or_create(self, grant: Grant) -> ExecutionQuota:
        """Return the execution's quota; its first call creates it. Raises ToolCallError (RateLimited) if it cannot."""
        quota = self.find(grant.execution)
        if quota is None:
            if len(self._kept) >= self._max_quotas:
                raise build_denial(
                    ErrorReason.RATE_LIMITED,
                    f"this broker counts the calls of {self._max_quotas} executions, which is its limit",
                )
            quota = ExecutionQuota(grant, self._budget)
        elif quota.grant is None and not quota.is_closed:
            quota.grant = grant
        self._keep(grant.execution, quota)
        return quota

    def find(self, uid: str) -> ExecutionQuota | None:
        """Return the execution's quota, or None if there is none."""
        return self._kept.get(uid) or self._referenced.get(uid)

    def renew(self, uid: str, quota: ExecutionQuota) -> None:
        """Keep a quota for its whole time after a call. The call may have waited longer for an approval."""
        self._keep(uid, quota)

    def get_waiting_seconds(self, uid: str) -> float:
        """Return the seconds that waits for approvals add to the grant of an execution."""
        quota = self.find(uid)
        return 0.0 if quota is None else quota.waiting.seconds

    def close_execution(self, uid: str, *, grant_seconds: int = MAX_GRANT_SECONDS) -> ExecutionQuota:
        """Deny all further calls of an execution, even if it has made none yet.

        `grant_seconds` is the longest time that a grant of it may still be valid.
        """
        quota = self.find(uid) or ExecutionQuota(None, self._budget)
        quota.keep_seconds = grant_seconds + CLOCK_SECONDS
        self._keep(uid, quota)
        quota.close()
        return quota

    def restore(self, usage: ExecutionUsage) -> None:
        """Add the quota of an execution whose calls an earlier process counted."""
        quota = ExecutionQuota(None, self._budget)
        quota.restore(usage)
        self._keep(usage.uid, quota)

    def _keep(self, uid: str, quota: ExecutionQuota) -> None:
        self._kept[uid] = self._referenced[uid] = quota


class CallerQuota:
    """Calls of one caller, counted against its limits."""

    is_closed: Final = False

    def __init__(self, calls_per_minute: int, *, clock: Callable[[], float]) -> None:
        self.calls_per_minute = calls_per_minute
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
        """Do nothing: a caller's quota counts beginnings."""

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
    """Quotas by caller and namespace, of this replica only.

    A quota that nobody used for a minute is full again, so that dropping it changes nothing.
    """

    def __init__(self, *, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._recent: LRUCache[str, CallerQuota] = LRUCache(_MAX_CALLER_QUOTAS)
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
