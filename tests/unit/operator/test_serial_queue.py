"""Turns at keys: one at a time, in the order of arrival, within a bound."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.pace import paced

from mcp_exec_operator.core.queueing.turns import SerialQueue, Turn
from mcp_exec_operator.core.queueing.wait_queue import QueueFull


def test_a_full_queue_refuses_more_and_says_how_many_wait() -> None:
    queue: SerialQueue[str] = SerialQueue()
    queue.join("a", limit=1)
    queue.join("a", limit=1)
    with pytest.raises(QueueFull, match="1 executions wait for their turn, of 1 that may"):
        queue.join("a", limit=1)


async def test_a_pause_ends_when_the_turn_begins() -> None:
    queue: SerialQueue[str] = SerialQueue()
    first, second = queue.join("a", limit=9), queue.join("a", limit=9)
    pausing = asyncio.create_task(second.pause(60))
    queue.leave(first)
    async with asyncio.timeout(paced(20)):
        await pausing
    assert second.is_granted


@given(st.lists(st.tuples(st.sampled_from(["join", "hold", "leave"]), st.sampled_from("ab"), st.integers(0, 5))))
def test_whatever_happens_one_turn_is_granted_and_nothing_is_kept_of_turns_that_left(
    steps: list[tuple[str, str, int]],
) -> None:
    queue: SerialQueue[str] = SerialQueue()
    arrived: dict[str, list[Turn[str]]] = {"a": [], "b": []}
    held: dict[str, set[Turn[str]]] = {"a": set(), "b": set()}
    for what, key, number in steps:
        if what == "join" and queue.count_waiting(key) < 3:
            arrived[key].append(queue.join(key, limit=3))
        elif what == "hold":
            turn = queue.hold(key)
            arrived[key].append(turn)
            held[key].add(turn)
        elif what == "leave" and arrived[key]:
            turn = arrived[key].pop(number % len(arrived[key]))
            held[key].discard(turn)
            queue.leave(turn)
            queue.leave(turn)
        for each, turns in arrived.items():
            granted = [turn for turn in turns if turn.is_granted and turn not in held[each]]
            assert len(granted) <= 1
            assert queue.is_held(each) == bool(turns)
            waiting = [turn for turn in turns if not turn.is_granted]
            assert [queue.place(turn).position for turn in waiting] == list(range(1, len(waiting) + 1))
    for turns in arrived.values():
        for turn in turns:
            queue.leave(turn)
    assert len(queue) == 0
