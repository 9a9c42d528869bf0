"""How fast those that wait are served, from how fast they were served lately. Pure: times are arguments."""

from collections import deque
from dataclasses import dataclass, field
from typing import Final

_KEPT: Final = 64
_KEPT_SECONDS: Final = 300.0
"""How long a measurement says something about now."""
_LEAST: Final = 3
"""Measurements below which nothing is said."""


@dataclass(kw_only=True)
class Throughput:
    """Seconds from one that was served to the next, counted only while somebody waits."""

    _spans: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=_KEPT))
    """When one was served, and the seconds that it took."""
    _since: float | None = None
    """When the last one was served, or somebody began to wait; None while nobody does."""

    def begin(self, now: float) -> None:
        """Somebody waits, and nobody did before."""
        self._since = now

    def served(self, now: float) -> None:
        """The next one was served."""
        if self._since is not None:
            self._spans.append((now, now - self._since))
        self._since = now

    def end(self) -> None:
        """Nobody waits any more."""
        self._since = None

    def seconds_each(self, now: float) -> float | None:
        """Seconds until the next one is served, on average; None where too little is known."""
        spans = [seconds for at, seconds in self._spans if now - at < _KEPT_SECONDS]
        if len(spans) < _LEAST:
            return None
        total, stalled = sum(spans), 0.0 if self._since is None else now - self._since
        # where the next one takes longer than the others did, it counts as if it were served now
        return max(total / len(spans), (total + stalled) / (len(spans) + 1))
