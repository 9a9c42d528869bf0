"""Which finished executions are deleted before their TTL."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mcp_exec_operator.core.stored import StoredBudget, StoredExecution

NOW = 1_800_000_000.0
KIB, MIB = 2**10, 2**20


def budget(**changes: int) -> StoredBudget:
    return StoredBudget(**({"max_stored": 100, "max_stored_bytes": 10 * MIB} | changes))


def put(stored: StoredBudget, name: str, *, age: float = 1000.0, size: int = KIB, **more: Any) -> None:
    given: dict[str, Any] = {"namespace": "agents", "caller": ""} | more
    key = (given["namespace"], name)
    stored.add(StoredExecution(uid=name, key=key, caller=given["caller"], finished=NOW - age, bytes=size))


def test_nothing_is_deleted_within_the_budget() -> None:
    stored = budget()
    for number in range(70):
        put(stored, f"e{number}", size=100 * KIB)
    assert not stored.is_over
    assert stored.choose(NOW) == {}


def test_the_oldest_large_ones_go_first_and_small_ones_stay() -> None:
    stored = budget()
    for number in range(10):
        put(stored, f"large{number}", age=1000 - number, size=MIB)
        put(stored, f"small{number}", age=5000, size=KIB)
    assert list(stored.choose(NOW)) == [f"large{number}" for number in range(4)]
    assert not stored.is_over
    assert stored.choose(NOW) == {}


def test_too_many_small_ones_go_by_age() -> None:
    stored = budget()
    for number in range(90):
        put(stored, f"e{number}", age=1000 - number)
    assert list(stored.choose(NOW)) == [f"e{number}" for number in range(25)]


def test_what_ended_a_moment_ago_is_kept_since_its_caller_may_wait_for_it() -> None:
    stored = budget()
    for number in range(10):
        put(stored, f"e{number}", age=29, size=MIB)
    assert stored.choose(NOW) == {}
    assert stored.is_over
    assert len(stored.choose(NOW + 1)) == 4


def test_a_callers_flood_deletes_the_flood_and_not_what_others_have() -> None:
    stored = budget()
    for number in range(3):
        put(stored, f"quiet{number}", age=9000, size=MIB, caller="quiet")
    for number in range(20):
        put(stored, f"flood{number}", age=1000 - number, size=MIB, caller="loud")
    chosen = stored.choose(NOW)
    assert {each.caller for each in chosen.values()} == {"loud"}
    assert len(chosen) == 17


def test_namespaces_do_not_affect_each_other() -> None:
    stored = budget()
    for number in range(10):
        put(stored, f"full{number}", size=MIB, namespace="full")
        put(stored, f"other{number}", size=10 * KIB, namespace="other")
    assert {each.key[0] for each in stored.choose(NOW).values()} == {"full"}


def test_deleted_ones_do_not_count() -> None:
    stored = budget()
    for number in range(10):
        put(stored, f"e{number}", size=MIB)
    for number in range(5):
        stored.remove(f"e{number}", "agents")
    assert stored.choose(NOW) == {}
    assert not stored.is_over


@given(
    sizes=st.lists(st.integers(0, 2 * MIB), max_size=300),
    callers=st.lists(st.sampled_from("abc"), min_size=1, max_size=7),
)
def test_what_is_left_is_within_the_budget_and_no_more_is_deleted_than_needed(
    sizes: list[int], callers: list[str]
) -> None:
    stored = budget()
    for number, size in enumerate(sizes):
        put(stored, f"e{number}", age=100 + number, size=size, caller=callers[number % len(callers)])
    chosen = stored.choose(NOW)
    left = [size for number, size in enumerate(sizes) if f"e{number}" not in chosen]
    assert len(left) <= 75
    assert sum(left) <= 7.5 * MIB
    if len(sizes) <= 75 and sum(sizes) <= 7.5 * MIB:
        assert not chosen
    assert not stored.is_over
