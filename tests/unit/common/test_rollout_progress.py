"""Progress of a rollout: stages, pauses, rollback, warm pods, and failovers of the operator."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from mcp_exec_api.execution_rollout import ExecutionRolloutSpec
from mcp_exec_api.rollout_status import ExecutionRolloutStatus, GuardMetric, RolloutPhase
from mcp_exec_common.rollouts.assignment import assign_arm
from mcp_exec_common.rollouts.guards import share_interval
from mcp_exec_common.rollouts.progress import RolloutMeasures, RolloutProgress, advance

START = datetime(2026, 1, 1, tzinfo=UTC)
STAGES: list[dict[str, Any]] = [
    {"name": "team", "users": ["u-1", "u-2"], "manual": True},
    {"name": "quarter", "percent": 25, "durationSeconds": 600},
    {"name": "all", "percent": 100, "durationSeconds": 600, "warmPods": 4},
]
GUARD = {"name": "errors", "metric": "errorRate", "threshold": 0.2, "minSamples": 5}


def build(**changes: Any) -> ExecutionRolloutSpec:
    arms = [{"name": "direct", "mode": "direct"}, {"name": "code", "mode": "code", "pool": "large"}]
    return ExecutionRolloutSpec.model_validate({"arms": arms, "control": "direct", "stages": STAGES} | changes)


def failing(failures: int, samples: int) -> RolloutMeasures:
    found = share_interval(failures, samples)
    assert found is not None
    return RolloutMeasures(guards={"errors": {"code": {GuardMetric.ERROR_RATE: found}}})


GOOD, BAD, NOTHING = failing(0, 50), failing(45, 50), RolloutMeasures()


def step(
    spec: ExecutionRolloutSpec,
    status: ExecutionRolloutStatus,
    seconds: float,
    *,
    measures: RolloutMeasures = GOOD,
    warm: int = 4,
) -> RolloutProgress:
    # what the API server stores is what the next leader reads
    stored = ExecutionRolloutStatus.model_validate(status.to_api())
    now = START + timedelta(seconds=seconds)
    return advance(spec, stored, measures, warm={"large": warm}, now=now, generation=1)


def run(spec: ExecutionRolloutSpec, times: Iterable[float], **options: Any) -> ExecutionRolloutStatus:
    status = ExecutionRolloutStatus()
    for seconds in times:
        status = step(spec, status, seconds, **options).status
    return status


def in_quarter(**changes: Any) -> tuple[ExecutionRolloutSpec, ExecutionRolloutStatus]:
    """Return a rollout whose stage `quarter` began at 0 seconds."""
    return build(**changes), ExecutionRolloutStatus(phase=RolloutPhase.PROGRESSING, stage="quarter", since=START)


def test_the_first_stage_begins_at_once_and_lasts_until_somebody_promotes() -> None:
    status = run(build(), (0, 10, 100_000))
    assert (status.phase, status.stage, status.since) == (RolloutPhase.PROGRESSING, "team", START)
    assert (status.arm_names, status.exposure, status.observed_generation) == ("direct, code", "2 users, 0 %", 1)
    promoted = step(build(promotedTo="quarter"), status, 100_010).status
    assert (promoted.stage, promoted.exposure) == ("quarter", "2 users, 25 %")


def test_a_promotion_is_carried_out_once() -> None:
    spec = build(promotedTo="quarter")
    status = run(spec, (0, 1, 2, 3))
    assert (status.stage, status.since) == ("quarter", START)


def test_a_timed_stage_ends_after_its_time_and_the_last_completes_the_rollout() -> None:
    spec, status = in_quarter()
    assert step(spec, status, 599).status.stage == "quarter"
    status = step(spec, status, 600).status
    assert (status.stage, status.since) == ("all", START + timedelta(seconds=600))
    assert step(spec, status, 1199).status.phase is RolloutPhase.PROGRESSING
    status = step(spec, status, 1200).status
    assert (status.phase, status.ended_at) == (RolloutPhase.COMPLETED, START + timedelta(seconds=1200))
    assert step(build(paused=True), status, 5000).status == status


def test_a_leader_that_comes_late_skips_no_stage() -> None:
    spec, status = in_quarter()
    status = step(spec, status, 100_000).status
    assert (status.stage, status.since) == ("all", START + timedelta(seconds=100_000))
    assert step(spec, status, 100_001).status.phase is RolloutPhase.PROGRESSING


def test_a_step_that_is_computed_twice_changes_nothing() -> None:
    spec, status = in_quarter(guards=[GUARD])
    for seconds, measures in ((300, GOOD), (600, GOOD), (600, BAD), (600, NOTHING)):
        once = step(spec, status, seconds, measures=measures)
        assert step(spec, once.status, seconds, measures=measures) == once


def test_a_failover_in_the_middle_changes_nobodys_arm() -> None:
    spec, before = in_quarter()
    after = step(spec, before, 300).status
    units = [f"id-{number}" for number in range(500)]
    assert [assign_arm(spec, after, uid="u", unit=unit) for unit in units] == [
        assign_arm(spec, before, uid="u", unit=unit) for unit in units
    ]
    behind = step(spec, before, -30).status  # the new leader's clock is behind
    assert (behind.stage, behind.since) == ("quarter", START)


def test_the_pools_are_warm_before_the_stage_begins() -> None:
    spec, status = in_quarter()
    assert step(spec, status, 479).warm == {}
    assert step(spec, status, 480, warm=0).warm == {"large": 4}
    waiting = step(spec, status, 600, warm=3)
    assert (waiting.status.phase, waiting.status.stage, waiting.warm) == (RolloutPhase.WARMING, "quarter", {"large": 4})
    assert waiting.status.message == "stage all waits for warm pods: large has 3 of 4"
    began = step(spec, waiting.status, 630)
    assert (began.status.stage, began.status.warming_since, began.warm) == ("all", None, {"large": 4})


def test_a_stage_waits_for_its_pools_no_longer_than_its_limit() -> None:
    spec, status = in_quarter()
    status = step(spec, status, 600, warm=0).status
    status = step(spec, status, 1499, warm=0).status
    assert (status.phase, status.warming_since) == (RolloutPhase.WARMING, START + timedelta(seconds=600))
    status = step(spec, status, 1500, warm=0).status
    assert (status.phase, status.stage) == (RolloutPhase.PROGRESSING, "all")
    assert [each.reason for each in status.conditions if each.type == "PoolsWarm"] == ["TimedOut"]


@pytest.mark.parametrize("phase", [RolloutPhase.PROGRESSING, RolloutPhase.WARMING, RolloutPhase.PAUSED])
def test_a_bad_arm_rolls_back_in_every_phase(phase: RolloutPhase) -> None:
    spec, status = in_quarter(guards=[GUARD], paused=phase is RolloutPhase.PAUSED)
    found = step(spec, status.model_copy(update={"phase": phase}), 60, measures=BAD)
    assert (found.status.phase, found.status.exposure, found.warm) == (RolloutPhase.ROLLED_BACK, "0 %", {})
    assert found.status.guard == "errorRate Violated"
    assert found.status.message.startswith("guard errors: errorRate of arm code is 0.9 in 50 samples")
    assert assign_arm(spec, found.status, uid="u", unit="u-1").arm.name == "direct"


@pytest.mark.parametrize(
    ("final", "changes"),
    [(RolloutPhase.ROLLED_BACK, {}), (RolloutPhase.ABORTED, {"killSwitch": True}), (RolloutPhase.COMPLETED, {})],
)
def test_what_has_ended_never_begins_again(final: RolloutPhase, changes: dict[str, Any]) -> None:
    spec, status = in_quarter(guards=[GUARD], promotedTo="all", **changes)
    status = status.model_copy(update={"phase": final, "ended_at": START})
    for seconds in (1, 10_000):
        status = step(spec, status, seconds).status
        assert (status.phase, status.ended_at) == (final, START)


def test_a_stage_waits_while_it_is_paused_and_goes_on_when_it_is_resumed() -> None:
    spec, status = in_quarter(paused=True)
    status = step(spec, status, 700).status
    assert (status.phase, status.stage, status.message) == (RolloutPhase.PAUSED, "quarter", "spec.paused is set")
    assert step(build(paused=True, promotedTo="all"), status, 700).status.stage == "quarter"
    assert step(build(), status, 800).status.stage == "all"


def test_a_guard_that_pauses_does_so_until_somebody_resumes() -> None:
    guards = [GUARD | {"action": "Pause"}]
    spec, status = in_quarter(guards=guards)
    status = step(spec, status, 60, measures=BAD).status
    assert (status.phase, status.exposure) == (RolloutPhase.PAUSED, "2 users, 25 %")
    status = step(spec, status, 5000, measures=GOOD).status  # the window has passed, and nobody has looked
    assert (status.phase, status.guard) == (RolloutPhase.PAUSED, "OK")
    assert step(build(guards=guards, promotedTo="all"), status, 5001).status.stage == "all"
    looked = step(build(guards=guards, paused=True), status, 5001).status
    assert step(spec, looked, 5002).status.stage == "all"


@pytest.mark.parametrize(
    ("on_unknown", "phase", "stage"),
    [
        ("Hold", RolloutPhase.PROGRESSING, "quarter"),
        ("Proceed", RolloutPhase.PROGRESSING, "all"),
        ("Rollback", RolloutPhase.ROLLED_BACK, "quarter"),
    ],
)
def test_what_is_unknown_decides_at_the_end_of_a_stage(on_unknown: str, phase: RolloutPhase, stage: str) -> None:
    spec, status = in_quarter(guards=[GUARD | {"onUnknown": on_unknown}])
    assert step(spec, status, 599, measures=NOTHING).status.stage == "quarter"
    found = step(spec, status, 600, measures=NOTHING).status
    assert (found.phase, found.stage) == (phase, stage)


def test_a_promotion_needs_no_samples_but_no_crossed_limit_either() -> None:
    spec, status = in_quarter(guards=[GUARD], promotedTo="all")
    assert step(spec, status, 60, measures=NOTHING).status.stage == "all"
    assert step(spec, status, 60, measures=BAD).status.phase is RolloutPhase.ROLLED_BACK


def test_a_promotion_to_the_end_completes_the_rollout() -> None:
    spec, status = in_quarter(promotedTo="Completed", completeWith="code")
    found = step(spec, status, 60).status
    assert (found.phase, found.exposure) == (RolloutPhase.COMPLETED, "all: code")


def test_the_kill_switch_aborts_also_what_is_complete() -> None:
    spec, status = in_quarter(killSwitch=True)
    for phase in (RolloutPhase.PROGRESSING, RolloutPhase.COMPLETED):
        found = step(spec, status.model_copy(update={"phase": phase}), 60).status
        assert (found.phase, found.message, found.exposure) == (RolloutPhase.ABORTED, "spec.killSwitch is set", "0 %")


def test_records_that_cannot_be_read_are_reported_and_keep_what_was_measured() -> None:
    spec, status = in_quarter(guards=[GUARD])
    found = step(spec, status, 60, measures=RolloutMeasures(problem="records are off")).status
    measured = [each for each in found.conditions if each.type == "Measured"]
    assert [(each.status, each.message) for each in measured] == [("False", "records are off")]
    assert found.guard == "errorRate Unknown"
