"""Queue of the executions that wait for a pod of one pool: order, positions, expected wait. No I/O, and no clock.

Every operation takes constant time, except `order`.

- There are three priority classes. Within a class callers take turns: between two turns of a waiting caller, each other
  caller has at most one.
- Within a caller's items of a class, first come, first served.
- High comes before Normal before Low. A class that was passed over `PATIENCE` times in a row is served next, once. If
  two classes are due, the other one follows. So of `PATIENCE + 2` consecutive turns at least one is Low's and one is
  Normal's, if items of these classes wait.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Hashable, Iterator
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from mcp_exec_api.code_execution import Priority, QueuePlace
from mcp_exec_operator.core.pods.pod import Pod

PATIENCE: Final = 8
"""Consecutive turns of higher classes that a lower class waits."""
T = TypeVar("T", bound=Hashable)
_SAMPLES: Final = 64
_SAMPLE_SECONDS: Final = 300.0
"""Highest age of a sample that counts."""
_MIN_SAMPLES: Final = 3
"""Samples below which the rate is unknown."""
_POSITIONS_SECONDS: Final = 1.0
"""How long computed positions are used: each computation goes over all waiting executions."""


@dataclass(kw_only=True)
class _PriorityClass(Generic[T]):
    """Waiting items of one priority, by caller; the caller whose turn is next comes first."""

    callers: OrderedDict[str, OrderedDict[T, None]] = field(default_factory=OrderedDict)
    passed: int = 0
    """Turns of higher classes since its last turn."""

    def add(self, item: T, caller: str) -> None:
        """Add an item. A caller without other items comes last."""
        self.callers.setdefault(caller, OrderedDict())[item] = None

    def remove(self, item: T, caller: str) -> None:
        """Remove an item from any position."""
        del self.callers[caller][item]
        if not self.callers[caller]:
            del self.callers[caller]
        if not self.callers:
            self.passed = 0

    def pop(self) -> T:
        """Remove and return the first item of the next caller, who comes last from then on."""
        caller, items = next(iter(self.callers.items()))
        item, _ = items.popitem(last=False)
        if items:
            self.callers.move_to_end(caller)
        else:
            del self.callers[caller]
        self.passed = 0
        return item

    def __copy__(self) -> "_PriorityClass[T]":
        callers = OrderedDict((caller, items.copy()) for caller, items in self.callers.items())
        return _PriorityClass(callers=callers, passed=self.passed)


@dataclass(kw_only=True)
class FairQueue(Generic[T]):
    """Unique waiting items."""

    _classes: dict[Priority, _PriorityClass[T]] = field(
        default_factory=lambda: {each: _PriorityClass() for each in Priority}
    )
    """Highest priority first."""
    _keys: dict[T, tuple[Priority, str]] = field(default_factory=dict)

    def join(self, item: T, *, caller: str, priority: Priority) -> None:
        """Add an item. Raises ValueError if it is already there."""
        if item in self._keys:
            raise ValueError("the item is already in the queue")
        self._keys[item] = (priority, caller)
        self._classes[priority].add(item, caller)

    def leave(self, item: T) -> bool:
        """Remove an item from any position. Return False if it is not there."""
        if item not in self._keys:
            return False
        priority, caller = self._keys.pop(item)
        self._classes[priority].remove(item, caller)
        return True

    def pop(self) -> T:
        """Remove and return the next item. Raises IndexError if the queue is empty."""
        chosen = self._next_class()
        item = self._classes[chosen].pop()
        for priority, each in self._classes.items():
            if priority.rank > chosen.rank and each.callers:
                each.passed += 1
        del self._keys[item]
        return item

    def peek(self) -> T:
        """Return the next item. Raises IndexError if the queue is empty."""
        return next(iter(next(iter(self._classes[self._next_class()].callers.values()))))

    def serve(self, item: T) -> None:
        """Remove an item out of its turn. It was its caller's turn, who comes last in its class."""
        priority, caller = self._keys[item]
        self.leave(item)
        callers = self._classes[priority].callers
        if caller in callers:
            callers.move_to_end(caller)

    def order(self) -> Iterator[T]:
        """Yield all items in the order of their turns, if no other item is added. O(n)."""
        rest: FairQueue[T] = FairQueue(
            _classes={priority: copy(each) for priority, each in self._classes.items()}, _keys=dict(self._keys)
        )
        while rest:
            yield rest.pop()

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[T]:
        """Iterate over all items in the order of their arrival."""
        return iter(self._keys)

    def __contains__(self, item: object) -> bool:
        return item in self._keys

    def _next_class(self) -> Priority:
        waiting = [priority for priority, each in self._classes.items() if each.callers]
        if not waiting:
            raise IndexError("the queue is empty")
        due = [priority for priority in waiting if self._classes[priority].passed >= PATIENCE]
        # the class passed over most often; of equals, the higher one
        return max(due, key=lambda priority: self._classes[priority].passed) if due else waiting[0]


@dataclass(kw_only=True)
class Throughput:
    """Intervals between two executions that got a pod, measured only while executions wait."""

    _samples: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=_SAMPLES))
    """Time of a sample and its interval in seconds."""
    _since: float | None = None
    """Time of the last sample, or of the start of the queue. None while the queue is empty."""

    def start(self, now: float) -> None:
        """Start measuring: the queue is no longer empty."""
        self._since = now

    def record(self, now: float) -> None:
        """Record that an execution got a pod."""
        if self._since is not None:
            self._samples.append((now, now - self._since))
        self._since = now

    def stop(self) -> None:
        """Stop measuring: the queue is empty."""
        self._since = None

    def interval(self, now: float) -> float | None:
        """Return the mean seconds until the next execution gets a pod, or None with too few samples."""
        intervals = [seconds for at, seconds in self._samples if now - at < _SAMPLE_SECONDS]
        if len(intervals) < _MIN_SAMPLES:
            return None
        total, pending = sum(intervals), 0.0 if self._since is None else now - self._since
        # if the next one takes longer than the others did, it counts as if it ended now
        return max(total / len(intervals), (total + pending) / (len(intervals) + 1))


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

    def changed(self) -> None:
        """Let the execution check whether it still waits."""
        self.wakeup.set()

    async def pause(self, seconds: float) -> None:
        """Return when it has its pod, is woken up, or after so many seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.wakeup.wait()


@dataclass(kw_only=True, eq=False)
class WaitQueue:
    """A bounded, fair queue. Times are seconds of a monotonic clock."""

    served_at: float = 0.0
    """When the last waiter got a pod: no execution times out in a queue that moves."""
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
        self.served_at = now
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
