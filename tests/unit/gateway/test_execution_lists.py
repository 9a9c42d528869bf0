"""Lists of executions: newest first, in pages, in bounded memory."""

import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_exec_api.wire.stats import KeyLimits
from mcp_exec_common.kube.pages import TableRow
from mcp_exec_gateway.core.auth.callers import Caller
from mcp_exec_gateway.core.executions.lists import (
    ExecutionEntry,
    ExecutionFilter,
    ExecutionLists,
    decode_position,
    encode_position,
    read_row,
)
from mcp_exec_gateway.core.executions.parameters import ListQuery


def entry(name: str, second: int = 0, caller: str = "team-a", **labels: str) -> ExecutionEntry:
    return ExecutionEntry.from_object(
        {
            "metadata": {
                "name": name,
                "creationTimestamp": f"2026-11-21T20:{second // 60:02}:{second % 60:02}Z",
                "labels": labels,
            },
            "spec": {"poolRef": {"name": "default"}},
            "status": {"phase": "Succeeded", "podName": f"default-{name}", "duration": "12ms"},
        },
        caller=caller,
    )


async def names_by_page(lists: ExecutionLists, limit: int, **wanted: Any) -> list[list[str]]:
    pages, before = [], None
    while True:
        found, before = await lists.find_page(
            "agents",
            lambda each: all(getattr(each, name) == value for name, value in wanted.items()),
            limit=limit,
            before=before and decode_position(encode_position(before)),
        )
        pages.append([each.name for each in found])
        if before is None:
            return pages


def join(pages: list[list[str]]) -> list[str]:
    return [name for page in pages for name in page]


@given(
    st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 5), st.booleans()), max_size=30), st.integers(1, 4)
)
async def test_pages_have_each_execution_once_newest_first(changes: list[tuple[str, int, bool]], limit: int) -> None:
    lists, expected = ExecutionLists(), {}
    for name, second, deleted in changes:
        if deleted:
            lists.remove("agents", name)
            expected.pop(name, None)
        else:
            lists.put("agents", entry(name, second))
            expected[name] = second
    pages = await names_by_page(lists, limit)
    assert join(pages) == sorted(expected, key=lambda name: (expected[name], name), reverse=True)
    assert all(len(page) == limit for page in pages[:-1])


async def test_what_comes_between_two_pages_changes_no_later_page() -> None:
    lists = ExecutionLists()
    for number in range(4):
        lists.put("agents", entry(f"e{number}", number))
    first, before = await lists.find_page("agents", lambda each: True, limit=2)
    lists.put("agents", entry("new", 10))
    lists.remove("agents", "e2")
    second, rest = await lists.find_page("agents", lambda each: True, limit=2, before=before)
    assert [each.name for each in (*first, *second)] == ["e3", "e2", "e1", "e0"]
    assert rest is None


async def test_ten_thousand_executions_are_listed_and_few_of_them_found() -> None:
    lists = ExecutionLists()
    for number in range(10_000):
        lists.put("agents", entry(f"e{number:05}", number % 3600, caller="rare" if number % 2500 == 7 else "often"))
    pages = await names_by_page(lists, 500)
    assert (len(pages), len(set(join(pages)))) == (20, 10_000)
    assert await names_by_page(lists, 2, caller="rare") == [["e02507", "e05007"], ["e07507", "e00007"]]
    assert await names_by_page(lists, 500, caller="nobody") == [[]]


async def test_the_oldest_are_dropped_if_a_namespace_has_too_many() -> None:
    lists = ExecutionLists(served=range(1000))
    for number in range(3000):
        lists.put("agents", entry(f"e{number:04}", number))
    lists.put("others", entry("theirs"))
    names = join(await names_by_page(lists, 500))
    assert 500 < len(names) < 1500
    assert names == [f"e{number:04}" for number in range(2999, 2999 - len(names), -1)]
    assert [each.name for each in (await lists.find_page("others", lambda each: True, limit=5))[0]] == ["theirs"]


@pytest.mark.parametrize(
    ("cells", "is_listed"),
    [({"User": "ann"}, True), ({"User": None}, True), ({"User": "bob"}, False), ({}, False)],
)
def test_a_row_that_does_not_say_its_user_is_not_listed_for_a_key_of_one_user(
    cells: dict[str, str | None], is_listed: bool
) -> None:
    """An older definition of the resource has no such column."""
    row = read_row(TableRow(metadata={"name": "e"}, cells={"Pool": "default", **cells}))
    viewers = [
        Caller(name="team-a", label="team-a", namespace="agents", limits=limits)
        for limits in (KeyLimits(users=["ann"]), KeyLimits(users=["ann"], own=False))
    ]
    chosen = [ExecutionFilter.from_query(ListQuery(), viewer=viewer) for viewer in viewers]
    assert [each.matches(ExecutionEntry.from_object(row, caller="team-a")) for each in chosen] == [is_listed, True]
    assert not chosen[0].matches(ExecutionEntry.from_object(row, caller="claimed:team-a"))


def test_labels_without_end_take_bounded_memory() -> None:
    many = entry("a", **{f"k{number}-{'x' * 50}": "v" * 63 for number in range(10_000)})
    assert len(many.labels) < 64
    assert many.weight < 20_000
    bare = entry("a")
    size = sum(sys.getsizeof(getattr(bare, name)) for name in ("name", "created_at", "pod_name", "labels", "created"))
    assert bare.weight > size + sys.getsizeof(bare)


@pytest.mark.parametrize("token", ["", "x", "!!", "WzFd", "bnVsbA", "W" * 4000, "WyJhIiwgMV0", "ü", "W10="])
def test_a_token_that_no_gateway_made_is_refused(token: str) -> None:
    with pytest.raises(ValueError, match="list again"):
        decode_position(token)
