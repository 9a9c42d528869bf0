"""Results on their whole way: runner, supervisor, operator, API server, gateway, MCP and client.

What arrives is what the runner made of the value, and what the runner changed has a note.
"""

import json
import math
from collections.abc import Iterable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.constants import SANDBOX_KEY
from tests.support.fuzz import fuzz_settings
from tests.support.go_json import store

from mcp_exec_api.code_execution import Phase
from mcp_exec_client.types import Execution
from mcp_exec_common.broker.attestations import Attestor
from mcp_exec_common.sandbox_keys import SandboxKeys
from mcp_exec_common.supervisor.protocol import parse_event
from mcp_exec_gateway.core.executions.views import build_view
from mcp_exec_gateway.core.http.json import to_json
from mcp_exec_gateway.features.mcp.code_mode.output import build_result
from mcp_exec_operator.core.executions.outcome import ExecutionOutcome
from mcp_exec_operator.core.executions.output import OutputCollector
from mcp_exec_operator.core.executions.status import build_finished_status
from mcp_exec_sandbox.protocol import Notes, encode
from mcp_exec_sandbox.runner.report import report_success
from mcp_exec_sandbox.supervisor.execution.outcome import RunnerReport
from mcp_exec_tools.text import shorten_json

LIMIT = 64 * 1024
NOW = datetime(2026, 11, 25, tzinfo=UTC)
AT = "2026-11-25T00:00:00.000000Z"
ATTESTOR = Attestor(keys=SandboxKeys(SANDBOX_KEY))


def report(value: Any) -> dict[str, Any]:
    """Return the message of a runner whose code returned a value, as the supervisor reads it."""
    notes = Notes()
    message = report_success(value, LIMIT, notes=notes)
    read: dict[str, Any] = json.loads(encode({**message, "notes": notes.to_message()}))
    return read


def store_execution(message: dict[str, Any]) -> dict[str, Any]:
    """Return the execution with the result of a runner's message, as the API server has it at last."""
    received = RunnerReport.from_message(message)
    value, truncated = shorten_json(received.value, LIMIT)
    collector = OutputCollector(limit=LIMIT)
    ended = {"phase": "Succeeded", "notes": received.notes}
    sent: list[dict[str, Any]] = [{"type": "end", **ended}]
    if received.has_value:
        sent.insert(0, {"type": "result", "value": value, "truncated": truncated})
    for seq, fields in enumerate(sent, start=1):
        collector.add(parse_event(json.dumps({"seq": seq, "at": AT, **fields}).encode()))
    outcome = ExecutionOutcome(
        phase=Phase.SUCCEEDED, output=collector.build_output(), notes=collector.notes, message="done"
    )
    status = build_finished_status({}, outcome, moment=NOW, created=NOW)
    metadata = {"name": "e", "namespace": "agents", "creationTimestamp": AT}
    return {"metadata": metadata, "spec": {"code": "1", "poolRef": {"name": "default"}}, "status": store(status)}


def read_by_client(execution: dict[str, Any]) -> Execution:
    return Execution.model_validate_json(to_json(build_view(execution, attestor=ATTESTOR)))


def to_numbers(value: Any) -> Any:
    """Return JSON data with exact numbers, so that 1 and 1.0 are equal and 2**53 + 1 and 2.0**53 are not."""
    return json.loads(json.dumps(value), parse_int=Decimal, parse_float=Decimal)


ANY: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(st.characters(exclude_categories=()))
    | st.binary(max_size=20)
    | st.decimals()
    | st.fractions()
    | st.complex_numbers()
    | st.datetimes()
    | st.timedeltas()
    | st.uuids()
    | st.frozensets(st.integers() | st.text(max_size=3), max_size=4),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(iter)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=3) | st.integers(-3, 3) | st.none() | st.booleans(), inner, max_size=4)
    ),
    max_leaves=12,
)


