"""Results as JSON: rich values get a sensible form, everything is bounded, hostile objects are survived."""

import collections
import dataclasses
import decimal
import io
import itertools
import json
import math
import re
import sqlite3
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hack.python_values.table import IMPORTS, LIBRARIES, ROWS, ValueRow
from hypothesis import given
from hypothesis import strategies as st

from mcp_exec_sandbox.protocol import Notes
from mcp_exec_sandbox.runner.report import JsonResult, convert_to_json
from mcp_exec_sandbox.tools.arguments import MAX_ARGUMENT_BYTES, encode_arguments
from mcp_exec_sandbox.tools.errors import ToolError
from mcp_exec_sandbox.values.changes import Pairs
from mcp_exec_tools.text import measure_json

LIMIT = 64 * 1024


def convert(value, limit=LIMIT):
    return convert_to_json(value, limit, notes=Notes()).value


class Text(str):
    pass


def build_namespace(row: ValueRow) -> dict[str, Any]:
    """Return what the expression of a row may use. The test is skipped if a library of the row is not here."""
    namespace: dict[str, Any] = {"__name__": __name__}
    for line in IMPORTS:
        exec(line, namespace)
    for name, library in LIBRARIES.items():
        if re.search(rf"\b{name}\.", row.python):
            namespace[name] = pytest.importorskip(library)
    return namespace


def name_row(row: ValueRow) -> str:
    return row.python[:60]


@pytest.mark.parametrize("row", ROWS, ids=name_row)
def test_a_value_has_the_result_of_the_table_and_its_note(row):
    notes = Notes()
    result = convert_to_json(eval(row.python, build_namespace(row)), LIMIT, notes=notes)
    assert json.dumps(result.value) == json.dumps(json.loads(row.result))
    assert {note["kind"] for note in notes.to_message()} == ({row.note} if row.note else set())
    assert result.truncated == (row.note == "OutputCut")


@pytest.mark.parametrize("row", ROWS, ids=name_row)
def test_a_value_has_the_argument_of_the_table_or_is_refused_with_its_path(row):
    arguments = {"rows": [0, {"price": eval(row.python, build_namespace(row))}]}
    if row.refused:
        with pytest.raises(ToolError, match=r"^s\.t: rows\[1\]\.price\b") as failure:
            encode_arguments("s.t", arguments)
        assert failure.value.reason == "InvalidArguments"
        assert row.refused in str(failure.value)
        return
    price = json.loads(encode_arguments("s.t", arguments))["rows"][1]["price"]
    assert json.dumps(price) == json.dumps(json.loads(row.argument or row.result))


def find_notes(value, limit=LIMIT):
    notes = Notes()
    convert_to_json(value, limit, notes=notes)
    return [(note["kind"], note["path"]) for note in notes.to_message()]


def test_a_note_names_the_first_place_and_the_number_of_places():
    notes = Notes()
    rows = [{"price": 1.5}, {"price": math.nan}, {"price": math.nan}, {"a b": 2**64}]
    convert_to_json({"rows": rows}, LIMIT, notes=notes)
    assert notes.to_message() == [
        {
            "kind": "ValueChanged",
            "path": "result.rows[1].price",
            "message": "JSON has no NaN, so this is null. So in 2 places.",
        },
        {
            "kind": "ValueChanged",
            "path": "result.rows[3]['a b']",
            "message": "An integer of more than 64 bits is a text with all its digits.",
        },
    ]


def test_a_whole_float_is_noted_only_if_no_other_float_shows_a_fraction():
    assert find_notes({"n": 1, "mean": [2.0, 3.0]}) == [("ValueChanged", "result.mean[0]")]
    assert find_notes(0.0) == [("ValueChanged", "result")]
    assert find_notes({"mean": [2.0, 2.5]}) == find_notes([1e300, 0, 1]) == []


def test_a_key_that_is_nan_is_that_of_a_missing_value():
    assert convert({math.nan: 1}) == convert({None: 1}) == {"null": 1}


