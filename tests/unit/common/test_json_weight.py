"""The estimate of the memory that JSON takes, before it is parsed."""

import json
import tracemalloc
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_exec_common.util.weight import JsonScale, weigh_json

_LARGE = 1 << 40
_VALUES = st.recursive(
    st.none() | st.integers() | st.text(max_size=8) | st.sampled_from(['"', "\\", "\\\\", "[,:{", "\n", "\u2028é"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=20,
)


@pytest.mark.parametrize(
    "item",
    ["[]", "{}", '{"":0}', '{"a":[0]}', "0", "1.5", "123456", '"ab"', '"é"', '"\\ud83d\\ude00"', "null", '"a,b"'],
)
def test_values_take_no_more_memory_than_was_estimated(item: str) -> None:
    body = f"[{','.join([item] * 20_000)}]".encode()
    estimate = weigh_json(body, limit=1 << 40)
    tracemalloc.start()
    try:
        value = json.loads(body)
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used <= estimate
    assert len(value) == 20_000


@pytest.mark.parametrize("text", ['{[,:"\\]}', '\\"', '"', "\\\\", ",é"])
def test_punctuation_in_texts_is_left_out_of_a_large_estimate(text: str) -> None:
    def weigh(text: str, *, is_exact: bool) -> int:
        body = json.dumps([{"a": text, text: [0]}, text], ensure_ascii=False).encode()
        largest = weigh_json(body, limit=1 << 40)
        memory = weigh_json(body, limit=largest - 1) if is_exact else largest
        return memory - len(body) * (1 if body.isascii() else 5)

    long = text * 1000 + ","
    assert weigh("x", is_exact=False) == weigh(long, is_exact=True) < weigh(long, is_exact=False)


@pytest.mark.parametrize("begin", ['"\\n"', '"\\\\"', '"a\\"b"', '"\\u0022"'])
def test_no_text_hides_the_values_that_follow_it(begin: str) -> None:
    body = f'[{begin},{"[]," * 10_000}"]"]'.encode()
    json.loads(body)
    assert weigh_json(body, limit=100_000) > 100_000


@pytest.mark.parametrize("begin", [': "', 'da"ta', '"', '"\\', 'data: "\\'])
@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
def test_no_line_hides_the_values_of_the_next_one(begin: str, end: str) -> None:
    body = f'{begin}{end}data: [{"[]," * 10_000}"]"]'.encode()
    assert weigh_json(body, limit=100_000) > 100_000


@given(value=_VALUES, cuts=st.lists(st.integers(0, 200), max_size=5), limit=st.sampled_from([0, 500, _LARGE]))
def test_a_text_that_arrives_in_parts_weighs_as_much_as_the_whole(value: Any, cuts: list[int], limit: int) -> None:
    body = json.dumps([value, value], ensure_ascii=False).encode()
    scale, places = (
        JsonScale(limit=limit, exact_above=limit),
        [0, *sorted(cut for cut in cuts if cut < len(body)), len(body)],
    )
    for start, end in pairwise(places):
        scale.add(body[start:end])
    whole = weigh_json(body, limit=limit)
    assert scale.size == len(body)
    assert (scale.weight > limit) == (whole > limit)
    if whole <= limit:
        assert scale.weight == whole


@given(value=_VALUES, cut=st.integers(0, 200))
def test_strings_are_left_out_wherever_a_part_ends(value: Any, cut: int) -> None:
    body = json.dumps([value], ensure_ascii=False).encode()
    exact = _count_structure([value])
    scale = JsonScale(limit=_LARGE, exact_above=0)
    scale.add(body[:cut])
    scale.add(body[cut:])
    wide = 1 if body.isascii() and b"\\u" not in body else 5
    assert scale.weight == len(body) * wide + exact


def _count_structure(value: Any) -> int:
    if isinstance(value, list):
        return 64 * max(len(value), 1) + sum(map(_count_structure, value))
    if isinstance(value, dict):
        return 64 * max(len(value), 1) + 130 * len(value) + sum(map(_count_structure, value.values()))
    return 0
