"""Cache with a time to live whose concurrent callers of one key share one load."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from time import monotonic
from typing import Generic, TypeVar

from cachetools import TLRUCache

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


@dataclass(kw_only=True, eq=False)
class CoalescingCache(Generic[Key, Value]):
    """Loaded values by key. Each key has at most one load in flight, and the least recently used value goes first."""

    ttl_seconds: Callable[[Value], float]
    """Time to live of a value. A value with zero or less is returned, but not stored."""
    max_size: int = 2048
    """Most values stored."""
    clock: Callable[[], float] = monotonic
    _values: TLRUCache[Key, tuple[Value]] = field(init=False, repr=False)
    """Values in tuples, so that a stored None differs from a missing value."""
    _loads: dict[Key, asyncio.Task[Value]] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        self._values = TLRUCache(
            maxsize=self.max_size, ttu=lambda key, entry, now: now + self.ttl_seconds(entry[0]), timer=self.clock
        )

    def peek(self, key: Key) -> Value | None:
        """Return the stored value, or None."""
        entry = self._values.get(key)
        return None if entry is None else entry[0]

    def clear(self) -> None:
        """Drop the stored values."""
        self._values.clear()

    async def get(self, key: Key, load: Callable[[], Awaitable[Value]]) -> Value:
        """Return the stored value, or the result of `load`. Errors of `load` reach every caller and are not stored."""
        if (entry := self._values.get(key)) is not None:
            return entry[0]
        task = self._loads.get(key)
        if task is None:
            task = asyncio.create_task(self._load(key, load))
            self._loads[key] = task
            task.add_done_callback(lambda _: self._loads.pop(key, None))
        # a cancelled caller must not cancel the load of the others
        return await asyncio.shield(task)

    async def _load(self, key: Key, load: Callable[[], Awaitable[Value]]) -> Value:
        value = await load()
        self._values[key] = (value,)
        return value