def test_only_integers_that_a_double_cannot_hold_have_a_note():
    assert find_notes([2**53, 2**60, 10**18]) == []
    assert find_notes([2**53 + 1]) == [("ValueChanged", "result[0]")]


def test_a_value_of_each_sort_is_named_though_there_are_thousands():
    kinds = [type(f"Kind{number}", (), {})() for number in range(100)]
    notes = Notes()
    convert_to_json(kinds, 1 << 20, notes=notes)
    assert len(notes.to_message()) == 16
    assert notes.to_message()[-1]["kind"] == "NotesDropped"


def test_every_entry_of_a_mapping_is_kept_however_its_keys_collide():
    keys = [1, "1", "1 (2)", Text("1"), decimal.Decimal(1), 1.5, "1.5", np.int64(1), (1,), "[1]"]
    value = Pairs([(key, place) for place, key in enumerate(keys)])
    assert list(convert_to_json(value, LIMIT, notes=Notes()).value.values()) == list(range(len(keys)))


def test_many_keys_with_one_text_take_linear_time():
    class Same:
        def __repr__(self):
            return "same"

    value = convert_to_json({Same(): place for place in range(5000)}, 1 << 22, notes=Notes()).value
    assert len(value) == 5000


def test_an_iterator_without_end_is_read_in_part_and_the_rest_is_there():
    numbers = itertools.count()
    assert convert([numbers])[0][-1] == 999
    assert next(numbers) == 1001
    assert find_notes({"a": itertools.cycle([1])}) == [("OutputCut", "result.a")]


def test_iterators_within_iterators_share_a_time_limit(monkeypatch):
    seconds = itertools.count()
    monkeypatch.setattr("mcp_exec_sandbox.values.walk.time.monotonic", lambda: float(next(seconds)))
    assert find_notes(itertools.count() for _ in itertools.count()) != []
    assert next(seconds) < 100


def test_a_file_is_not_read():
    file = io.StringIO("line\n")
    assert "StringIO" in convert(file)
    assert file.read() == "line\n"


def test_a_cut_says_how_long_the_result_is():
    notes = Notes()
    convert_to_json("€" * 1000, 200, notes=notes)
    assert notes.to_message() == [
        {
            "kind": "OutputCut",
            "path": "result",
            "message": "It has 3002 bytes as JSON, more than the 200 of limits.outputBytes: its middle is cut.",
        }
    ]
    notes = Notes()
    convert_to_json(list(range(100_000)), 200, notes=notes)
    message = (
        "It has more than the 200 bytes of limits.outputBytes, 100000 items in all: it is a text with the beginning."
    )
    assert [note["message"] for note in notes.to_message()] == [message]


def test_an_array_that_is_too_large_is_cut_along_its_first_axis():
    assert convert(np.arange(10**6).reshape(1000, 1000), 100).startswith("[[0, 1, 2")
    assert convert(np.zeros((10**6, 2), dtype=int), 100).startswith("[[0, 0], [0, 0]")


def test_a_subclass_of_a_library_has_the_form_of_its_base():
    class Frame(pd.DataFrame):
        pass

    assert convert(Frame({"a": [1]})) == [{"a": 1}]


def test_rows_of_a_database_keep_columns_with_the_same_name():
    connection = sqlite3.connect(":memory:")
    connection.row_factory = sqlite3.Row
    assert convert(connection.execute("select 1 as a, 2 as a")) == [{"a": 1, "a (2)": 2}]
    connection.close()


def test_an_argument_of_too_many_bytes_is_refused():
    for value in ("x" * MAX_ARGUMENT_BYTES, ["é" * 1000] * 5000):
        with pytest.raises(ToolError, match="more than 8 MiB"):
            encode_arguments("s.t", {"value": value})


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


def test_integers_that_do_not_fit_are_described():
    assert convert(1 << 10_000, 1000) == "<int of 10001 bits>"
    assert find_notes(1 << 10_000, 1000) == [("OutputCut", "result")]


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
    | st.integers(-(2**63), 2**63 - 1)
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
