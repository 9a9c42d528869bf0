"""How much is asked of a pool: arrivals in two windows, how long pods take to start, and how many were warm in time.

Memory is bounded whatever arrives. Times are of one monotonic clock, in seconds, and are passed in.
"""

import math
from collections import deque
from dataclasses import dataclass
from typing import Final

STARTUP_GUESS_SECONDS: Final = 3.0
"""How long a pod is taken to start until one was measured."""
_BUCKETS: Final = 20
_KEPT_STARTS: Final = 64
_STEPS: Final = (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)


class SlidingCount:
    """How many events the last `seconds` had, to a twentieth of them."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._width = seconds / _BUCKETS
        self._buckets: deque[list[int]] = deque()
        self._total = 0

    @property
    def size(self) -> int:
        """Number of counters in memory."""
        return len(self._buckets)

    def add(self, now: float) -> None:
        """One event."""
        self._forget(now)
        index = math.floor(now / self._width)
        if self._buckets and self._buckets[-1][0] == index:
            self._buckets[-1][1] += 1
        else:
            self._buckets.append([index, 1])
        self._total += 1

    def total(self, now: float) -> int:
        """Events in the window that ends now."""
        self._forget(now)
        return self._total

    def _forget(self, now: float) -> None:
        first = math.floor(now / self._width) - _BUCKETS
        while self._buckets and self._buckets[0][0] <= first:
            self._total -= self._buckets.popleft()[1]


@dataclass(frozen=True, kw_only=True)
class DemandMeasurement:
    """What was measured of a pool's demand at a moment."""

    rate: float
    """Arrivals a second, the higher of both windows, on a scale of ten steps for each power of ten."""
    startup_seconds: float | None
    """What 95 of 100 starts of pods don't exceed; None where none was seen."""
    hit_rate: float | None
    """Share of the arrivals of the slow window that found a warm pod; None where nothing arrived."""


class Demand:
    """The demand for one pool's pods."""

    def __init__(self, *, fast_seconds: float = 10.0, slow_seconds: float = 60.0) -> None:
        self._starts: deque[float] = deque(maxlen=_KEPT_STARTS)
        self._startup: float | None = None
        self._usual_startup: float | None = None
        self.configure(fast_seconds=fast_seconds, slow_seconds=slow_seconds)

    def configure(self, *, fast_seconds: float, slow_seconds: float) -> None:
        """Sets the windows. What was counted in windows of another size is forgotten."""
        self._windows = (fast_seconds, slow_seconds)
        self._fast, self._slow = SlidingCount(fast_seconds), SlidingCount(slow_seconds)
        self._hits = SlidingCount(slow_seconds)

    @property
    def windows(self) -> tuple[float, float]:
        """The fast and the slow window, in seconds."""
        return self._windows

    @property
    def usual_startup_seconds(self) -> float | None:
        """How long a pod took to start in the median, which a few that were held up don't change; None where none was
        seen."""
        return self._usual_startup

    def arrived(self, now: float, *, warm: bool) -> None:
        """An execution asked for a pod, and found a warm one or did not."""
        self._fast.add(now)
        self._slow.add(now)
        if warm:
            self._hits.add(now)

    def started(self, seconds: float) -> None:
        """A pod was warm so long after it was asked for."""
        self._starts.append(max(0.0, seconds))
        ordered = sorted(self._starts)
        self._startup = ordered[math.ceil(0.95 * len(ordered)) - 1]
        self._usual_startup = ordered[len(ordered) // 2]

    def measured(self, now: float) -> DemandMeasurement:
        """What is known now."""
        fast, slow = self._fast.total(now), self._slow.total(now)
        return DemandMeasurement(
            rate=coarse(max(fast / self._fast.seconds, slow / self._slow.seconds)),
            startup_seconds=None if self._startup is None else _two_digits(self._startup),
            hit_rate=round(self._hits.total(now) / slow, 2) if slow else None,
        )


def coarse(rate: float) -> float:
    """A rate on a scale of ten steps for each power of ten: no number is written anew for less than a step."""
    if rate <= 0:
        return 0.0
    power = 10.0 ** math.floor(math.log10(rate))
    return round(min(_STEPS, key=lambda step: abs(step - rate / power)) * power, 6)


def _two_digits(value: float) -> float:
    return round(value, 1 - math.floor(math.log10(value))) if value > 0.01 else 0.01
