"""JSON that the API server stored digests as what was sent to it, and as nothing else."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.fuzz import fuzz_settings

from mcp_exec_client.json_body import encode_body
from mcp_exec_gateway.core.http.problems import HttpProblem
from mcp_exec_gateway.core.http.request_body import parse_json
from mcp_exec_tools.stored_json import find_unstorable, to_stored_json, write_long_integers

STORED = [
    ("1.0", "1"),
    ("1e3", "1000"),
    ("-0.0", "-0"),
    ("0.1", "0.1"),
    ("1e-7", "1e-07"),
    ("9223372036854775807", "9223372036854775807"),
    ("18446744073709551616", "18446744073709552000"),
    ("1152921504606846976.0", "1152921504606847000"),
    ("9.3e18", "9300000000000000000"),
    ("123456789012345678901234567890", "1.2345678901234568e+29"),
    ('"\\ud800!"', '"\\ufffd!"'),
    ('"\\ud83d\\ude00"', '"😀"'),
    ('"<&>\\u2028"', '"\\u003c\\u0026\\u003e\\u2028"'),
    ('{"b": 1, "a": {"é": [1.0, null], "e": ""}}', '{"a":{"e":"","é":[1,null]},"b":1}'),
    ('{"\\ud800": 1, "\\ue000": 2}', '{"\\ue000":2,"\\ufffd":1}'),
]


@pytest.mark.parametrize(("sent", "stored"), STORED)
def test_what_the_api_server_returns_has_the_same_form_as_what_was_sent(sent: str, stored: str) -> None:
    assert to_stored_json(json.loads(sent)) == to_stored_json(json.loads(stored))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("1", "2"),
        ("1", '"1"'),
        ("1", "true"),
        ("null", '""'),
        ('"1.0"', '"1"'),
        ("9223372036854775807", "9223372036854775806"),
        ("0.1", "0.10000000000000002"),
        ('{"a": {"b": 1}}', '{"a": 1}'),
        ("[1, 2]", "[2, 1]"),
        ('["a,b"]', '["a", "b"]'),
    ],
)
def test_other_data_has_another_form(one: str, other: str) -> None:
    assert to_stored_json(json.loads(one)) != to_stored_json(json.loads(other))


DATA: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


@pytest.mark.fuzz
@fuzz_settings(100)
@given(data=DATA)
def test_the_form_of_a_form_is_itself(data: Any) -> None:
    form = to_stored_json(data)
    assert to_stored_json(json.loads(form)) == form


@pytest.mark.parametrize(
    ("context", "reason"),
    [
        ({"rows": [{"id": 2**63 - 1}, {"id": -(2**63)}], "a": 1.5, "b": True}, None),
        ({"rows": [{"id": 1}, {"id": 2**63}]}, "rows[1].id: an integer of more than 64 bits would be rounded"),
        ({"rows": [{"a b": float("nan")}]}, "rows[0]['a b']: nan is no JSON value"),
        ({"x": float("inf")}, "x: inf is no JSON value, or too large for a double; send null or a string"),
    ],
)
def test_a_context_that_would_change_is_named_by_its_path(context: Any, reason: str | None) -> None:
    found = find_unstorable(context)
    assert found is None if reason is None else found is not None and found.startswith(reason)


def test_gateway_and_client_name_the_path_of_what_json_does_not_have() -> None:
    context = {"context": {"rows": [{"price": 1}, {"price": float("nan")}]}}
    with pytest.raises(ValueError, match=r"^context\.rows\[1\]\.price: nan is no JSON value"):
        encode_body(context)
    with pytest.raises(HttpProblem) as problem:
        parse_json(json.dumps(context).encode())
    assert "context.rows[1].price: nan is no JSON value" in problem.value.detail


def test_long_integers_become_texts_and_all_else_stays() -> None:
    data = {"a": [2**64, {"b": 2**63}], "c": "1" * 30, "d": 2**63 - 1}
    changed = {**data, "a": [str(2**64), {"b": str(2**63)}]}
    assert write_long_integers(data, json.dumps(data)) == (changed, "result.a[0]")
    assert write_long_integers({"c": "1" * 30}, json.dumps("1" * 30)) == ({"c": "1" * 30}, "")
