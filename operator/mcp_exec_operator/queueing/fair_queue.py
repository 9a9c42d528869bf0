"""Who comes next of those that wait: three classes by priority, callers in turn, each caller's own in their order.

Pure: no clock, no I/O. Every operation takes a constant time, but for `order`.

- Within a class callers take turns: between two turns of one that waits, each other has one at most.
- Within a caller's own of a class, first come, first served.
- High comes before Normal before Low. A class that was passed over `PATIENCE` times in a row for higher ones is served
  before them, once; where two are due at the same time, the other one follows. So of `PATIENCE + 2` turns in a row at
  least one is Low's, and one Normal's, wherever one of them waits.
"""

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from copy import copy
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from mcp_exec_api.code_execution import Priority

PATIENCE: Final = 8
"""Turns of higher classes in a row that a lower class waits through."""

T = TypeVar("T", bound=Hashable)


@dataclass(kw_only=True)
class _Class(Generic[T]):
    """The waiting ones of one priority, by caller; the caller whose turn it is comes first."""

    callers: OrderedDict[str, OrderedDict[T, None]] = field(default_factory=OrderedDict)
    passed: int = 0
    """Turns of higher classes since it last had one."""

    def add(self, item: T, caller: str) -> None:
        """A caller that waited for nothing comes after all others."""
        self.callers.setdefault(caller, OrderedDict())[item] = None

    def remove(self, item: T, caller: str) -> None:
        """Takes one out, wherever it stands."""
        del self.callers[caller][item]
        if not self.callers[caller]:
            del self.callers[caller]
        if not self.callers:
            self.passed = 0

    def pop(self) -> T:
        """The first of the caller whose turn it is, which comes last from then on."""
        caller, own = next(iter(self.callers.items()))
        item, _ = own.popitem(last=False)
        if own:
            self.callers.move_to_end(caller)
        else:
            del self.callers[caller]
        self.passed = 0
        return item

    def __copy__(self) -> "_Class[T]":
        callers = OrderedDict((caller, own.copy()) for caller, own in self.callers.items())
        return _Class(callers=callers, passed=self.passed)


@dataclass(kw_only=True)
class FairQueue(Generic[T]):
    """Items that wait. Each is there once."""

    _classes: dict[Priority, _Class[T]] = field(default_factory=lambda: {each: _Class() for each in Priority})
    """In the order in which they come."""
    _where: dict[T, tuple[Priority, str]] = field(default_factory=dict)

    def join(self, item: T, *, caller: str, priority: Priority) -> None:
        """Takes in an item. Raises ValueError where it is there already."""
        if item in self._where:
            raise ValueError("it waits already")
        self._where[item] = (priority, caller)
        self._classes[priority].add(item, caller)

    def leave(self, item: T) -> bool:
        """Takes an item out, wherever it stands. False where it is not there."""
        if item not in self._where:
            return False
        priority, caller = self._where.pop(item)
        self._classes[priority].remove(item, caller)
        return True

    def pop(self) -> T:
        """Takes out who comes next. Raises IndexError where nobody waits."""
        chosen = self._next_class()
        item = self._classes[chosen].pop()
        for priority, each in self._classes.items():
            if priority.rank > chosen.rank and each.callers:
                each.passed += 1
        del self._where[item]
        return item

    def order(self) -> Iterator[T]:
        """All of them in the order in which they will be served, if nobody else comes. O(n)."""
        rest: FairQueue[T] = FairQueue(
            _classes={priority: copy(each) for priority, each in self._classes.items()}, _where=dict(self._where)
        )
        while rest:
            yield rest.pop()

    def __len__(self) -> int:
        return len(self._where)

    def __contains__(self, item: object) -> bool:
        return item in self._where

    def _next_class(self) -> Priority:
        waiting = [priority for priority, each in self._classes.items() if each.callers]
        if not waiting:
            raise IndexError("nobody waits")
        due = [priority for priority in waiting if self._classes[priority].passed >= PATIENCE]
        # the one that waits for longest; of two that do, the higher
        return max(due, key=lambda priority: self._classes[priority].passed) if due else waiting[0]
