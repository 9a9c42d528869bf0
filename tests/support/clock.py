"""A clock that tests advance."""


class Clock:
    """Callable like time.monotonic; a test adds seconds to `now`."""

    def __init__(self, now: float = 100.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now
