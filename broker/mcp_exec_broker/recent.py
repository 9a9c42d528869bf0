"""What is remembered for a while: so many at most, and none longer than so long."""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from time import monotonic
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Recent(Generic[Key, Value]):
    """Values by key. One that is put or touched is new again; the oldest go first, but those that are `held` stay."""

    def __init__(
        self,
        *,
        keep_seconds: float,
        keep: int,
        held: Callable[[Value], bool] = lambda value: False,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._keep_seconds = keep_seconds
        self._keep = keep
        self._held = held
        self._clock = clock
        self._items: OrderedDict[Key, tuple[float, Value]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._items)

    def get(self, key: Key) -> Value | None:
        """The value, where it is remembered."""
        found = self._items.get(key)
        return None if found is None else found[1]

    def put(self, key: Key, value: Value) -> None:
        """Remembers a value from now on, and forgets what is too old or too much."""
        self._items[key] = (self._clock(), value)
        self._items.move_to_end(key)
        self._forget()

    def touch(self, key: Key) -> None:
        """It is as if the value were put now."""
        if (value := self.get(key)) is not None:
            self.put(key, value)

    def values(self) -> Iterator[Value]:
        """All that are remembered, oldest first."""
        return iter([value for _, value in self._items.values()])

    def _forget(self) -> None:
        oldest = self._clock() - self._keep_seconds
        while self._items:
            key, (at, value) = next(iter(self._items.items()))
            if at >= oldest and len(self._items) <= self._keep:
                return
            if self._held(value) and len(self._items) <= 2 * self._keep:
                self._items[key] = (self._clock(), value)
                self._items.move_to_end(key)
                if all(self._held(each) for _, each in self._items.values()):
                    return
            else:
                del self._items[key]
