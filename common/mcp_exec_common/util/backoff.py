"""Exponential backoff: delays that grow with each failure in a row. All times are in seconds."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, islice


def delay_after(failures: int, *, first: float, last: float, factor: float = 2.0) -> float:
    """Return the delay after so many failures in a row: `first` after one, never more than `last`."""
    # a bounded exponent: a float overflows beyond it
    return min(first * factor ** min(max(failures - 1, 0), 64), last)


def delays(*, first: float, last: float, factor: float = 2.0, attempts: int | None = None) -> Iterator[float]:
    """Yield the delays between attempts: `first`, then `factor` times the one before, never more than `last`.

    `attempts` is the number of attempts including the one before the first delay, so it ends after `attempts - 1`
    delays. Without it the delays never end: use that only in a loop that ends for another reason.
    """
    endless = (delay_after(failures, first=first, last=last, factor=factor) for failures in count(1))
    return endless if attempts is None else islice(endless, max(attempts - 1, 0))


@dataclass(kw_only=True)
class Backoff:
    """The earliest time when a failing operation may be tried again, on one monotonic clock."""

    first: float = 1.0
    """Delay after the first failure."""
    last: float = 30.0
    """Longest delay."""
    until: float = 0.0
    """No attempt before this time."""
    failures: int = 0
    """Failures since the last success."""

    def fail(self, now: float) -> None:
        """Record a failure. Failures during a running delay count as the one that started it."""
        if now >= self.until:
            self.failures += 1
            self.until = now + delay_after(self.failures, first=self.first, last=self.last)

    def succeed(self) -> None:
        """Record a success: the next failure waits the shortest delay."""
        self.until, self.failures = 0.0, 0