@fuzz_settings(300)
@given(value=ANY)
def test_what_the_runner_made_of_a_value_arrives_in_status_http_mcp_and_client(value: Any) -> None:
    message = report(value)
    execution = store_execution(message)
    expected = to_numbers(message["value"])
    assert to_numbers(execution["status"]["output"].get("result")) == expected
    assert to_numbers(read_by_client(execution).result) == expected
    called = json.loads(build_result(execution).model_dump_json(by_alias=True))
    assert to_numbers(called["structuredContent"].get("result")) == expected
    sent = {(note["kind"], note["path"]) for note in message["notes"]}
    assert {(note.kind, note.path) for note in read_by_client(execution).notes or ()} == sent


def list_leaves(value: Any) -> Iterable[Any]:
    if isinstance(value, dict | list | tuple):
        for item in value.values() if isinstance(value, dict) else value:
            yield from list_leaves(item)
    else:
        yield value


JSON_LIKE: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(st.characters(exclude_categories=())),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text() | st.integers(-3, 3) | st.none(), inner),
    max_leaves=12,
)


@fuzz_settings(300)
@given(value=JSON_LIKE)
def test_a_result_without_a_note_is_the_value_and_no_entry_is_ever_lost(value: Any) -> None:
    execution = read_by_client(store_execution(report(value)))
    assert len(list(list_leaves(execution.result))) == len(list(list_leaves(value)))
    if not execution.notes:
        assert to_numbers(execution.result) == to_numbers(value)


@pytest.mark.parametrize("value", ["", 0, False, [], {}, [""], {"a": ""}, {"a": None}, [None], 0.0])
def test_an_empty_result_is_a_result(value: Any) -> None:
    execution = store_execution(report(value))
    result = read_by_client(execution).result
    assert json.dumps(result) == json.dumps(store(value))
    called = build_result(execution)
    assert called.structured_content is not None
    assert called.structured_content["result"] == value
    assert "result: " in called.content[0].text  # type: ignore[union-attr]


def test_a_number_that_is_not_a_number_is_no_missing_result() -> None:
    execution = store_execution(report(math.nan))
    called = build_result(execution)
    assert called.content[0].text == (  # type: ignore[union-attr]
        "notes:\n- result: JSON has no NaN, so this is null."
    )


def test_the_text_of_mcp_has_all_digits() -> None:
    text = build_result(store_execution(report({"id": 725653563933458433}))).content[0].text  # type: ignore[union-attr]
    assert 'result: {"id": 725653563933458433}' in text
    assert "result.id: It is exact here, but clients that read numbers as doubles" in text


def test_a_long_integer_of_a_hostile_runner_becomes_a_text_with_a_note() -> None:
    message = {**report(1), "value": {"rows": [{"id": 2**64 + 3}, {"id": -(2**63)}, {"id": 10**2000}]}}
    execution = read_by_client(store_execution(message))
    assert execution.result == {
        "rows": [{"id": "18446744073709551619"}, {"id": -(2**63)}, {"id": "<int of 6644 bits>"}]
    }
    assert [(note.kind, note.path) for note in execution.notes or ()] == [("ValueChanged", "result.rows[0].id")]


@pytest.mark.parametrize(
    ("sent", "stored"),
    [
        ([1.0, -0.0, 1e22, 9007199254740993], "[1, 0, 1e+22, 9007199254740993]"),
        ([18446744073709551617, 1152921504606846976.0], "[18446744073709552000, 1152921504606847000]"),
        ([1e-7, 5e-324, 1.7976931348623157e308], "[1e-07, 5e-324, 1.7976931348623157e+308]"),
        ({"a": "", "b": [None, {"c": None}]}, '{"a": "", "b": [null, {"c": null}]}'),
    ],
)
def test_the_fake_stores_what_an_api_server_stores(sent: Any, stored: str) -> None:
    assert json.dumps(store(sent)).replace("1.8446744073709552e+19", "18446744073709552000") == stored
