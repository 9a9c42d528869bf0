"""How much one execution may use of tools, and all executions together of one server."""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from time import monotonic
from typing import Final

from mcp_exec_api.code_execution import ToolCalls
from mcp_exec_api.tool_server import ServerLimits
from mcp_exec_broker.errors import ErrorReason, ToolCallError, build_denial
from mcp_exec_broker.recent import Recent
from mcp_exec_common.broker.grants import Grant

log = logging.getLogger(__name__)

MAX_TOOL_NAMES: Final = 50
"""Tools that an execution's calls are counted by; the rest are `other`."""
_OTHER: Final = "other"
_KEEP_SECONDS: Final = 3600.0
_KEEP: Final = 10_000


@dataclass(frozen=True, kw_only=True)
class ExecutionBudget:
    """Bounds of one execution, beside the calls that its spec allows."""

    concurrency: int = 10
    """Calls at once; more wait."""
    argument_bytes: int = 256 * 1024 * 1024
    """Bytes of all arguments."""
    result_bytes: int = 512 * 1024 * 1024
    """Bytes of all results."""


class FifoLimiter:
    """Lets so many in at once, in the order in which they came. How many may change."""

    def __init__(self) -> None:
        self.inside = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def idle(self) -> bool:
        """Whether nobody is inside or waits."""
        return not self.inside and not self._waiting

    async def enter(self, limit: int) -> None:
        """Waits for a place; leave() gives it back. Cancelling it is safe."""
        if self.inside < limit and not self._waiting:
            self.inside += 1
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():  # it was given the place at the same moment
                self.leave(limit)
            else:
                self._waiting.remove(place)
            raise

    def leave(self, limit: int) -> None:
        """Gives the place to who waits longest, if there may still be as many."""
        self.inside -= 1
        while self._waiting and self.inside < limit:
            place = self._waiting.popleft()
            if not place.done():
                self.inside += 1
                place.set_result(None)


