"""Turns at things that one execution uses at a time, such as a session or the writing of a workspace. No I/O.

Each key has a bounded queue, first come, first served. A key without turns takes no memory. While an execution waits,
its status is updated if that is worth a write. The updates of a pool cost at most about 20 writes a second, however
many executions wait: ten first updates and ten later ones.
"""

import asyncio
from collections.abc import Hashable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Generic, Self, TypeVar

from pydantic import ValidationError

from mcp_exec_api.code_execution import QueuePlace
from mcp_exec_common.kube.objects import Object
from mcp_exec_operator.core.queueing.wait_queue import QueueFull

K = TypeVar("K", bound=Hashable)


_FIRST_SECONDS: Final = 1.0

"""Delay of the first update: most executions have their pod by then."""
_NEXT_SECONDS: Final = 5.0
_SECONDS_PER_WAITER: Final = 0.1

"""Delay that each waiting execution adds, so that all together stay within the budget."""


@dataclass(kw_only=True, eq=False)
class Turn(Generic[K]):
    """One execution's turn at a key: it waits, has it, or has left."""

    key: K
    wakeup: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the turn begins, and by others that want the execution to check whether it still waits."""
    is_granted: bool = False

    def changed(self) -> None:
        """Let the execution check whether it still waits."""
        self.wakeup.set()

    async def pause(self, seconds: float) -> None:
        """Return when the turn begins, after a wakeup, or after so many seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.wakeup.wait()


@dataclass(kw_only=True, eq=False)
class _Line(Generic[K]):
    holders: set[Turn[K]] = field(default_factory=set)
    """One turn; more only if several executions had the key when an operator took over."""
    waiting: dict[Turn[K], None] = field(default_factory=dict)
    """In the order of their arrival."""


@dataclass(kw_only=True, eq=False)
class SerialQueue(Generic[K]):
    """Bounded queues by key, with one turn at a time for each key."""

    _lines: dict[K, _Line[K]] = field(default_factory=dict)

    def join(self, key: K, *, limit: int, wakeup: asyncio.Event | None = None) -> Turn[K]:
        """Return a turn, granted at once if nobody has or awaits the key.

        `wakeup` is the event of the turn, if the caller has one. Raises QueueFull if `limit` already wait.
        """
        line = self._lines.get(key, _Line())
        if (line.holders or line.waiting) and len(line.waiting) >= limit:
            raise QueueFull(f"{len(line.waiting)} executions wait for their turn, of {limit} that may")
        turn = Turn(key=key, wakeup=asyncio.Event() if wakeup is None else wakeup)
        self._lines.setdefault(key, line).waiting[turn] = None
        self._grant(key)
        return turn

    def hold(self, key: K) -> Turn[K]:
        """Return a granted turn for an execution that had the key before this operator started."""
        turn = Turn(key=key, is_granted=True)
        self._lines.setdefault(key, _Line()).holders.add(turn)
        return turn

    def leave(self, turn: Turn[K]) -> None:
        """End a turn, or leave the queue from any position. Repeated calls change nothing."""
        line = self._lines.get(turn.key)
        if line is None:
            return
        line.waiting.pop(turn, None)
        line.holders.discard(turn)
        self._grant(turn.key)

    def place(self, turn: Turn[K]) -> QueuePlace:
        """Return the position of a turn that waits; 1 is next. O(n), and n is bounded."""
        waiting = list(self._lines[turn.key].waiting)
        return QueuePlace(position=waiting.index(turn) + 1, of=len(waiting))

    def count_waiting(self, key: K) -> int:
        """Return how many turns wait for a key."""
        line = self._lines.get(key)
        return len(line.waiting) if line is not None else 0

    def is_held(self, key: K) -> bool:
        """Return whether somebody has the key."""
        line = self._lines.get(key)
        return line is not None and bool(line.holders)

    def __len__(self) -> int:
        return len(self._lines)

    def _grant(self, key: K) -> None:
        line = self._lines[key]
        if line.waiting and not line.holders:
            turn = next(iter(line.waiting))
            del line.waiting[turn]
            line.holders.add(turn)
            turn.is_granted = True
            turn.changed()
        if not line.waiting and not line.holders:
            del self._lines[key]


def first_update_after(waiting: int) -> float:
    """Return the seconds from joining the queue to the first update, while so many executions wait."""
    return _FIRST_SECONDS + _SECONDS_PER_WAITER * (waiting - 1)


def next_update_after(waiting: int) -> float:
    """Return the seconds from one update to the next, while so many executions wait."""
    return max(_NEXT_SECONDS, _SECONDS_PER_WAITER * waiting)


@dataclass(frozen=True, kw_only=True)
class QueueUpdate:
    """Why an execution waits, and its position."""

    reason: str = ""
    place: QueuePlace | None = None

    @classmethod
    def from_status(cls, status: Object) -> Self:
        """Return the update that a status already contains, perhaps from the previous leader."""
        try:
            place = QueuePlace.model_validate(status["queue"])
        except (KeyError, ValidationError):
            place = None
        return cls(reason=str(status.get("reason") or ""), place=place)

    def differs_enough_from(self, before: Self) -> bool:
        """Return whether the difference to the last update is worth a write."""
        if self.reason != before.reason or self.place is None or before.place is None:
            return self != before
        old, new = before.place, self.place
        moved = abs(new.position - old.position) * 10 >= max(old.position, 10)
        return moved or _wait_differs(old.expected_wait_seconds, new.expected_wait_seconds)


def _wait_differs(old: float | None, new: float | None) -> bool:
    if old is None or new is None:
        return old is not new
    return abs(new - old) > max(old, 4.0) / 2
