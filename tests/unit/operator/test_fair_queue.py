"""Who comes next: whatever is asked of the queue, in whatever order."""

from collections import Counter
from itertools import count
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_exec_api.code_execution import Priority
from mcp_exec_operator.core.queueing.wait_queue import PATIENCE, FairQueue


class Item(NamedTuple):
    number: int
    caller: str
    priority: Priority


JOIN = st.tuples(st.sampled_from("abcd"), st.sampled_from(list(Priority)))
STEPS = st.lists(st.one_of(JOIN, JOIN, st.just("pop"), st.just("pop"), st.integers(0, 50)), max_size=150)
"""Joins, turns, and departures of one of those that wait, by its number among them."""


class Watched:
    """A queue, a list of those that wait, and all that was promised to them."""

    def __init__(self) -> None:
        self.queue: FairQueue[Item] = FairQueue()
        self.waiting: list[Item] = []
        self.numbers = count()
        self.turns: dict[tuple[Priority, str], Counter[str]] = {}
        """For each caller of a class that waits: the turns of others since its last."""
        self.passed: dict[Priority, int] = {}
        """For each class that waits: the turns of others since its last."""

    def join(self, caller: str, priority: Priority) -> None:
        item = Item(next(self.numbers), caller, priority)
        self.queue.join(item, caller=caller, priority=priority)
        self.waiting.append(item)
        self.turns.setdefault((priority, caller), Counter())
        self.passed.setdefault(priority, 0)
        self.check()

    def leave(self, index: int) -> None:
        item = self.waiting.pop(index)
        assert self.queue.leave(item)
        assert not self.queue.leave(item)
        self.forget()
        self.check()

    def pop(self) -> Item:
        item = self.queue.pop()
        own = [each for each in self.waiting if (each.caller, each.priority) == (item.caller, item.priority)]
        assert item == own[0], "first come, first served within a caller"
        higher = {each.priority for each in self.waiting if each.priority.rank < item.priority.rank}
        assert not higher or self.passed[item.priority] >= PATIENCE, "higher classes come first"
        self.waiting.remove(item)
        for (priority, caller), turns in self.turns.items():
            if priority is item.priority and caller != item.caller:
                turns[item.caller] += 1
                assert turns[item.caller] <= 1, "callers take turns"
        self.turns[(item.priority, item.caller)] = Counter()
        for priority in self.passed:
            self.passed[priority] += 1
        self.passed[item.priority] = 0
        self.forget()
        assert all(turns <= PATIENCE + 1 for turns in self.passed.values()), "no class is starved"
        self.check()
        return item

    def forget(self) -> None:
        left = {(each.priority, each.caller) for each in self.waiting}
        self.turns = {key: turns for key, turns in self.turns.items() if key in left}
        self.passed = {
            key: turns for key, turns in self.passed.items() if key in {each.priority for each in self.waiting}
        }

    def check(self) -> None:
        assert len(self.queue) == len(self.waiting)


@given(steps=STEPS)
def test_callers_take_turns_each_in_order_and_no_class_starves(
    steps: list[tuple[str, Priority] | str | int],
) -> None:
    watched = Watched()
    for step in steps:
        if isinstance(step, tuple):
            watched.join(*step)
        elif isinstance(step, int):
            if watched.waiting:
                watched.leave(step % len(watched.waiting))
        elif watched.waiting:
            watched.pop()
    told = list(watched.queue.order())
    served = [watched.pop() for _ in range(len(watched.waiting))]
    assert told == served
    with pytest.raises(IndexError, match="empty"):
        watched.queue.pop()


@given(joins=st.lists(JOIN, min_size=1, max_size=60), flood=st.sampled_from(list(Priority)))
def test_whoever_waits_is_served_whatever_comes_after(joins: list[tuple[str, Priority]], flood: Priority) -> None:
    watched = Watched()
    for each in joins:
        watched.join(*each)
    last = watched.waiting[-1]
    # of every PATIENCE + 2 turns one is its class's, and of those each caller has one at a time
    for _ in range(len(joins) * (PATIENCE + 2) * 5):
        watched.join("flood", flood)
        if watched.pop() == last:
            return
    pytest.fail("it was starved")


def test_one_of_many_callers_is_not_kept_waiting_by_a_hundred_of_one() -> None:
    queue: FairQueue[int] = FairQueue()
    for number in range(100):
        queue.join(number, caller="many", priority=Priority.NORMAL)
    queue.join(1000, caller="few", priority=Priority.NORMAL)
    assert [queue.pop() for _ in range(3)] == [0, 1000, 1]


def test_what_waits_already_does_not_join_again() -> None:
    queue: FairQueue[int] = FairQueue()
    queue.join(1, caller="a", priority=Priority.LOW)
    with pytest.raises(ValueError, match="already"):
        queue.join(1, caller="b", priority=Priority.HIGH)
    assert (len(queue), 1 in queue, 2 in queue) == (1, True, False)
