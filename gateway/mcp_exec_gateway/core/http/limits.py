"""Limits of what a replica holds at once: memory of requests and responses in flight, and requests that stay open."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, TypeVar

from mcp_exec_gateway.core.http.problems import too_many, unavailable

Result = TypeVar("Result")

IN_FLIGHT_BYTES: Final = 128 * 1024 * 1024
"""A quarter of the memory limit of a gateway's container."""
NAMESPACE_BYTES: Final = 96 * 1024 * 1024
"""The part that the requests of one namespace may use, so that none can use up the memory of all."""


@dataclass(kw_only=True, eq=False)
class Reservation:
    """Memory that one request has reserved."""

    budget: "MemoryBudget"
    namespace: str
    size: int = 0

    def resize(self, size: int) -> bool:
        """Reserve another size instead. Return False, and change nothing, if there is not enough memory."""
        if not self.budget.take(self.namespace, size - self.size):
            return False
        self.size = size
        return True

    def require(self, size: int) -> None:
        """Reserve another size instead. Raises HttpProblem, a 503, if there is not enough memory."""
        if not self.resize(size):
            raise unavailable(self.budget.explain(self.namespace))

    def release(self) -> None:
        """Reserve nothing more."""
        self.resize(0)


@dataclass(kw_only=True, eq=False)
class MemoryBudget:
    """Memory for bodies, code, context and output of all requests in flight. No request waits for memory."""

    limit: int = IN_FLIGHT_BYTES
    namespace_limit: int = NAMESPACE_BYTES
    used: int = field(default=0, init=False)
    _by_namespace: Counter[str] = field(default_factory=Counter, init=False)

    @contextmanager
    def reserving(self, namespace: str) -> Iterator[Reservation]:
        """Yield a reservation of nothing yet for a request in a namespace, and release it at the end."""
        reservation = Reservation(budget=self, namespace=namespace)
        try:
            yield reservation
        finally:
            reservation.release()

    def take(self, namespace: str, size: int) -> bool:
        """Take memory, or give it back if `size` is negative. Return False, and change nothing, if it is not there."""
        own = self._by_namespace[namespace] + size
        if size > 0 and (self.used + size > self.limit or own > self.namespace_limit):
            return False
        self.used += size
        self._by_namespace[namespace] = own
        if not own:
            del self._by_namespace[namespace]
        return True

    def explain(self, namespace: str) -> str:
        """Return how much memory is used, by all and by a namespace."""
        return (
            f"requests in flight use {self.used} of {self.limit} bytes of this replica's memory, and those of "
            f"namespace {namespace} {self._by_namespace[namespace]} of {self.namespace_limit}"
        )


@dataclass(kw_only=True)
class RequestSlots:
    """Counter that limits the open requests of one kind, in total and for each holder."""

    kind: str
    """What is counted, in the plural: `event streams`."""
    max_total: int
    max_each: int
    """Maximum of one holder, unless it has a limit of its own."""
    retry_seconds: int = 5
    """Seconds after which a refused client should try again."""
    open: int = field(default=0, init=False)
    _by_holder: Counter[str] = field(default_factory=Counter, init=False)

    def count(self, holder: str) -> int:
        """Return the slots that a holder has."""
        return self._by_holder[holder]

    @contextmanager
    def hold(self, holder: str, *, limit: int | None = None) -> Iterator[None]:
        """Hold a slot. Raises HttpProblem if the holder, by its own limit if it has one, or the replica has no more."""
        allowed = self.max_each if limit is None else limit
        if self._by_holder[holder] >= allowed:
            detail = f"{holder} has {self._by_holder[holder]} open {self.kind}, and {allowed} are allowed"
            raise too_many(detail, retry_after=self.retry_seconds)
        if self.open >= self.max_total:
            detail = f"{self.open} {self.kind} are open, which is the limit of this replica"
            raise too_many(detail, retry_after=self.retry_seconds)
        self.open += 1
        self._by_holder[holder] += 1
        try:
            yield
        finally:
            self.open -= 1
            self._by_holder[holder] -= 1
            if not self._by_holder[holder]:
                del self._by_holder[holder]


_MAX_FOLLOWERS: Final = 8
"""Event streams of one execution, of the 64 connections that a supervisor accepts."""


class StreamSlots:
    """Limits of the open event streams of executions, for each caller and each execution."""

    def __init__(self, *, max_total: int, max_each: int) -> None:
        self.by_caller = RequestSlots(kind="event streams", max_total=max_total, max_each=max_each)
        self.by_execution = RequestSlots(kind="event streams", max_total=max_total, max_each=_MAX_FOLLOWERS)

    @property
    def open(self) -> int:
        """Number of open streams."""
        return self.by_caller.open

    @contextmanager
    def hold(self, caller: str, execution: tuple[str, str], *, limit: int | None) -> Iterator[None]:
        """Hold a slot of a caller, by its own limit if it has one, and one of an execution. Raises HttpProblem."""
        with self.by_caller.hold(caller, limit=limit), self.by_execution.hold("/".join(execution)):
            yield


_MAX_RUNNING: Final = 4
"""Threads that work at once. More would not be faster: the interpreter runs one at a time."""
_MAX_WORKS_EACH: Final = 64
_MAX_WORKS: Final = 1024


@dataclass(kw_only=True, eq=False)
class CallerThreads:
    """Threads for work that takes too long for the event loop. Each caller's work is done one after the other."""

    _slots: RequestSlots = field(
        default_factory=lambda: RequestSlots(
            kind="searches of tools and skills", max_total=_MAX_WORKS, max_each=_MAX_WORKS_EACH, retry_seconds=1
        )
    )
    _running: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_MAX_RUNNING))
    _turns: dict[str, asyncio.Lock] = field(default_factory=dict)

    @property
    def waiting(self) -> int:
        """Work that waits or is done."""
        return self._slots.open

    async def run(self, caller: str, work: Callable[[], Result]) -> Result:
        """Return the result of the work. Raises HttpProblem, a 429, if too much work waits."""
        with self._slots.hold(caller):
            turn = self._turns.setdefault(caller, asyncio.Lock())
            try:
                async with turn, self._running:
                    return await _finish(work)
            finally:
                if self._slots.count(caller) == 1:
                    del self._turns[caller]


async def _finish(work: Callable[[], Result]) -> Result:
    """Do the work in a thread. If cancelled, wait for the thread nevertheless: it still takes the caller's turn."""
    task = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise
