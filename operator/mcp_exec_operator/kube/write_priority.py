"""What has precedence: while many executions wait for their writes, no pod is replaced and none is made ahead."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Final

_FEW: Final = 8
"""Writes under way beside which the replacement of pods does not disturb."""
_LONGEST_SECONDS: Final = 2.0
"""How long replacements are put off at most, from when there were many writes: a load that never ends needs pods."""


@dataclass(kw_only=True, eq=False)
class Claims:
    """Counts the writes that executions wait for, of all pools."""

    clock: Callable[[], float] = monotonic
    _under_way: int = 0
    _many_since: float | None = None
    _few: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._few.set()

    @contextmanager
    def one(self) -> Iterator[None]:
        """Counts a write while it is under way."""
        self._under_way += 1
        if self._under_way > _FEW and self._many_since is None:
            self._many_since = self.clock()
            self._few.clear()
        try:
            yield
        finally:
            self._under_way -= 1
            if self._under_way <= _FEW:
                self._many_since = None
                self._few.set()

    def puts_off(self) -> float:
        """Seconds for which all else should be put off, 0 where nothing should."""
        if self._many_since is None:
            return 0.0
        return max(0.0, self._many_since + _LONGEST_SECONDS - self.clock())

    async def settled(self) -> None:
        """Returns when there are few writes, or when it was put off for the longest time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self.puts_off()):
                await self._few.wait()
