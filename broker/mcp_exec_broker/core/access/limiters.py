"""Limits on concurrent work: a FIFO limiter, each ToolServer's concurrency and rate, and places for requests."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from time import monotonic

from mcp_exec_api.tool_server import ServerLimits
from mcp_exec_broker.core.errors import ErrorReason, build_denial


class FifoLimiter:
    """Semaphore that serves waiters in their order, and whose limit may change with each use."""

    def __init__(self) -> None:
        self.active = 0
        self._waiters: deque[asyncio.Future[None]] = deque()

    @property
    def is_idle(self) -> bool:
        """Whether no slot is in use and nobody waits for one."""
        return not self.active and not self._waiters

    async def acquire(self, limit: int) -> None:
        """Wait for a slot, to be returned by `release`. Cancelling the wait is safe."""
        if self.active < limit and not self._waiters:
            self.active += 1
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():  # it received a slot at the same moment
                self.release(limit)
            else:
                self._waiters.remove(waiter)
            raise

    def release(self, limit: int) -> None:
        """Return a slot, and pass it to the first waiter unless a lowered limit is still exceeded."""
        self.active -= 1
        while self._waiters and self.active < limit:
            waiter = self._waiters.popleft()
            if not waiter.done():
                self.active += 1
                waiter.set_result(None)


@dataclass(kw_only=True)
class _ServerUse:
    limiter: FifoLimiter = field(default_factory=FifoLimiter)
    started: deque[float] = field(default_factory=deque)
    """Start times of the last minute's calls, if they are limited."""


class ServerConcurrency:
    """Calls of all executions in progress at each ToolServer, at this replica."""

    def __init__(self, *, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._uses: dict[tuple[str, str], _ServerUse] = {}

    @asynccontextmanager
    async def acquire_slot(self, key: tuple[str, str], limits: ServerLimits) -> AsyncIterator[None]:
        """Hold one of the server's slots, after a wait that the caller must limit. `key` is namespace and name.

        Raises ToolCallError (RateLimited) if the calls of this minute are used up.
        """
        use = self._uses.setdefault(key, _ServerUse())
        self._check_rate(key[1], use, limits)
        await use.limiter.acquire(limits.concurrency)
        try:
            yield
        finally:
            use.limiter.release(limits.concurrency)

    def remove(self, key: tuple[str, str]) -> None:
        """Drop the state of a deleted server, unless calls still use it."""
        if (use := self._uses.get(key)) is not None and use.limiter.is_idle:
            del self._uses[key]

    def _check_rate(self, name: str, use: _ServerUse, limits: ServerLimits) -> None:
        if limits.calls_per_minute is None:
            use.started.clear()
            return
        now = self._clock()
        while use.started and use.started[0] <= now - 60:
            use.started.popleft()
        if len(use.started) >= limits.calls_per_minute:
            delay = use.started[0] + 60 - now
            raise build_denial(
                ErrorReason.RATE_LIMITED,
                f"{name} takes {limits.calls_per_minute} calls a minute; the next one in {delay:.0f} s",
            )
        use.started.append(now)


@dataclass(kw_only=True, eq=False)
class SharedPlaces:
    """Places for requests that are answered at once. Requests of one namespace never keep another waiting."""

    total: int
    of_namespace: int
    """Places that one namespace may fill."""
    _all: FifoLimiter = field(default_factory=FifoLimiter)
    _namespaces: dict[str, FifoLimiter] = field(default_factory=dict)

    def __len__(self) -> int:
        """Return the number of namespaces that hold a place or wait for one."""
        return len(self._namespaces)

    @asynccontextmanager
    async def hold(self, namespace: str) -> AsyncIterator[None]:
        """Hold a place while the context is open, after a wait that the caller must limit."""
        own = self._namespaces.setdefault(namespace, FifoLimiter())
        await own.acquire(self.of_namespace)
        try:
            await self._all.acquire(self.total)
            try:
                yield
            finally:
                self._all.release(self.total)
        finally:
            own.release(self.of_namespace)
            if own.is_idle:
                self._namespaces.pop(namespace, None)
