"""A token bucket: so many at once, and from then on so many a second."""

from dataclasses import dataclass


@dataclass(kw_only=True)
class TokenBucket:
    """Times are of one monotonic clock, in seconds, and are passed in. Full at first."""

    per_second: float | None = None
    """Tokens that come in a second; None means that there is no bound."""
    burst: int = 1
    """Tokens that it holds at most."""
    _spent: float = 0.0
    """Tokens that are missing from it."""
    _at: float = 0.0

    def available(self, now: float) -> int | None:
        """Tokens that can be spent now, or None where there is no bound."""
        if self.per_second is None:
            return None
        self._spent = max(0.0, self._spent - max(0.0, now - self._at) * self.per_second)
        self._at = now
        return max(0, int(self.burst - self._spent + 1e-9))

    def spend(self, tokens: int, now: float) -> None:
        """Takes tokens that are available."""
        if self.per_second is not None:
            self.available(now)
            self._spent += tokens

    def ready_at(self, now: float) -> float:
        """When the next token can be spent."""
        if self.per_second is None or self.available(now):
            return now
        return now + (self._spent - self.burst + 1) / self.per_second
