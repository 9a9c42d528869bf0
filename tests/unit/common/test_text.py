import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_exec_common.kube.objects import drop_empty_fields
from mcp_exec_tools.text import cut_marker, measure_json, shorten, shorten_json

LONG = "a" * 500 + "b" * 500
LIMITS = st.integers(min_value=-1, max_value=200)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(st.text(max_size=300), LIMITS)
def test_a_cut_text_keeps_head_and_tail_within_the_limit(text: str, limit: int) -> None:
    short = shorten(text, limit)
    assert len(short) <= max(limit, 0) or short == text
    assert (short == text) == (len(text) <= limit) or text == ""
    head, marker, tail = short.partition("\n[... ")
    assert text.startswith(head)
    assert not marker or text.endswith(tail.partition(" cut ...]\n")[2])


@given(st.text(max_size=300), LIMITS)
def test_a_text_that_was_cut_is_not_cut_again(text: str, limit: int) -> None:
    assert shorten(shorten(text, limit), limit) == shorten(text, limit)


def test_the_marker_names_what_was_cut() -> None:
    assert shorten(LONG, 100) == "a" * 35 + "\n[... 931 characters cut ...]\n" + "b" * 34
    assert cut_marker(7, "bytes") == "\n[... 7 bytes cut ...]\n"


def test_a_limit_without_room_for_a_marker_keeps_the_beginning() -> None:
    assert shorten(LONG, 20) == "a" * 20
    assert shorten("abc", -1) == ""


@given(VALUES, LIMITS, st.booleans())
def test_a_cut_result_has_at_most_the_limit_and_is_not_cut_again(value: object, limit: int, is_head: bool) -> None:
    short, truncated = shorten_json(value, limit, is_head=is_head)
    assert truncated or short == value
    # The smallest string has two bytes.
    assert measure_json(short) <= max(limit, 2)
    if limit >= 2:
        assert shorten_json(short, limit) == (short, False)


def test_a_long_result_becomes_text_with_a_marker() -> None:
    assert shorten_json([1, 2], 5) == ([1, 2], False)
    short, truncated = shorten_json({"items": list(range(1000))}, 100)
    assert truncated
    assert short.startswith('{"items": [0, 1, ')
    assert " characters cut ...]\n" in short
    assert short.endswith(", 999]}")
    short, _ = shorten_json("é" * 1000, 100)
    assert set(short.replace(" characters cut ", "")) <= set("é\n[.] 0123456789")


def test_of_the_beginning_of_a_result_only_the_beginning_is_kept() -> None:
    short, truncated = shorten_json([0] * 100, 80, is_head=True)
    assert truncated
    assert short.startswith("[0, 0, ")
    assert short.endswith("\n[... the rest is cut ...]\n")


@pytest.mark.parametrize("value", [float("nan"), [float("inf")]])
def test_a_value_that_is_no_json_becomes_its_repr(value: object) -> None:
    assert shorten_json(value, 100) == (repr(value), True)


def test_a_value_that_is_nested_too_deeply_is_dropped() -> None:
    value = json.loads("[" * 900 + "]" * 900)
    for _ in range(100_000):
        value = [value]
    assert shorten_json(value, 100) == (None, True)


def test_a_nested_value_that_is_no_json_is_dropped() -> None:
    value: list[object] = []
    for _ in range(100_000):
        value = [value]
    assert shorten_json([float("inf"), value], 100) == (None, True)


def test_null_and_empty_fields_are_dropped() -> None:
    assert drop_empty_fields({"a": None, "b": "", "c": 0, "d": [], "e": False, "f": "x"}) == {
        "c": 0,
        "d": [],
        "e": False,
        "f": "x",
    }
