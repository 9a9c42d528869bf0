"""A delay that doubles with each failure in a row."""

from dataclasses import dataclass


@dataclass(kw_only=True)
class Backoff:
    """When to try again. Times are of one monotonic clock, in seconds."""

    first: float = 1.0
    last: float = 30.0
    until: float = 0.0
    """Until when nothing should be tried."""
    failures: int = 0
    """Failures since the last success."""

    def fail(self, now: float) -> None:
        """It failed. Failures that come while the delay still runs are the same failure."""
        if now >= self.until:
            self.until = now + min(self.first * 2.0**self.failures, self.last)
            self.failures = min(self.failures + 1, 16)

    def succeed(self) -> None:
        """It worked: the next failure waits the shortest delay."""
        self.until, self.failures = 0.0, 0
