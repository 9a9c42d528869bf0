"""Inference of schemas from results."""

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_exec_tools.output_inference import infer_schema, widen_schema

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("abcdef"), inner, max_size=4),
    max_leaves=20,
)


@given(st.lists(JSON, max_size=5))
def test_every_value_that_was_seen_is_valid(values: list[Any]) -> None:
    schema = infer_schema(values)
    validator = jsonschema.Draft202012Validator(schema)
    for value in values:
        assert validator.is_valid(value)


@given(st.lists(JSON, min_size=1, max_size=5))
def test_a_value_seen_again_changes_nothing(values: list[Any]) -> None:
    schema = infer_schema(values)
    for value in values:
        assert widen_schema(schema, value) == schema


@given(st.lists(JSON, min_size=1, max_size=4), JSON)
def test_widening_by_one_value_equals_inferring_from_all(values: list[Any], last: Any) -> None:
    assert widen_schema(infer_schema(values), last) == infer_schema([*values, last])


@pytest.mark.parametrize(
    ("values", "schema"),
    [
        ([], {}),
        ([1], {"type": "integer"}),
        ([1, 2.5], {"type": "number"}),
        ([True], {"type": "boolean"}),
        (["a", None], {"anyOf": [{"type": "string"}, {"type": "null"}]}),
        ([[]], {"type": "array"}),
        ([[], [1]], {"type": "array", "items": {"type": "integer"}}),
        (
            [{"a": 1}, {"a": 2, "b": "x"}],
            {
                "type": "object",
                "properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
                "required": ["a"],
            },
        ),
        (
            [[{"a": 1}, {"a": None}]],
            {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"a": {"anyOf": [{"type": "integer"}, {"type": "null"}]}},
                    "required": ["a"],
                },
            },
        ),
    ],
)
def test_a_schema_describes_the_values(values: list[Any], schema: Any) -> None:
    assert infer_schema(values) == schema


def deep(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {"a": [value]}
    return value


@pytest.mark.parametrize(
    "value",
    [
        {f"key{number}": number for number in range(10_000)},
        [{f"key{number}": number} for number in range(10_000)],
        [{"a": number, "b": [str(number)] * 100} for number in range(5000)],
        deep(400),
        {"k" * 100_000: 1},
        ["x" * 1_000_000],
        [[[[[number] * 10] * 10] * 10] * 10 for number in range(50)],
    ],
    ids=["keys", "different keys", "rows", "deep", "long key", "long text", "wide"],
)
def test_a_schema_stays_small_whatever_a_server_sends(value: Any) -> None:
    schema = infer_schema([value])
    assert len(json.dumps(schema)) < 20_000
    assert jsonschema.Draft202012Validator(schema).is_valid(value)
    assert widen_schema(schema, value) == schema


def test_many_results_with_other_keys_each_become_a_mapping() -> None:
    schema = infer_schema([{f"key{number}": 1} for number in range(500)])
    assert schema == {"type": "object"}
