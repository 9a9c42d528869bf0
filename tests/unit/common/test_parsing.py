"""Objects of the API server, which may be nested more deeply than Python reads."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_exec_common.kube.parsing import MAX_DEPTH, parse, parse_part, shorten

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=30,
)
WAYS: list[Callable[[str], Any]] = [
    lambda text: parse(text.encode()),
    lambda text: parse_part(f"  {text}, rest", 2)[0],
    lambda text: json.loads(shorten(text.encode())),
]


def nest(inner: str, levels: int) -> str:
    return '{"a":' * levels + inner + "}" * levels


def depth_of(value: Any) -> int:
    depth, level = 0, [value]
    while level := [each for each in level if isinstance(each, dict | list)]:
        depth += 1
        level = [each for part in level for each in (part.values() if isinstance(part, dict) else part)]
    return depth


@pytest.mark.parametrize("read", WAYS)
@given(value=VALUES)
def test_what_is_not_nested_deeply_is_read_as_it_is(read: Callable[[str], Any], value: Any) -> None:
    assert read(json.dumps([value])) == [value]


@pytest.mark.parametrize("read", WAYS)
@pytest.mark.parametrize("levels", [MAX_DEPTH - 1, MAX_DEPTH, 900, 10_000, 200_000])
@pytest.mark.parametrize("inner", ["1", "[]", r'{"b": "}]\\\"}"}', "[[1], [2]]"])
def test_deeper_values_are_null_and_the_rest_is_read(read: Callable[[str], Any], levels: int, inner: str) -> None:
    text = f'{{"before": [1, {{}}], "deep": {nest(inner, levels)}, "after": "}}{{[", "last": [2]}}'
    value = read(text)
    assert depth_of(value) <= MAX_DEPTH
    assert (value["before"], value["after"], value["last"]) == ([1, {}], "}{[", [2])
    if levels < MAX_DEPTH - 1:
        assert value == json.loads(text)


@pytest.mark.parametrize("read", WAYS)
@pytest.mark.parametrize("text", ["", "{", "[1", '{"a": ', "[" * 5000, '{"a":' * 5000 + '"', "}" * 400])
def test_what_is_no_json_is_an_error(read: Callable[[str], Any], text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read(text)
