"""Results as JSON: rich values get a sensible form, everything is bounded, hostile objects are survived."""

import collections
import dataclasses
import datetime
import decimal
import enum
import json
import pathlib
import re
import typing
import uuid

import numpy as np
import pandas as pd
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_exec_sandbox.notes import Notes
from mcp_exec_sandbox.runner.result_json import JsonResult, convert_to_json
from mcp_exec_tools.text import measure_json

LIMIT = 64 * 1024


def convert(value, limit=LIMIT):
    return convert_to_json(value, limit, notes=Notes()).value


@dataclasses.dataclass
class Row:
    name: str
    tags: set


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Point(typing.NamedTuple):
    x: int
    y: int


class Model(pydantic.BaseModel):
    name: str
    when: datetime.date


class Text(str):
    pass


CASES = [
    (None, None),
    (True, True),
    (2**60, 2**60),
    (1.5, 1.5),
    (float("nan"), None),
    (float("-inf"), None),
    (Text("sub"), "sub"),
    ((1, 2), [1, 2]),
    ({3, 1, 2}, [1, 2, 3]),
    (frozenset({"b", "a"}), ["a", "b"]),
    (collections.deque([1]), [1]),
    (range(3), [0, 1, 2]),
    ({"a": 1}.keys(), ["a"]),
    ({2: "a", None: "b", True: "c", (1, 2): "d"}, {"2": "a", "null": "b", "true": "c", "[1, 2]": "d"}),
    (collections.OrderedDict(a=1), {"a": 1}),
    (collections.Counter("aab"), {"a": 2, "b": 1}),
    (Row("r", {1}), {"name": "r", "tags": [1]}),
    (Point(1, 2), {"x": 1, "y": 2}),
    (Colour.RED, "red"),
    (Level.HIGH, 3),
    (Model(name="m", when=datetime.date(2026, 1, 2)), {"name": "m", "when": "2026-01-02"}),
    (datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC), "2026-01-02T03:04:05+00:00"),
    (datetime.date(2026, 1, 2), "2026-01-02"),
    (datetime.time(3, 4), "03:04:00"),
    (datetime.timedelta(hours=1), "1:00:00"),
    (decimal.Decimal("10.50"), "10.50"),
    (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
    (pathlib.Path("/workspace/a"), "/workspace/a"),
    (b"ab\x00", "b'ab\\x00'"),
    (3 + 4j, "(3+4j)"),
    (int, "<class 'int'>"),
    (np.float64(1.5), 1.5),
    (np.int32(7), 7),
    (np.bool_(True), True),
    (np.float32("nan"), None),
    (np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
    (np.array([1.0, np.inf]), [1.0, None]),
    (np.array(5), 5),
    (np.datetime64("2026-01-02"), "2026-01-02"),
    (pd.Timestamp("2026-01-02"), "2026-01-02T00:00:00"),
    (pd.NaT, None),
    (pd.NA, None),
    (pd.Timedelta(hours=1), "0 days 01:00:00"),
    (pd.Series([1, 2]), [1, 2]),
    (pd.Series([1, 2], index=["a", "b"]), {"a": 1, "b": 2}),
    (pd.Index(["a", "b"]), ["a", "b"]),
    (pd.DataFrame({"a": [1, 2], "b": ["x", None]}), [{"a": 1, "b": "x"}, {"a": 2, "b": None}]),
    (pd.DataFrame({"n": [1]}, index=pd.Index(["k"], name="key")), [{"key": "k", "n": 1}]),
]


@pytest.mark.parametrize(
    ("value", "expected"), CASES, ids=[f"{type(value).__name__}-{number}" for number, (value, _) in enumerate(CASES)]
)
def test_a_value_has_its_json(value, expected):
    result = convert_to_json(value, LIMIT, notes=Notes())
    assert json.dumps(result.value) == json.dumps(expected)
    assert not result.truncated


class Hostile:
    def __repr__(self):
        raise RuntimeError("no")


@dataclasses.dataclass
class HostileField:
    good: int = 1

    def __getattribute__(self, name):
        if name == "good":
            raise RuntimeError("no")
        return super().__getattribute__(name)


class HostileModel:
    def model_dump(self):
        raise SystemError("no")


class Endless(collections.abc.Sequence):
    def __len__(self):
        return 1

    def __getitem__(self, index):
        return []


def test_objects_whose_code_raises_become_notes():
    assert convert([1, Hostile()]) == [1, "<Hostile: RuntimeError while it was converted>"]
    assert convert(HostileField()) == {"good": "<good: RuntimeError>"}
    assert convert(HostileModel()) == "<HostileModel: SystemError while it was converted>"


def test_sequences_without_end_are_cut():
    result = convert_to_json(Endless(), 1000, notes=Notes())
    assert result.truncated
    assert result.value.startswith("[[], []")


def test_a_structure_that_contains_itself_is_cut():
    loop = [1]
    loop.append(loop)
    assert convert_to_json(loop, LIMIT, notes=Notes()) == JsonResult(value=[1, "<cycle>"], truncated=True)


def test_the_same_value_twice_is_no_cycle():
    shared = [1]
    assert convert([shared, shared]) == [[1], [1]]


def test_depth_is_bounded():
    deep = []
    for _ in range(10_000):
        deep = [deep]
    result = convert_to_json(deep, LIMIT, notes=Notes())
    assert result.truncated
    assert "levels deep" in json.dumps(result.value)


def test_huge_integers_are_described():
    assert convert(1 << 10_000) == "<int of 10001 bits>"


def test_a_huge_repr_is_cut():
    class Huge:
        def __repr__(self):
            return "x" * 1_000_000

    result = convert_to_json(Huge(), LIMIT, notes=Notes())
    assert result.truncated
    assert len(result.value) <= 4096
    assert re.search(r"x\n\[\.\.\. 9959\d\d characters cut \.\.\.\]\nx", result.value)


def test_large_binary_data_is_cut():
    result = convert_to_json([b"x" * 100_000], LIMIT, notes=Notes())
    assert result == JsonResult(value=["b'" + "x" * 1024 + "'\n[... 98976 bytes cut ...]\n"], truncated=True)
    assert convert(b"x" * 4000) == repr(b"x" * 4000)


def test_a_long_string_keeps_head_and_tail():
    result = convert_to_json("a" + "é" * 1000 + "z", 200, notes=Notes())
    assert result.truncated
    assert result.value.startswith("aé")
    assert result.value.endswith("éz")
    assert " characters cut ...]\n" in result.value
    assert measure_json(result.value) <= 200


def test_a_structure_that_is_too_large_keeps_its_beginning():
    result = convert_to_json({"text": "é" * 1000}, 100, notes=Notes())
    assert result.truncated
    assert result.value.startswith('{"text": "é')
    assert result.value.endswith("\n[... the rest is cut ...]\n")
    assert measure_json(result.value) <= 100


def test_large_tables_are_cut_without_being_converted_whole():
    result = convert_to_json(pd.DataFrame({"n": np.arange(5_000_000)}), 1000, notes=Notes())
    assert result.truncated
    assert result.value.startswith('[{"n": 0}, {"n": 1}')
    assert convert_to_json(np.zeros(50_000_000, dtype=np.int8), 1000, notes=Notes()).truncated


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=30,
)


@given(plain)
def test_plain_json_is_left_as_it_is(value):
    assert convert_to_json(value, 1 << 20, notes=Notes()) == JsonResult(value=value, truncated=False)


@given(plain, st.integers(0, 200))
def test_a_result_never_exceeds_its_limit(value, limit):
    result = convert_to_json(value, limit, notes=Notes())
    # The smallest string that there is takes two bytes.
    assert measure_json(result.value) <= max(limit, 2)
    assert result.truncated or result.value == value
