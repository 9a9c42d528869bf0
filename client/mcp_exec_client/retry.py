"""When a failed request is sent again."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from mcp_exec_common.util.backoff import delay_after

_JITTER: Final = 0.5
"""Share of a delay that is random, so that callers that failed together do not return together."""


@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """Bounds of the retries of one request. All times are in seconds."""

    attempts: int = 6
    """Maximum number of attempts, including the first; 1 means no retry."""
    max_delay_seconds: float = 60.0
    """Maximum sum of the delays between attempts."""
    first_delay_seconds: float = 0.2
    last_delay_seconds: float = 10.0
    draw: Callable[[], float] = field(default=random.random, repr=False)
    """Source of jitter, between 0 and 1."""

    def find_delay(self, failures: int, *, waited: float, retry_after: float | None = None) -> float | None:
        """Return the delay after so many failures in a row, of which `waited` seconds were delays.

        Returns None if the request is not to be sent again. A `retry_after` is a minimum.
        """
        if failures >= self.attempts:
            return None
        backoff = delay_after(failures, first=self.first_delay_seconds, last=self.last_delay_seconds)
        base = max(backoff * (1 - _JITTER), retry_after or 0.0)
        delay = base + backoff * _JITTER * self.draw()
        return delay if waited + delay <= self.max_delay_seconds else None


NO_RETRIES: Final = RetryPolicy(attempts=1)
"""Each request is sent once."""