class ExecutionQuota:
    """One execution's use of tools."""

    def __init__(self, grant: Grant | None, budget: ExecutionBudget) -> None:
        self.grant = grant
        """None for an execution that had ended before it made a call."""
        self.closed = False
        self.under_way = 0
        """Calls that began and did not end."""
        self.denied = 0
        """Calls that were denied before the audit had them."""
        self._budget = budget
        self._gate = FifoLimiter()
        self._total = self._failed = self._bytes_in = self._bytes_out = 0
        self._by_tool: dict[str, int] = {}
        self._on_close: dict[object, Callable[[], None]] = {}

    @property
    def tool_calls(self) -> ToolCalls:
        """Its calls, counted."""
        return ToolCalls(total=self._total, failed=self._failed, by_tool=dict(self._by_tool), bytes_in=self._bytes_in)

    def begin(self, tool: str, *, argument_bytes: int) -> None:
        """Counts a call (SERVER.TOOL), also one that is denied; end() follows in any case.

        Raises Failure (BudgetExceeded, ExecutionEnded).
        """
        name = tool if tool in self._by_tool or len(self._by_tool) < MAX_TOOL_NAMES else _OTHER
        self._by_tool[name] = self._by_tool.get(name, 0) + 1
        self._total += 1
        self.under_way += 1
        if self.closed:
            raise _ended()
        allowed = 0 if self.grant is None else self.grant.tool_calls
        if self._total > allowed:
            raise build_denial(
                ErrorReason.BUDGET_EXCEEDED, f"the execution may make {allowed} tool calls, and has made them"
            )
        if self._bytes_out + argument_bytes > self._budget.argument_bytes:
            raise build_denial(
                ErrorReason.BUDGET_EXCEEDED,
                f"the execution may send {self._budget.argument_bytes} bytes of arguments in all",
            )
        if self._bytes_in >= self._budget.result_bytes:
            raise build_denial(
                ErrorReason.BUDGET_EXCEEDED,
                f"the execution may have {self._budget.result_bytes} bytes of results in all, and has had them",
            )
        self._bytes_out += argument_bytes

    def end(self, *, failed: bool, result_bytes: int) -> None:
        """Counts how a call that began ended, and the bytes that go into the sandbox."""
        self.under_way -= 1
        self._failed += failed
        self._bytes_in += result_bytes

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """One of the execution's calls at once; waits for it, which the caller bounds."""
        await self._gate.enter(self._budget.concurrency)
        try:
            if self.closed:
                raise _ended()
            yield
        finally:
            self._gate.leave(self._budget.concurrency)

    def on_close(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Calls back, once, when the execution is closed (at once where it is); returns what undoes that."""
        if self.closed:
            callback()
            return lambda: None
        key = object()
        self._on_close[key] = callback
        return lambda: _void(self._on_close.pop(key, None))

    def close(self) -> None:
        """No call begins any more; those that asked for it are called back."""
        self.closed = True
        callbacks, self._on_close = list(self._on_close.values()), {}
        for callback in callbacks:
            callback()


def _void(value: object) -> None:
    """Drops a value."""


def _ended() -> ToolCallError:
    return build_denial(ErrorReason.EXECUTION_ENDED, "the execution has ended")


class ExecutionQuotas:
    """The accounts of all executions.

    One is kept for an hour after its last call or its end, and ten thousand at most: those with calls under way stay.
    A grant is void before that, so that a forgotten execution can't start afresh with a whole budget.
    """

    def __init__(self, *, budget: ExecutionBudget | None = None, clock: Callable[[], float] = monotonic) -> None:
        self._budget = budget or ExecutionBudget()
        self._kept: Recent[str, ExecutionQuota] = Recent(
            keep_seconds=_KEEP_SECONDS, keep=_KEEP, held=lambda account: account.under_way > 0, clock=clock
        )

    def open(self, grant: Grant) -> ExecutionQuota:
        """The execution's account; made by its first call."""
        account = self._kept.get(grant.execution)
        if account is None:
            account = ExecutionQuota(grant, self._budget)
        self._kept.put(grant.execution, account)
        return account

    def find(self, uid: str) -> ExecutionQuota | None:
        """The account, where there is one."""
        return self._kept.get(uid)

    def close(self, uid: str) -> ExecutionQuota:
        """The execution has ended, also one that was never seen: no call of it begins any more."""
        account = self._kept.get(uid) or ExecutionQuota(None, self._budget)
        self._kept.put(uid, account)
        account.close()
        return account

    @property
    def under_way(self) -> int:
        """Calls under way, of all executions."""
        return sum(account.under_way for account in self._kept.values())


@dataclass(kw_only=True)
class _Use:
    gate: FifoLimiter = field(default_factory=FifoLimiter)
    begun: deque[float] = field(default_factory=deque)
    """When the calls of the last minute began, where they are limited."""


class ServerConcurrency:
    """The use of each server by all executions at this replica."""

    def __init__(self, *, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._uses: dict[tuple[str, str], _Use] = {}

    @asynccontextmanager
    async def slot(self, key: tuple[str, str], limits: ServerLimits) -> AsyncIterator[None]:
        """One of the server's calls at once, by namespace and name; waits for it, which the caller bounds.

        Raises Failure (RateLimited) where the minute's calls are used up.
        """
        use = self._uses.setdefault(key, _Use())
        self._count(key[1], use, limits)
        await use.gate.enter(limits.concurrency)
        try:
            yield
        finally:
            use.gate.leave(limits.concurrency)

    def forget(self, key: tuple[str, str]) -> None:
        """The server is gone."""
        if (use := self._uses.get(key)) is not None and use.gate.idle:
            del self._uses[key]

    def _count(self, name: str, use: _Use, limits: ServerLimits) -> None:
        if limits.calls_per_minute is None:
            use.begun.clear()
            return
        now = self._clock()
        while use.begun and use.begun[0] <= now - 60:
            use.begun.popleft()
        if len(use.begun) >= limits.calls_per_minute:
            wait = use.begun[0] + 60 - now
            raise build_denial(
                ErrorReason.RATE_LIMITED,
                f"{name} takes {limits.calls_per_minute} calls a minute; the next one in {wait:.0f} s",
            )
        use.begun.append(now)
