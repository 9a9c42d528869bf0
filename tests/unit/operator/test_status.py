"""The status of executions, and what is gathered for it."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_exec_api.code_execution import CodeExecutionStatus, Phase, QueuePlace, Start
from mcp_exec_api.reasons.execution import Reason
from mcp_exec_common.supervisor.protocol import Event, parse_event
from mcp_exec_operator.core.executions import facts
from mcp_exec_operator.core.executions.facts import ExecutionFacts, measure_stored_bytes
from mcp_exec_operator.core.executions.outcome import ExecutionOutcome, build_failure
from mcp_exec_operator.core.executions.output import OutputCollector
from mcp_exec_operator.core.executions.status import (
    build_bound_status,
    build_finished_status,
    build_pending_status,
    fit_output,
)

NOW = datetime(2026, 11, 21, 20, 0, 1, 500_000, tzinfo=UTC)


def event(seq: int, kind: str, **fields: Any) -> Event:
    line = {"seq": seq, "at": "2026-11-21T20:00:00.000000Z", "type": kind, **fields}
    return parse_event(json.dumps(line).encode())


def test_a_life_leaves_a_valid_status_at_each_step() -> None:
    created = NOW - timedelta(milliseconds=20)
    place = QueuePlace(position=12, of=40, expected_wait_seconds=6.2)
    pending = build_pending_status(
        {}, reason=Reason.POOL_UNAVAILABLE, message="none", place=place, moment=NOW, created=created
    )
    bound = build_bound_status(
        pending,
        pod="p",
        node="n",
        start=Start.WARM,
        ready_seconds=48.2,
        digest="sha256:x",
        moment=NOW,
        created=created,
    )
    done = build_finished_status(bound, build_failure(Reason.SANDBOX_LOST, "gone"), moment=NOW, created=created)
    for status in (pending, bound, done):
        CodeExecutionStatus.model_validate(status)
        assert "" not in status.values()
    assert (pending["reason"], "reason" in bound, done["reason"]) == ("PoolUnavailable", False, "SandboxLost")
    assert pending["queue"] == {"position": 12, "of": 40, "expectedWaitSeconds": 6.2}
    assert pending["conditions"][0]["message"] == "none; position 12 of 40, about 6 s"
    unbound = build_finished_status(pending, build_failure(Reason.CANCELLED, ""), moment=NOW, created=NOW)
    assert "queue" not in {**bound, **unbound}
    assert bound["conditions"][0]["message"] == "pod p was ready for 48 s"
    assert (done["duration"], done["durations"]) == ("20ms", {"queued": 20.0, "total": 20.0})


@pytest.mark.parametrize(
    ("annotation", "first_seen", "expected"),
    [
        ("2026-11-21T20:00:01.123456Z", NOW, "2026-11-21T20:00:01.123456+00:00"),
        ("2020-01-01T00:00:00Z", NOW, "2026-11-21T20:00:01.500000+00:00"),
        ("nonsense", NOW, "2026-11-21T20:00:01.500000+00:00"),
        ("2026-11-21T20:00:01.1", NOW, "2026-11-21T20:00:01.500000+00:00"),
        (None, NOW, "2026-11-21T20:00:01.500000+00:00"),
        (None, NOW + timedelta(hours=1), "2026-11-21T20:00:01+00:00"),
        (None, NOW - timedelta(hours=1), "2026-11-21T20:00:01+00:00"),
    ],
)
def test_the_time_of_creation_is_as_fine_as_it_can_be_trusted(
    annotation: str | None, first_seen: datetime, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facts, "now", lambda: first_seen)
    annotations = {"mcp-exec.dev/created-at": annotation} if annotation else None
    meta = {"name": "e", "namespace": "agents", "uid": "u", "creationTimestamp": "2026-11-21T20:00:01Z"}
    assert ExecutionFacts.from_object({"metadata": {**meta, "annotations": annotations}}).created == (
        datetime.fromisoformat(expected)
    )


@pytest.mark.parametrize("written", ["junk", "2026-11-21T20:00:01"])
def test_a_time_of_creation_that_somebody_else_wrote_to_the_status_ends_nothing(written: str) -> None:
    meta = {"name": "e", "namespace": "agents", "uid": "u", "creationTimestamp": "2026-11-21T20:00:01Z"}
    read = ExecutionFacts.from_object({"metadata": meta, "status": {"createdAt": written}})
    assert read.created == read.first_seen


def test_text_is_joined_in_order_and_repeats_are_ignored() -> None:
    collector = OutputCollector(limit=1000)
    events = [
        event(1, "status", phase="Running"),
        event(2, "stdout", text="a"),
        event(3, "stderr", text="e"),
        event(2, "stdout", text="a"),
        event(4, "stdout", text="b"),
        event(5, "tool_call", id="c", tool="a.b", argumentBytes=2),
        event(6, "approval", id="approval-0123456789abcdef", tool="a.b", expiresAt="2026-11-21T20:05:00Z"),
        event(7, "tool_result", id="c", tool="a.b", ok=True, bytes=1, ms=0.5),
        event(8, "result", value={"n": None}),
    ]
    for each in events:
        collector.add(each)
    assert collector.end is None
    collector.add(event(9, "end", phase="Succeeded", stdoutBytes=2, stderrBytes=1))
    assert collector.end is not None
    output = collector.build_output()
    assert (output["stdout"], output["stderr"], output["result"]) == ("ab", "e", {"n": None})
    assert output["stdoutBytes"] == 2
    assert output["truncated"] is False


def test_a_sandbox_cannot_say_more_than_its_limit() -> None:
    collector = OutputCollector(limit=1024)
    for seq in range(1, 40):
        collector.add(event(seq, "stdout", text="x" * 100))
    assert len(collector.build_output()["stdout"]) == 1024 + 256
    assert collector.build_output()["truncated"] is True


@pytest.mark.parametrize("text", ["NaN", "Infinity", '{"a": [1e999]}', '"' + "x" * 5000 + '"'])
def test_a_result_that_is_no_json_or_too_large_becomes_a_short_text(text: str) -> None:
    collector = OutputCollector(limit=1024)
    line = '{"seq": 1, "at": "2026-11-21T20:00:00Z", "type": "result", "value": ' + text + "}"
    collector.add(parse_event(line.encode()))
    output = collector.build_output()
    assert isinstance(output["result"], str)
    assert len(output["result"]) < 1200
    assert output["truncated"] is True
    json.dumps(output, allow_nan=False)


@pytest.mark.parametrize(
    ("phase", "said", "kept"),
    [
        ("Failed", "UserError", "UserError"),
        ("Failed", "OutOfMemory", "OutOfMemory"),
        ("Failed", "QuotaExceeded", "UserError"),
        ("Failed", "Timeout", "UserError"),
        ("Succeeded", "UserError", ""),
        ("TimedOut", "", "Timeout"),
        ("Cancelled", "Timeout", "Cancelled"),
    ],
)
def test_a_sandbox_gives_no_reason_that_is_not_its_own(phase: str, said: str, kept: str) -> None:
    collector = OutputCollector(limit=1024)
    collector.add(event(1, "end", phase=phase, reason=said))
    assert collector.reason == kept


def test_a_hostile_error_is_bounded() -> None:
    collector = OutputCollector(limit=1024)
    huge = {"type": "T" * 10_000, "message": "m" * 100_000, "line": -1, "traceback": "t" * 100_000}
    collector.add(event(1, "end", phase="Failed", reason="UserError", error=huge))
    error = collector.error
    assert error is not None
    assert len(error.model_dump_json()) < 50_000
    assert error.line is None


@given(st.text(alphabet="ab<\x00é🎉", max_size=3000), st.text(max_size=2000), st.integers(3000, 20_000))
def test_any_output_is_cut_to_what_fits(stdout: str, result: str, limit: int) -> None:
    output = {"stdout": stdout, "stderr": "", "result": {"deep": result}, "truncated": False}
    fitted = fit_output(output, limit)
    assert sum(measure_stored_bytes(fitted[part]) for part in ("stdout", "stderr", "result")) <= limit
    assert fitted == output or fitted["truncated"] is True


def test_a_long_result_does_not_keep_a_status_from_being_written() -> None:
    outcome = ExecutionOutcome(
        phase=Phase.SUCCEEDED,
        output={"stdout": "<" * 300_000, "stderr": "é" * 200_000, "result": ["x" * 200_000], "truncated": False},
    )
    status = build_finished_status({}, outcome, moment=NOW, created=NOW, limit=500_000)
    assert measure_stored_bytes(status) < 510_000
