"""Repeated names are found in time that is linear in the size of a request."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_exec_api.code_execution import CodeExecutionSpec
from mcp_exec_gateway.core.http.parameters import find_repeated
from mcp_exec_gateway.core.http.problems import HttpProblem
from mcp_exec_gateway.core.http.request_body import parse_spec


@given(st.lists(st.sampled_from("abcdef"), max_size=12))
def test_a_name_is_repeated_if_it_stands_twice(names: list[str]) -> None:
    repeated = find_repeated(names)
    assert (repeated is None) == (len(set(names)) == len(names))
    assert repeated is None or names.count(repeated) > 1


def test_the_largest_body_with_a_repeated_key_at_its_end_is_rejected_before_the_test_times_out() -> None:
    members = ",".join(f'"{number}":0' for number in [*range(95_000), 94_999])
    body = f'{{"code": "1", "context": {{{members}}}}}'.encode()
    assert len(body) > 900_000
    with pytest.raises(HttpProblem, match="'94999' twice"):
        parse_spec(CodeExecutionSpec, body)
    assert json.loads(body)["code"] == "1"
