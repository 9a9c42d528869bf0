"""Arguments as an approver sees them: nothing that the code chooses hides a parameter."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.fuzz import fuzz_settings

from mcp_exec_broker.core.calls.shown_arguments import escape_unprintable, show_arguments

HUGE = "x" * 100_000
MAX_CHARS = 12 * 1024


def show(arguments: dict[str, Any], *, declared: tuple[str, ...] = ()) -> tuple[Any, bool]:
    """Return what an approver reads, parsed, and whether it is complete."""
    shown = show_arguments(arguments, declared=declared)
    assert len(shown.text) <= MAX_CHARS
    assert shown.text.isprintable()
    return json.loads(shown.text), shown.is_complete


def test_small_arguments_are_shown_as_they_are() -> None:
    arguments = {"b": 1, "a": "text", "c": [1.5, None, True, {}], "d": {"z": [], "y": "ü漢"}}
    assert show(arguments) == (arguments, True)
    assert show_arguments(arguments).text.startswith('{"a": "text", "b": 1')


@pytest.mark.parametrize(
    "first", [HUGE, [HUGE] * 3, {"deep": HUGE}, list(range(50_000)), {str(n): n for n in range(5000)}]
)
def test_a_large_value_hides_no_other_parameter(first: Any) -> None:
    found, complete = show({"aaa": first, "delete_everything": True, "to": "mallory@evil.test"})
    assert not complete
    assert list(found) == ["aaa", "delete_everything", "to"]
    assert (found["delete_everything"], found["to"]) == (True, "mallory@evil.test")


def test_a_cut_text_shows_its_size_its_beginning_and_its_end() -> None:
    found, complete = show({"body": "begin" + HUGE + "end of it"})
    assert not complete
    assert found["body"].startswith("beginxxx")
    assert found["body"].endswith("xxend of it")
    assert "… [100014 characters] …" in found["body"]


def test_parameters_of_the_schema_precede_those_that_the_code_adds() -> None:
    arguments = {f"a{number:04}": HUGE for number in range(2000)} | {"path": "/etc", "zone": "b"}
    found, complete = show(arguments, declared=("zone", "path"))
    assert not complete
    assert list(found)[:3] == ["path", "zone", "a0000"]
    assert (found["path"], found["zone"]) == ("/etc", "b")
    assert "1962 more parameters" in found["…"]


def test_members_of_nested_objects_are_shown_in_order_of_their_names() -> None:
    found, complete = show({"options": {"z_recursive": True, "a": HUGE, "force": True}})
    assert not complete
    assert list(found["options"]) == ["a", "force", "z_recursive"]
    assert (found["options"]["force"], found["options"]["z_recursive"]) == (True, True)


def test_lists_show_how_many_items_are_left_out() -> None:
    found, complete = show({"recipients": [f"person-{number}@example.com" for number in range(10_000)]})
    assert not complete
    assert found["recipients"][0] == "person-0@example.com"
    assert "more items" in found["recipients"][-1]


@pytest.mark.parametrize(
    "mark", ["\u202e", "\u2066", "\u200b", "\u200f", "\ufeff", "\x1b[2K", "\r", "\u00a0", "\U000e0041"]
)
def test_characters_that_change_what_is_seen_are_escaped(mark: str) -> None:
    text = show_arguments({f"na{mark}me": f"va{mark}lue"}).text
    assert text.isprintable()
    assert mark not in text
    assert json.loads(text) == {f"na{mark}me": f"va{mark}lue"}


def test_lone_surrogates_are_escaped() -> None:
    assert escape_unprintable('"\ud800"') == '"\\ud800"'


def test_deep_nesting_is_cut() -> None:
    value: Any = HUGE
    for _ in range(200):
        value = [value]
    found, complete = show({"value": value, "other": 1})
    assert not complete
    assert found["other"] == 1


texts = st.text(st.characters(codec=None), max_size=80) | st.sampled_from(
    [HUGE, "\u202e" * 9000, "\\" * 9000, '"' * 5000]
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=60) | st.dictionaries(texts, inner, max_size=60),
    max_leaves=200,
)


@pytest.mark.fuzz
@given(st.dictionaries(texts, values, max_size=80), st.lists(texts, max_size=5))
@fuzz_settings(60)
def test_any_arguments_are_bounded_printable_json_that_is_whole_or_says_that_it_is_not(
    arguments: dict[str, Any], declared: list[str]
) -> None:
    found, complete = show(arguments, declared=tuple(declared))
    if complete:
        assert found == arguments
    assert len(found) >= min(len(arguments), 40)
