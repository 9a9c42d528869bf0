"""Rate at which waiting executions get pods. Pure: times are arguments."""

from collections import deque
from dataclasses import dataclass, field
from typing import Final

_SAMPLES: Final = 64
_SAMPLE_SECONDS: Final = 300.0
"""Age up to which a sample counts."""
_MIN_SAMPLES: Final = 3
"""Samples below which the rate is unknown."""


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
