"""Priority of status writes over pod churn: refill and deletion are deferred while many writes are in flight."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Final

_IDLE_WRITES: Final = 8
"""Status writes in flight up to which pod creation and deletion do not slow them down."""
_MAX_DEFER_SECONDS: Final = 2.0
"""Longest deferral, counted from the moment the writes became many: an endless load needs new pods too."""


@dataclass(kw_only=True, eq=False)
class WritePriority:
    """Counter of the status writes in flight, over all pools."""

    clock: Callable[[], float] = monotonic
    _in_flight: int = 0
    _busy_since: float | None = None
    _idle: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._idle.set()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Count one status write while the context lasts."""
        self._in_flight += 1
        if self._in_flight > _IDLE_WRITES and self._busy_since is None:
            self._busy_since = self.clock()
            self._idle.clear()
        try:
            yield
        finally:
            self._in_flight -= 1
            if self._in_flight <= _IDLE_WRITES:
                self._busy_since = None
                self._idle.set()

    def defer_seconds(self) -> float:
        """Return the seconds for which pod creation and deletion should wait; 0 if they need not."""
        if self._busy_since is None:
            return 0.0
        return max(0.0, self._busy_since + _MAX_DEFER_SECONDS - self.clock())

    async def wait_until_idle(self) -> None:
        """Wait until few writes are in flight, or until the longest deferral is over."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self.defer_seconds()):
                await self._idle.wait()
