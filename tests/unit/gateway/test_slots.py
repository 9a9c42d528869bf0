"""Slots of requests that stay open, as a state machine against a plain count."""

from contextlib import ExitStack

from hypothesis import given
from hypothesis import strategies as st

from mcp_exec_gateway.core.http.limits import RequestSlots
from mcp_exec_gateway.core.http.problems import HttpProblem


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
