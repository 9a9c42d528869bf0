"""Quotas of executions: how many tool calls and bytes each one may use."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from time import monotonic
from typing import Final
from weakref import WeakValueDictionary

from cachetools import TTLCache

from mcp_exec_api.code_execution import ToolCalls
from mcp_exec_broker.access.limiters import FifoLimiter
from mcp_exec_broker.errors import ErrorReason, ToolCallError, build_denial
from mcp_exec_common.broker.grants import Grant

MAX_TOOL_NAMES: Final = 50
"""Tools whose calls are counted by name; the rest count as `other`."""
_OTHER: Final = "other"
_KEEP_SECONDS: Final = 3600.0
_MAX_QUOTAS: Final = 10_000


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
        """None for an execution that ended before its first call."""
        self.is_closed = False
        self.active_calls = 0
        """Calls that began and have not ended."""
        self.denied_calls = 0
        """Calls that were denied before their audit record was written."""
        self.limiter = FifoLimiter()
        """Limits concurrent calls."""
        self._budget = budget
        self._total = self._failed = self._bytes_in = self._bytes_out = 0
        self._by_tool: dict[str, int] = {}
        self._close_callbacks: dict[object, Callable[[], None]] = {}

    @property
    def tool_calls(self) -> ToolCalls:
        """The counted calls."""
        return ToolCalls(total=self._total, failed=self._failed, by_tool=dict(self._by_tool), bytes_in=self._bytes_in)

    def begin_call(self, tool: str, *, argument_bytes: int) -> None:
        """Count a call of SERVER.TOOL, even if it is denied; `end_call` must follow in any case.

        Raises ToolCallError (BudgetExceeded, ExecutionEnded).
        """
        name = tool if tool in self._by_tool or len(self._by_tool) < MAX_TOOL_NAMES else _OTHER
        self._by_tool[name] = self._by_tool.get(name, 0) + 1
        self._total += 1
        self.active_calls += 1
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

    def end_call(self, *, failed: bool, result_bytes: int) -> None:
        """Count the end of a call, and the bytes sent to the sandbox."""
        self.active_calls -= 1
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
        callbacks, self._close_callbacks = list(self._close_callbacks.values()), {}
        for callback in callbacks:
            callback()


def _build_ended_error() -> ToolCallError:
    return build_denial(ErrorReason.EXECUTION_ENDED, "the execution has ended")


class ExecutionQuotas:
    """Quotas by execution UID.

    A quota is kept for an hour after its last call or its end, at most 10,000 of them, and in any case as long as a
    call uses it. A grant expires earlier, so that no execution can start again with a full budget.
    """

    def __init__(self, *, budget: ExecutionBudget | None = None, clock: Callable[[], float] = monotonic) -> None:
        self._budget = budget or ExecutionBudget()
        self._recent: TTLCache[str, ExecutionQuota] = TTLCache(_MAX_QUOTAS, _KEEP_SECONDS, timer=clock)
        self._referenced: WeakValueDictionary[str, ExecutionQuota] = WeakValueDictionary()
        """Also those that were evicted while a call used them."""

    def get_or_create(self, grant: Grant) -> ExecutionQuota:
        """Return the execution's quota; its first call creates it."""
        return self._renew(grant.execution, grant)

    def find(self, uid: str) -> ExecutionQuota | None:
        """Return the execution's quota, or None if there is none."""
        return self._recent.get(uid) or self._referenced.get(uid)

    def close_execution(self, uid: str) -> ExecutionQuota:
        """Deny all further calls of an execution, even if it has made none yet."""
        quota = self._renew(uid, None)
        quota.close()
        return quota

    def count_active_calls(self) -> int:
        """Return the number of calls in progress of all executions."""
        return sum(quota.active_calls for quota in list(self._referenced.values()))

    def _renew(self, uid: str, grant: Grant | None) -> ExecutionQuota:
        quota = self.find(uid) or ExecutionQuota(grant, self._budget)
        self._recent[uid] = self._referenced[uid] = quota
        return quota
