"""What a waiting execution's status says, and when it is worth a write to say something else. Pure functions.

However many wait, the notices of a pool cost about 20 writes a second at most: ten for those that joined, ten for
those that were told before.
"""

from dataclasses import dataclass
from typing import Final, Self

from pydantic import ValidationError

from mcp_exec_api.code_execution import QueuePlace
from mcp_exec_common.kube.objects import Object

_FIRST_SECONDS: Final = 1.0
"""How long an execution waits before it says so: most have their pod by then."""
_AGAIN_SECONDS: Final = 5.0
_SECONDS_EACH: Final = 0.1
"""What each that waits adds, so that together they keep to the budget."""


def first_after(waiting: int) -> float:
    """Seconds from joining the queue, as one of so many, to the first notice."""
    return _FIRST_SECONDS + _SECONDS_EACH * (waiting - 1)


def next_after(waiting: int) -> float:
    """Seconds from one notice to the next, while so many wait."""
    return max(_AGAIN_SECONDS, _SECONDS_EACH * waiting)


@dataclass(frozen=True, kw_only=True)
class QueueUpdate:
    """Why an execution waits, and where it stands."""

    reason: str = ""
    place: QueuePlace | None = None

    @classmethod
    def of(cls, status: Object) -> Self:
        """What a status says already: an operator before this one may have written it."""
        try:
            place = QueuePlace.model_validate(status["queue"])
        except (KeyError, ValidationError):
            place = None
        return cls(reason=str(status.get("reason") or ""), place=place)

    def says_more_than(self, before: Self) -> bool:
        """Whether it differs from another so much that it should be told."""
        if self.reason != before.reason or self.place is None or before.place is None:
            return self != before
        old, new = before.place, self.place
        moved = abs(new.position - old.position) * 10 >= max(old.position, 10)
        return moved or _other_wait(old.expected_wait_seconds, new.expected_wait_seconds)


def _other_wait(old: float | None, new: float | None) -> bool:
    if old is None or new is None:
        return old is not new
    return abs(new - old) > max(old, 4.0) / 2
