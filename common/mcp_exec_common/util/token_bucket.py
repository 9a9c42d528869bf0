"""Token bucket: a burst at once, then a constant rate."""

from dataclasses import dataclass


@dataclass(kw_only=True)
class TokenBucket:
    """A bucket that starts full. Times are in seconds on one monotonic clock and are passed in."""

    per_second: float | None = None
    """Tokens added per second; None means no limit."""
    burst: int = 1
    """Capacity in tokens."""
    _spent: float = 0.0
    """Tokens missing from a full bucket."""
    _at: float = 0.0
    """Time when `_spent` was right."""

    def available(self, now: float) -> int | None:
        """Return the whole tokens that can be spent now, or None if there is no limit."""
        if self.per_second is None:
            return None
        self._spent = max(0.0, self._spent - max(0.0, now - self._at) * self.per_second)
        self._at = now
        return max(0, int(self.burst - self._spent + 1e-9))

    def spend(self, tokens: int, now: float) -> None:
        """Take tokens, which the caller knows to be available."""
        if self.per_second is not None:
            self.available(now)
            self._spent += tokens

    def ready_at(self, now: float) -> float:
        """Return the time when the next token can be spent."""
        if self.per_second is None or self.available(now):
            return now
        return now + (self._spent - self.burst + 1) / self.per_second
