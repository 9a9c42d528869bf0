"""A scan over all pods that runs at most once a second."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

_INTERVAL_SECONDS: Final = 1.0
"""A pool may have thousands of pods, and is reconciled many times a second."""

T = TypeVar("T")


@dataclass(kw_only=True)
class PeriodicScan(Generic[T]):
    """The result of the last scan. Times are seconds of the monotonic clock."""

    _next_at: float = 0.0
    _found: list[T] = field(default_factory=list)

    def get(self, now: float, scan: Callable[[], list[T]]) -> list[T]:
        """Return the result of `scan`, at most a second old."""
        if now >= self._next_at:
            self._next_at = now + _INTERVAL_SECONDS
            self._found = scan()
        return self._found

    def expire(self) -> None:
        """Make the next `get` scan again."""
        self._next_at = 0.0
