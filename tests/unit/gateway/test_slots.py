"""Slots of requests that stay open, as a state machine against a plain count."""

from contextlib import ExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_exec_gateway.http.limits import RequestSlots
from mcp_exec_gateway.http.problems import HttpProblem


def test_a_holder_beyond_its_limit_is_refused_and_others_are_not() -> None:
    slots = RequestSlots(kind="waits", max_total=10, max_each=2)
    with ExitStack() as stack:
        for holder in ("a", "a", "b"):
            stack.enter_context(slots.hold(holder))
        with pytest.raises(HttpProblem) as caught, slots.hold("a"):
            pass
        assert (caught.value.status, "a has 2 open waits, and 2 are allowed" in str(caught.value)) == (429, True)
        assert int(caught.value.headers["Retry-After"]) > 0
        with slots.hold("a", limit=3), slots.hold("b"):
            assert slots.open == 5
        with pytest.raises(HttpProblem), slots.hold("b", limit=1):
            pass
    assert slots.open == 0


def test_the_replicas_limit_holds_for_all_together() -> None:
    slots = RequestSlots(kind="waits", max_total=2, max_each=2)
    with slots.hold("a"), slots.hold("b"), pytest.raises(HttpProblem, match="limit of this replica"), slots.hold("c"):
        pass


@given(steps=st.lists(st.tuples(st.sampled_from("abc"), st.booleans(), st.none() | st.integers(1, 4)), max_size=60))
def test_slots_are_what_a_count_says(steps: list[tuple[str, bool, int | None]]) -> None:
    slots = RequestSlots(kind="waits", max_total=5, max_each=3)
    held: list[tuple[str, ExitStack]] = []
    for holder, enters, limit in steps:
        own = [entry for entry in held if entry[0] == holder]
        if enters:
            stack = ExitStack()
            allowed = len(own) < (limit or 3) and len(held) < 5
            try:
                stack.enter_context(slots.hold(holder, limit=limit))
            except HttpProblem:
                assert not allowed
            else:
                assert allowed
                held.append((holder, stack))
        elif own:
            own[0][1].close()
            held.remove(own[0])
        assert slots.open == len(held)
