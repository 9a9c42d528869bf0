"""Time in which calls of an execution wait for approvals. The execution's clock stands still meanwhile."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic


@dataclass(kw_only=True, eq=False)
class WaitingTime:
    """Time in which at least one call of one execution waits. Calls that wait at the same time count once."""

    clock: Callable[[], float] = monotonic
    _passed: float = 0.0
    """Seconds until the last time at which no call waited."""
    _since: float = 0.0
    """When the first of the calls that wait now began to."""
    _deadlines: dict[object, float] = field(default_factory=dict)
    """Ends of the waits."""

    @property
    def seconds(self) -> float:
        """Seconds until now."""
        return self._passed + (self.clock() - self._since if self._deadlines else 0.0)

    @property
    def remaining_seconds(self) -> float:
        """Seconds until the last of the waiting calls is denied; 0 if none waits."""
        return max(0.0, max(self._deadlines.values()) - self.clock()) if self._deadlines else 0.0

    @contextmanager
    def wait(self, seconds: float) -> Iterator[None]:
        """Count the time inside the context, of which the caller allows so many seconds."""
        key, begin = object(), self.clock()
        if not self._deadlines:
            self._since = begin
        self._deadlines[key] = begin + seconds
        try:
            yield
        finally:
            del self._deadlines[key]
            if not self._deadlines:
                self._passed += self.clock() - self._since
