"""Fair queue: three priority classes, round robin over callers, first come first served within a caller.

Pure: no clock, no I/O. Every operation takes constant time, except `order`.

- Within a class callers take turns: between two turns of a waiting caller, each other caller has at most one.
- Within a caller's items of a class, first come, first served.
- High comes before Normal before Low. A class that was passed over `PATIENCE` times in a row is served next, once. If
  two classes are due, the other one follows. So of `PATIENCE + 2` consecutive turns at least one is Low's and one is
  Normal's, if items of these classes wait.
"""

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from copy import copy
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from mcp_exec_api.code_execution import Priority

PATIENCE: Final = 8
"""Consecutive turns of higher classes that a lower class waits."""

T = TypeVar("T", bound=Hashable)


@dataclass(kw_only=True)
class _PriorityClass(Generic[T]):
    """Waiting items of one priority, by caller; the caller whose turn is next comes first."""

    callers: OrderedDict[str, OrderedDict[T, None]] = field(default_factory=OrderedDict)
    passed: int = 0
    """Turns of higher classes since its last turn."""

    def add(self, item: T, caller: str) -> None:
        """Add an item. A caller without other items comes last."""
        self.callers.setdefault(caller, OrderedDict())[item] = None

    def remove(self, item: T, caller: str) -> None:
        """Remove an item from any position."""
        del self.callers[caller][item]
        if not self.callers[caller]:
            del self.callers[caller]
        if not self.callers:
            self.passed = 0

    def pop(self) -> T:
        """Remove and return the first item of the next caller, who comes last from then on."""
        caller, items = next(iter(self.callers.items()))
        item, _ = items.popitem(last=False)
        if items:
            self.callers.move_to_end(caller)
        else:
            del self.callers[caller]
        self.passed = 0
        return item

    def __copy__(self) -> "_PriorityClass[T]":
        callers = OrderedDict((caller, items.copy()) for caller, items in self.callers.items())
        return _PriorityClass(callers=callers, passed=self.passed)


@dataclass(kw_only=True)
class FairQueue(Generic[T]):
    """Unique waiting items."""

    _classes: dict[Priority, _PriorityClass[T]] = field(
        default_factory=lambda: {each: _PriorityClass() for each in Priority}
    )
    """Highest priority first."""
    _keys: dict[T, tuple[Priority, str]] = field(default_factory=dict)

    def join(self, item: T, *, caller: str, priority: Priority) -> None:
        """Add an item. Raises ValueError if it is already there."""
        if item in self._keys:
            raise ValueError("the item is already in the queue")
        self._keys[item] = (priority, caller)
        self._classes[priority].add(item, caller)

    def leave(self, item: T) -> bool:
        """Remove an item from any position. Return False if it is not there."""
        if item not in self._keys:
            return False
        priority, caller = self._keys.pop(item)
        self._classes[priority].remove(item, caller)
        return True

    def pop(self) -> T:
        """Remove and return the next item. Raises IndexError if the queue is empty."""
        chosen = self._next_class()
        item = self._classes[chosen].pop()
        for priority, each in self._classes.items():
            if priority.rank > chosen.rank and each.callers:
                each.passed += 1
        del self._keys[item]
        return item

    def peek(self) -> T:
        """Return the next item. Raises IndexError if the queue is empty."""
        return next(iter(next(iter(self._classes[self._next_class()].callers.values()))))

    def serve(self, item: T) -> None:
        """Remove an item out of its turn. It was its caller's turn, who comes last in its class."""
        priority, caller = self._keys[item]
        self.leave(item)
        callers = self._classes[priority].callers
        if caller in callers:
            callers.move_to_end(caller)

    def order(self) -> Iterator[T]:
        """Yield all items in the order in which they will be popped if no other item is added. O(n)."""
        rest: FairQueue[T] = FairQueue(
            _classes={priority: copy(each) for priority, each in self._classes.items()}, _keys=dict(self._keys)
        )
        while rest:
            yield rest.pop()

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[T]:
        """Iterate over all items in the order of their arrival."""
        return iter(self._keys)

    def __contains__(self, item: object) -> bool:
        return item in self._keys

    def _next_class(self) -> Priority:
        waiting = [priority for priority, each in self._classes.items() if each.callers]
        if not waiting:
            raise IndexError("the queue is empty")
        due = [priority for priority in waiting if self._classes[priority].passed >= PATIENCE]
        # the class passed over most often; of equals, the higher one
        return max(due, key=lambda priority: self._classes[priority].passed) if due else waiting[0]
