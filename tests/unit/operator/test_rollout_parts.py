"""Parts of the rollout controller: measures that are read again, Events, and what pools need."""

from datetime import UTC, datetime
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from mcp_exec_api.execution_rollout import ExecutionRolloutSpec
from mcp_exec_api.rollout_status import ExecutionRolloutStatus, RolloutPhase
from mcp_exec_common.rollouts.progress import RolloutMeasures
from mcp_exec_operator.features.rollouts.measures import NO_RECORDS, MeasuresCache, RecordsUnreadable, RolloutIdentity
from mcp_exec_operator.features.rollouts.record import RolloutMetrics, RolloutRecord, build_events

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SPEC = {
    "arms": [{"name": "a", "mode": "direct"}, {"name": "b", "mode": "code"}],
    "control": "a",
    "stages": [{"name": "all", "percent": 100, "manual": True}],
}
IDENTITY = RolloutIdentity(namespace="n", name="r", uid="u")


class Reader:
    def __init__(self) -> None:
        self.reads = 0
        self.problem: Exception | None = None

    async def read(self, rollout: RolloutIdentity, spec: ExecutionRolloutSpec) -> RolloutMeasures:
        self.reads += 1
        if self.problem is not None:
            raise self.problem
        return RolloutMeasures()


def record(**changes: Any) -> RolloutRecord:
    metadata = {"namespace": "n", "name": "r", "uid": "u", "resourceVersion": "7", "generation": 2}
    return RolloutRecord.from_object({"metadata": metadata, "spec": SPEC} | changes)


def status(phase: RolloutPhase, stage: str | None = None, **fields: Any) -> ExecutionRolloutStatus:
    since = NOW if stage is not None else None
    return ExecutionRolloutStatus(phase=phase, stage=stage, since=since, message="why", exposure="100 %", **fields)


def reasons(before: ExecutionRolloutStatus, after: ExecutionRolloutStatus) -> list[tuple[str, str, str]]:
    events = build_events(record(), before, after, moment=NOW)
    return [(each["type"], each["reason"], each["message"]) for each in events]


async def test_measures_are_read_every_ten_seconds_and_kept_for_a_minute_if_they_cannot_be_read() -> None:
    time, reader = [0.0], Reader()
    cache = MeasuresCache(reader=reader, clock=lambda: time[0])
    spec = ExecutionRolloutSpec.model_validate(SPEC)

    async def read_at(seconds: float) -> tuple[str, int]:
        time[0] = seconds
        return (await cache.get(IDENTITY, spec)).problem, reader.reads

    assert await read_at(0) == ("", 1)
    assert await read_at(9) == ("", 1)
    reader.problem = RecordsUnreadable("no broker")
    assert await read_at(11) == ("", 2)
    assert await read_at(12) == ("", 2)
    assert await read_at(59) == ("", 3)
    assert await read_at(70) == ("no broker", 4)
    reader.problem = TimeoutError()
    assert await read_at(81) == ("the records were not read within 5 s", 5)
    reader.problem = None
    assert await read_at(92) == ("", 6)
    cache.forget("u")
    assert await read_at(93) == ("", 7)
    assert await MeasuresCache().get(IDENTITY, spec) is NO_RECORDS


def test_each_stage_and_each_phase_is_an_event_once() -> None:
    pending, warming = status(RolloutPhase.PENDING), status(RolloutPhase.WARMING)
    began, paused = status(RolloutPhase.PROGRESSING, "all"), status(RolloutPhase.PAUSED, "all")
    assert reasons(pending, warming) == [("Normal", "Warming", "why")]
    assert reasons(warming, began) == [("Normal", "StageBegan", "stage all began: 100 %")]
    assert reasons(began, paused) == [("Normal", "Paused", "why")]
    assert reasons(paused, began) == [("Normal", "Resumed", "why")]
    assert reasons(began, began) == []
    assert reasons(began, status(RolloutPhase.COMPLETED, "all")) == [("Normal", "Completed", "why")]
    for phase in (RolloutPhase.ROLLED_BACK, RolloutPhase.ABORTED):
        assert reasons(began, status(phase, "all")) == [("Warning", str(phase), "why")]


@pytest.mark.parametrize(
    ("phase", "observed", "active"),
    [("Progressing", 2, True), ("Completed", 2, False), ("Completed", 1, True), ("Pending", 1, True)],
)
def test_a_rollout_that_has_ended_is_looked_at_once_after_each_change(phase: str, observed: int, active: bool) -> None:
    assert record(status={"phase": phase, "observedGeneration": observed}).is_active is active


def test_what_cannot_be_read_is_named() -> None:
    assert "spec is invalid" in record(spec=SPEC | {"control": "c"}).problem
    unread = record(status={"phase": "Progressing", "later": 1})
    assert (unread.status, unread.is_active) == (None, False)
    assert unread.problem == "another version of the operator wrote the status; it is left as it is: later"


def test_at_most_two_hundred_rollouts_have_series_and_a_deletion_makes_room() -> None:
    registry = CollectorRegistry()
    metrics = RolloutMetrics(registry)
    made = [
        record(metadata={"namespace": "n", "name": f"r{number}", "uid": f"u{number}", "resourceVersion": "1"})
        for number in range(201)
    ]

    def has_series(number: int) -> bool:
        labels = {"namespace": "n", "rollout": f"r{number}"}
        return registry.get_sample_value("mcp_exec_rollout_stage", labels) is not None

    for each in made:
        metrics.observe(each)
    assert (has_series(0), has_series(199), has_series(200)) == (True, True, False)
    metrics.discard(made[0])
    metrics.observe(made[200])
    assert (has_series(0), has_series(200)) == (False, True)
