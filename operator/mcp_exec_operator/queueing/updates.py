"""When a waiting execution's status is worth an update. Pure functions.

The updates of a pool cost at most about 20 writes a second, however many executions wait: ten first updates and
ten later ones.
"""

from dataclasses import dataclass
from typing import Final, Self

from pydantic import ValidationError

from mcp_exec_api.code_execution import QueuePlace
from mcp_exec_common.kube.objects import Object

_FIRST_SECONDS: Final = 1.0
"""Delay of the first update: most executions have their pod by then."""
_NEXT_SECONDS: Final = 5.0
_SECONDS_PER_WAITER: Final = 0.1
"""Delay that each waiting execution adds, so that all together stay within the budget."""


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
