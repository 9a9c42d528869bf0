"""Queue of the executions that wait for a pod of one pool: order, positions, expected wait. No I/O."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from mcp_exec_api.code_execution import Priority, QueuePlace
from mcp_exec_operator.pods.cache import Pod
from mcp_exec_operator.queueing.fair_queue import FairQueue
from mcp_exec_operator.queueing.throughput import Throughput

_POSITIONS_SECONDS: Final = 1.0
"""How long computed positions are used: each computation goes over all waiting executions."""


class QueueFull(Exception):
    """The queue has its maximum length."""


@dataclass(kw_only=True, eq=False)
class Waiter:
    """One execution that waits for a pod."""

    future: asyncio.Future[Pod]
    """Yields the pod."""
    wakeup: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the execution should check whether it still waits."""
    owner: str = ""
    """Digest of its owner, whose idle pods it may get; empty if it needs a pod that nobody has used."""
    caller: str = ""
    priority: Priority = Priority.NORMAL

    async def pause(self, seconds: float) -> None:
        """Return when it has its pod, is woken up, or after so many seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.wakeup.wait()


@dataclass(kw_only=True, eq=False)
class WaitQueue:
    """A bounded, fair queue. Times are seconds of a monotonic clock."""

    _queue: FairQueue[Waiter] = field(default_factory=FairQueue)
    _by_owner: dict[str, FairQueue[Waiter]] = field(default_factory=dict)
    """Waiters of each owner, who may get pods of their owner out of their turn in the queue."""
    _throughput: Throughput = field(default_factory=Throughput)
    _positions: dict[Waiter, int] = field(default_factory=dict)
    _computed_at: float = 0.0

    def join(self, waiter: Waiter, *, caller: str, priority: Priority, limit: int, now: float) -> None:
        """Add a waiter. Raises QueueFull if `limit` already wait."""
        if len(self) >= limit:
            raise QueueFull(f"{len(self)} executions wait for a pod, of {limit} that may")
        if not self:
            self._throughput.start(now)
        self._queue.join(waiter, caller=caller, priority=priority)
        waiter.caller, waiter.priority = caller, priority
        if waiter.owner:
            self._by_owner.setdefault(waiter.owner, FairQueue()).join(waiter, caller=caller, priority=priority)

    def leave(self, waiter: Waiter) -> None:
        """Remove a waiter from any position."""
        self._queue.leave(waiter)
        self._forget_owner(waiter)
        self._reset_if_empty()

    def first_of(self, owner: str) -> Waiter | None:
        """Return the next waiter of an owner, or None."""
        queue = self._by_owner.get(owner)
        return queue.peek() if queue is not None else None

    def pop_of(self, owner: str, now: float) -> Waiter:
        """Remove and return the next waiter of an owner, which gets a pod of its owner. Raises KeyError if none."""
        waiter = self._by_owner[owner].pop()
        self._queue.serve(waiter)
        self._note_served(waiter, now)
        return waiter

    def count_by_owner(self) -> dict[str, int]:
        """Return the number of waiters of each owner. Those who need a pod that nobody has used have no owner."""
        counts = {owner: len(queue) for owner, queue in self._by_owner.items()}
        others = len(self) - sum(counts.values())
        return {**counts, "": others} if others else counts

    def peek(self) -> Waiter:
        """Return the next waiter. Raises IndexError if the queue is empty."""
        return self._queue.peek()

    def waiters(self) -> Iterator[Waiter]:
        """Yield all waiters in the order of their arrival."""
        return iter(self._queue)

    def pop(self, now: float) -> Waiter:
        """Remove and return the next waiter, which gets a pod. Raises IndexError if the queue is empty."""
        waiter = self._queue.pop()
        self._note_served(waiter, now)
        return waiter

    def place(self, waiter: Waiter, now: float) -> QueuePlace:
        """Return the position of a waiter."""
        if waiter not in self._positions or now - self._computed_at >= _POSITIONS_SECONDS:
            self._positions = {each: position for position, each in enumerate(self._queue.order(), start=1)}
            self._computed_at = now
        position = min(self._positions[waiter], len(self))
        return QueuePlace(position=position, of=len(self), expected_wait_seconds=self._wait_for(position, now))

    def expected_wait(self, now: float) -> float | None:
        """Return the seconds until all waiters have a pod, or None if the queue is empty or the rate is unknown."""
        return self._wait_for(len(self), now) if self else None

    def __len__(self) -> int:
        return len(self._queue)

    def _wait_for(self, pods: int, now: float) -> float | None:
        interval = self._throughput.interval(now)
        if interval is None:
            return None
        seconds = pods * interval
        return round(seconds, 1) if seconds < 10 else float(round(seconds))

    def _note_served(self, waiter: Waiter, now: float) -> None:
        self._forget_owner(waiter)
        self._throughput.record(now)
        self._reset_if_empty()

    def _forget_owner(self, waiter: Waiter) -> None:
        queue = self._by_owner.get(waiter.owner)
        if queue is not None:
            queue.leave(waiter)
            if not queue:
                del self._by_owner[waiter.owner]

    def _reset_if_empty(self) -> None:
        if not self:
            self._throughput.stop()
            self._positions = {}
