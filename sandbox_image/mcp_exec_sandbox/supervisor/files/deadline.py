"""Time limit of a transfer, which the event loop can also end early."""

import threading
import time
from collections.abc import Callable


class OutOfTime(Exception):
    """The transfer took too long, or the supervisor has ended it."""


class Deadline:
    """End of a transfer. `cancel` may be called by another thread."""

    def __init__(self, seconds: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._end = clock() + seconds
        self._seconds = seconds
        self._cancelled = threading.Event()

    def cancel(self) -> None:
        """End the transfer at its next step."""
        self._cancelled.set()

    def check(self) -> float:
        """Return the seconds that are left. Raises OutOfTime."""
        left = self._end - self._clock()
        if self._cancelled.is_set():
            raise OutOfTime("it was cancelled")
        if left <= 0:
            raise OutOfTime(f"it took longer than {self._seconds:g} s")
        return left

    def wait(self, seconds: float) -> None:
        """Wait so long, or until the end. Raises OutOfTime at the end."""
        self._cancelled.wait(min(seconds, self.check()))
        self.check()
