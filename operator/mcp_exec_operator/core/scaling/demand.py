"""Demand for a pool's pods: arrival rate over two windows, startup time, warm-hit rate, executions without a pod.

Memory is bounded. Times are seconds of one monotonic clock and are passed in.
"""

import math
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from mcp_exec_operator.core.pods.pod import Pod

STARTUP_GUESS_SECONDS: Final = 3.0
"""Assumed startup time until one was measured."""
_BUCKETS: Final = 20
_STARTUPS: Final = 64
"""Startup times that are stored."""
_STEPS: Final = (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)
SHORT_WAIT_SECONDS: Final = 0.25
"""Longest wait that causes no new pod: no sandbox starts faster."""
_WEIGHT: Final = 0.1
"""Weight of the newest time in the mean."""


class SlidingCount:
    """The number of events in the last `seconds`, with a resolution of one twentieth of that window."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._width = seconds / _BUCKETS
        self._buckets: deque[list[int]] = deque(maxlen=_BUCKETS)
        """Number of each bucket, and its events."""

    @property
    def size(self) -> int:
        """Number of counters in memory."""
        return len(self._buckets)

    def add(self, now: float) -> None:
        """Count one event."""
        index = math.floor(now / self._width)
        if self._buckets and self._buckets[-1][0] == index:
            self._buckets[-1][1] += 1
        else:
            self._buckets.append([index, 1])

    def total(self, now: float) -> int:
        """Return the number of events in the window that ends now."""
        last = math.floor(now / self._width)
        return sum(count for index, count in self._buckets if index > last - _BUCKETS)


@dataclass(frozen=True, kw_only=True)
class DemandMeasurement:
    """Demand as measured at a moment."""

    rate: float
    """Arrivals per second, the higher of both windows, rounded to ten steps per power of ten."""
    startup_seconds: float | None
    """95th percentile of the startup times, or None if there is none."""
    hit_rate: float | None
    """Share of the arrivals in the slow window that found a warm pod, or None without arrivals."""
    reuse_rate: float | None = None
    """Share of executions in the slow window that got a pod of their owner, or None if none did."""


class Demand:
    """Measurements of the demand for one pool's pods."""

    def __init__(self, *, fast_seconds: float = 10.0, slow_seconds: float = 60.0) -> None:
        self._startups: deque[float] = deque(maxlen=_STARTUPS)
        self._p95_startup: float | None = None
        self._median_startup: float | None = None
        self.configure(fast_seconds=fast_seconds, slow_seconds=slow_seconds)

    def configure(self, *, fast_seconds: float, slow_seconds: float) -> None:
        """Set the windows and drop the counts of the old ones."""
        self._windows = (fast_seconds, slow_seconds)
        self._fast, self._slow = SlidingCount(fast_seconds), SlidingCount(slow_seconds)
        self._hits = SlidingCount(slow_seconds)
        self._reuses = SlidingCount(slow_seconds)

    @property
    def windows(self) -> tuple[float, float]:
        """The fast and the slow window in seconds."""
        return self._windows

    @property
    def usual_startup_seconds(self) -> float | None:
        """Median startup time, robust against a few delayed pods, or None if there is none."""
        return self._median_startup

    def add_arrival(self, now: float, *, warm: bool) -> None:
        """Count an execution that asked for a pod; `warm` if it found a warm one."""
        self._fast.add(now)
        self._slow.add(now)
        if warm:
            self._hits.add(now)

    def add_reuse(self, now: float) -> None:
        """Count an execution that got a pod of its owner: it asks for no new one."""
        self._reuses.add(now)

    def add_startup(self, seconds: float) -> None:
        """Record the time from a pod's creation until it was warm."""
        self._startups.append(max(0.0, seconds))
        ordered = sorted(self._startups)
        self._p95_startup = ordered[math.ceil(0.95 * len(ordered)) - 1]
        self._median_startup = ordered[len(ordered) // 2]

    def measure(self, now: float) -> DemandMeasurement:
        """Return the demand at this moment."""
        fast, slow = self._fast.total(now), self._slow.total(now)
        reuses = self._reuses.total(now)
        return DemandMeasurement(
            rate=round_to_step(max(fast / self._fast.seconds, slow / self._slow.seconds)),
            startup_seconds=None if self._p95_startup is None else _two_digits(self._p95_startup),
            hit_rate=round(self._hits.total(now) / slow, 2) if slow else None,
            reuse_rate=round(reuses / (reuses + slow), 2) if reuses else None,
        )


def round_to_step(rate: float) -> float:
    """Round a rate to ten steps per power of ten, so that small changes cause no status write."""
    if rate <= 0:
        return 0.0
    power = 10.0 ** math.floor(math.log10(rate))
    return round(min(_STEPS, key=lambda step: abs(step - rate / power)) * power, 6)


def _two_digits(value: float) -> float:
    return round(value, 1 - math.floor(math.log10(value))) if value > 0.01 else 0.01


@dataclass(kw_only=True)
class UseTime:
    """Moving mean of how long an execution has a pod that is used again: to its end, and until it is clean.

    Times are seconds of a monotonic clock.
    """

    mean: float | None = None

    def add(self, seconds: float) -> None:
        """Record one use."""
        self.mean = seconds if self.mean is None else self.mean + _WEIGHT * (seconds - self.mean)

    @property
    def uses_in_short_wait(self) -> int:
        """Executions that one pod serves in a short wait: none if uses take longer, and one if none was measured."""
        return int(SHORT_WAIT_SECONDS / self.mean) if self.mean else 1


@dataclass(frozen=True, kw_only=True)
class Unserved:
    """Executions that need a pod which nobody has used."""

    number: int = 0
    until: float | None = None
    """When time may change the number, or None."""


def find_unserved(waiting: Mapping[str, int], busy: Iterable[Pod], *, use_time: UseTime, now: float) -> Unserved:
    """Return how many waiting executions no pod of their owner serves soon.

    A pod that is busy for longer than a short wait is not expected back. `waiting` has their numbers by the digest of
    their owner, which is empty if they need a new pod. `busy` are the pods that may be used again.
    """
    taken = [pod for pod in busy if pod.use.taken_by in waiting and now - pod.use.taken_at < SHORT_WAIT_SECONDS]
    returning = Counter(pod.use.taken_by for pod in taken if pod.use.taken_by)
    number = sum(max(0, count - returning[owner] * use_time.uses_in_short_wait) for owner, count in waiting.items())
    oldest = min((pod.use.taken_at for pod in taken if pod.use.taken_by), default=None)
    return Unserved(number=number, until=None if oldest is None else oldest + SHORT_WAIT_SECONDS)
