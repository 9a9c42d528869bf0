"""Those that wait for a pod of one pool: who is next, where each stands, how long it may take. No I/O."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from mcp_exec_api.code_execution import Priority, QueuePlace
from mcp_exec_operator.pods.cache import Pod
from mcp_exec_operator.queueing.fair_queue import FairQueue
from mcp_exec_operator.queueing.throughput import Throughput

_PLACES_SECONDS: Final = 1.0
"""How long places that were counted are good enough: each count goes over all that wait."""


class QueueFull(Exception):
    """As many wait as may."""


@dataclass(kw_only=True, eq=False)
class Waiter:
    """One execution that waits for a pod. Its future yields the pod."""

    future: asyncio.Future[Pod]
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    """Set where it should look whether it still waits."""

    async def pause(self, seconds: float) -> None:
        """Until it has its pod, is woken, or so many seconds are over."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.woken.wait()


@dataclass(kw_only=True, eq=False)
class WaitQueue:
    """A bounded, fair queue. Times are of a monotonic clock, in seconds."""

    _queue: FairQueue[Waiter] = field(default_factory=FairQueue)
    _throughput: Throughput = field(default_factory=Throughput)
    _places: dict[Waiter, int] = field(default_factory=dict)
    _placed_at: float = 0.0

    def join(self, waiter: Waiter, *, caller: str, priority: Priority, most: int, now: float) -> None:
        """Raises QueueFull where `most` wait already."""
        if len(self) >= most:
            raise QueueFull(f"{len(self)} executions wait for a pod, of {most} that may")
        if not self:
            self._throughput.begin(now)
        self._queue.join(waiter, caller=caller, priority=priority)

    def leave(self, waiter: Waiter) -> None:
        """It waits no longer, wherever it stood."""
        self._queue.leave(waiter)
        self._settle()

    def pop(self, now: float) -> Waiter:
        """The next one, which is about to be given a pod. Raises IndexError where nobody waits."""
        waiter = self._queue.pop()
        self._throughput.served(now)
        self._settle()
        return waiter

    def place(self, waiter: Waiter, now: float) -> QueuePlace:
        """Where one that waits stands."""
        if waiter not in self._places or now - self._placed_at >= _PLACES_SECONDS:
            self._places = {each: number for number, each in enumerate(self._queue.order(), start=1)}
            self._placed_at = now
        position = min(self._places[waiter], len(self))
        return QueuePlace(position=position, of=len(self), expected_wait_seconds=self._seconds_for(position, now))

    def expected_wait(self, now: float) -> float | None:
        """Seconds until all that wait have a pod; None where nobody waits, or it is not known."""
        return self._seconds_for(len(self), now) if self else None

    def __len__(self) -> int:
        return len(self._queue)

    def _seconds_for(self, pods: int, now: float) -> float | None:
        each = self._throughput.seconds_each(now)
        if each is None:
            return None
        seconds = pods * each
        return round(seconds, 1) if seconds < 10 else float(round(seconds))

    def _settle(self) -> None:
        if not self:
            self._throughput.end()
            self._places = {}
