"""Progress of a rollout through its stages. Pure.

The next status follows from the spec, the stored status, what was measured, and the time. Nothing else is remembered: a
new leader of the operator continues from the stored status, and a second computation of a step changes nothing. One
call begins at most one stage, so that a leader that comes late skips none. The time of a pause counts as time of the
stage.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from mcp_exec_api.execution_rollout import COMPLETED, ExecutionRolloutSpec, RolloutStage
from mcp_exec_api.meta import Condition, ConditionStatus, set_condition
from mcp_exec_api.rollout_status import ArmMeasures, ExecutionRolloutStatus, GuardResult, GuardState, RolloutPhase
from mcp_exec_common.rollouts.guards import ArmIntervals, GuardDecision, Verdict, decide

_CONTROL_ONLY: Final = frozenset({RolloutPhase.PENDING, RolloutPhase.ROLLED_BACK, RolloutPhase.ABORTED})


def describe_exposure(spec: ExecutionRolloutSpec, status: ExecutionRolloutStatus) -> str:
    """Return who is enrolled, for people: `25 users, 10 %`."""
    present = spec.find_stage(status.stage)
    if status.phase in _CONTROL_ONLY or present is None:
        return "0 %"
    if status.phase is RolloutPhase.COMPLETED and spec.complete_with is not None:
        return f"all: {spec.complete_with}"
    begun = spec.stages[: present + 1]
    users = len({user for stage in begun for user in stage.users})
    share = f"{max(stage.percent for stage in begun)} %"
    return f"{users} user{'' if users == 1 else 's'}, {share}" if users else share


def describe_guards(results: Sequence[GuardResult]) -> str | None:
    """Return the worst result, for people: `OK` or `errorRate Violated`. None without guards."""
    for state in (GuardState.VIOLATED, GuardState.UNKNOWN):
        for result in results:
            if result.state is state:
                return f"{result.metric} {state}"
    return "OK" if results else None


WARM_AHEAD_SECONDS: Final = 120.0
"""Time from the moment when the pools of the next stage begin to warm to the end of a stage."""
MAX_WARMING_SECONDS: Final = 900.0
"""Longest wait of a stage for its pools to be warm. Without them its executions then wait for cold pods."""
GUARD_PAUSED: Final = "GuardPaused"
"""Condition that is true from the moment when a guard pauses the rollout until somebody resumes it."""


@dataclass(frozen=True, kw_only=True)
class RolloutMeasures:
    """What the arms measured. Without records, nothing is known."""

    guards: Mapping[str, Mapping[str, ArmIntervals]] = field(default_factory=dict)
    """By guard and arm, in the guard's window."""
    arms: Sequence[ArmMeasures] = ()
    """By arm, since the rollout began."""
    problem: str = ""
    """Why records cannot be read; empty if they can."""


@dataclass(frozen=True, kw_only=True)
class RolloutProgress:
    """Next status of a rollout, and the warm pods that it needs."""

    status: ExecutionRolloutStatus
    warm: Mapping[str, int]
    """Minimum of warm pods by pool, for the present stage and for the next one if it begins soon."""


def advance(
    spec: ExecutionRolloutSpec,
    status: ExecutionRolloutStatus,
    measures: RolloutMeasures,
    *,
    warm: Mapping[str, int],
    now: datetime,
    generation: int | None = None,
) -> RolloutProgress:
    """Return the next status. `warm` has the number of warm pods of each pool; a pool that is missing has none."""
    if status.phase.is_final and not (spec.kill_switch and status.phase is RolloutPhase.COMPLETED):
        return _describe(spec, status, measures, {}, now, generation)
    if spec.kill_switch:
        ended = _end(status, RolloutPhase.ABORTED, "spec.killSwitch is set", now)
        return _describe(spec, ended, measures, {}, now, generation)
    present = spec.find_stage(status.stage)
    # a person who promotes knows what is unknown: only limits that are crossed count then
    is_over = present is not None and _is_over(spec.stages[present], status, now)
    names = [arm.name for arm in spec.arms]
    decision = decide(spec.guards, measures.guards, arms=names, control=spec.control, at_end=is_over)
    if present is None:
        decision = GuardDecision(verdict=Verdict.PROCEED, results=[], message="")
    status = status.model_copy(update={"guards": decision.results})
    if decision.verdict is Verdict.ROLLBACK:
        ended = _end(status, RolloutPhase.ROLLED_BACK, decision.message, now)
        return _describe(spec, ended, measures, {}, now, generation)
    status = _observe_pause(spec, status, decision, now)
    target = _choose_target(spec, status, present, decision, is_over=is_over)
    moved, needed = _move(spec, status, present, target, decision, warm=warm, now=now)
    return _describe(spec, moved, measures, needed, now, generation)


def refuse(
    status: ExecutionRolloutStatus, problem: str, *, now: datetime, generation: int | None = None
) -> RolloutProgress:
    """Return the status of a rollout whose spec contradicts itself. The stage stays, and no pool is raised."""
    update: dict[str, Any] = {"observed_generation": generation, "message": problem[:1000]}
    refused = _observe(status.model_copy(update=update), "Ready", False, "Invalid", problem, now)
    return RolloutProgress(status=refused, warm={})


def _is_over(stage: RolloutStage, status: ExecutionRolloutStatus, now: datetime) -> bool:
    return stage.duration_seconds is not None and _seconds(status.since, now) >= stage.duration_seconds


def _seconds(since: datetime | None, now: datetime) -> float:
    """Return the time since then. The clock of another leader may have been ahead."""
    return 0.0 if since is None else max(0.0, (now - since).total_seconds())


def _end(status: ExecutionRolloutStatus, phase: RolloutPhase, message: str, now: datetime) -> ExecutionRolloutStatus:
    return status.model_copy(update={"phase": phase, "ended_at": now, "warming_since": None, "message": message[:1000]})


def _observe_pause(
    spec: ExecutionRolloutSpec, status: ExecutionRolloutStatus, decision: GuardDecision, now: datetime
) -> ExecutionRolloutStatus:
    """Record that a guard paused the rollout, or that somebody who pauses it has taken notice."""
    was = _has(status, GUARD_PAUSED)
    if decision.verdict is Verdict.PAUSE and not spec.paused:
        return _observe(status, GUARD_PAUSED, True, "Violated", decision.message, now)
    if was and (spec.paused or _is_promoted(spec, status)):
        return _observe(status, GUARD_PAUSED, False, "Resumed", "", now)
    return status


def _is_promoted(spec: ExecutionRolloutSpec, status: ExecutionRolloutStatus) -> bool:
    """Return whether somebody requested a later stage than the present one, or the end."""
    present, wanted = spec.find_stage(status.stage), spec.find_stage(spec.promoted_to)
    if spec.promoted_to == COMPLETED:
        return present is not None
    return wanted is not None and wanted > (-1 if present is None else present)


def _choose_target(
    spec: ExecutionRolloutSpec,
    status: ExecutionRolloutStatus,
    present: int | None,
    decision: GuardDecision,
    *,
    is_over: bool,
) -> int | None:
    """Return the index of the stage that should begin, the number of stages for the end, or None to stay."""
    if spec.paused or _has(status, GUARD_PAUSED):
        return None
    if _is_promoted(spec, status):
        wanted = spec.find_stage(spec.promoted_to)
        return len(spec.stages) if wanted is None else wanted
    if present is None:
        return 0
    return present + 1 if is_over and decision.verdict is Verdict.PROCEED else None


def _move(
    spec: ExecutionRolloutSpec,
    status: ExecutionRolloutStatus,
    present: int | None,
    target: int | None,
    decision: GuardDecision,
    *,
    warm: Mapping[str, int],
    now: datetime,
) -> tuple[ExecutionRolloutStatus, dict[str, int]]:
    """Return the status of the target stage, or of waiting for it, and the warm pods that are needed."""
    kept = {} if present is None else _needs(spec, spec.stages[present])
    if target is None:
        stayed = _stay(spec, status, present, decision)
        return stayed, _join(kept, _ahead(spec, stayed, present, now))
    if target == len(spec.stages):
        return _end(status, RolloutPhase.COMPLETED, "all stages are over", now), {}
    stage = spec.stages[target]
    needed = _needs(spec, stage)
    missing = {pool: count for pool, count in needed.items() if warm.get(pool, 0) < count}
    waited = _seconds(status.warming_since, now)
    if missing and waited < MAX_WARMING_SECONDS:
        listed = ", ".join(f"{pool} has {warm.get(pool, 0)} of {count}" for pool, count in sorted(missing.items()))
        update: dict[str, Any] = {
            "phase": RolloutPhase.WARMING,
            "warming_since": status.warming_since or now,
            "message": f"stage {stage.name} waits for warm pods: {listed}"[:1000],
        }
        waiting = _observe(status.model_copy(update=update), "PoolsWarm", False, "Warming", listed, now)
        return waiting, _join(kept, needed)
    update = {
        "phase": RolloutPhase.PROGRESSING,
        "stage": stage.name,
        "since": now,
        "warming_since": None,
        "message": f"in stage {stage.name}",
    }
    began = status.model_copy(update=update)
    late = f"the stage began after {MAX_WARMING_SECONDS:.0f} s without them" if missing else ""
    return _observe(began, "PoolsWarm", not missing, "TimedOut" if missing else "Warm", late, now), needed


def _stay(
    spec: ExecutionRolloutSpec, status: ExecutionRolloutStatus, present: int | None, decision: GuardDecision
) -> ExecutionRolloutStatus:
    """Return the status of a rollout that stays in its stage."""
    update: dict[str, Any] = {"warming_since": None, "phase": RolloutPhase.PROGRESSING}
    if spec.paused:
        update |= {"phase": RolloutPhase.PAUSED, "message": "spec.paused is set"}
    elif _has(status, GUARD_PAUSED):
        reason = next((each.message for each in status.conditions if each.type == GUARD_PAUSED), "")
        advice = "promote the rollout, or set spec.paused to true and back to false"
        update |= {"phase": RolloutPhase.PAUSED, "message": f"{reason}; {advice}"[-1000:]}
    elif decision.verdict is Verdict.HOLD:
        update["message"] = f"the stage lasts longer: {decision.message}"[:1000]
    elif present is not None:
        update["message"] = f"in stage {spec.stages[present].name}"
    return status.model_copy(update=update)


def _ahead(
    spec: ExecutionRolloutSpec, status: ExecutionRolloutStatus, present: int | None, now: datetime
) -> dict[str, int]:
    """Return the warm pods of the next stage if the present one ends soon and nothing holds it."""
    if present is None or present + 1 == len(spec.stages) or status.phase is RolloutPhase.PAUSED:
        return {}
    duration = spec.stages[present].duration_seconds
    if duration is None or _seconds(status.since, now) < duration - WARM_AHEAD_SECONDS:
        return {}
    return _needs(spec, spec.stages[present + 1])


def _needs(spec: ExecutionRolloutSpec, stage: RolloutStage) -> dict[str, int]:
    if stage.warm_pods == 0:
        return {}
    return {arm.pool: stage.warm_pods for arm in spec.arms if arm.pool is not None}


def _join(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {pool: max(one.get(pool, 0), other.get(pool, 0)) for pool in {**one, **other}}


def _has(status: ExecutionRolloutStatus, condition: str) -> bool:
    return any(each.type == condition and each.status is ConditionStatus.TRUE for each in status.conditions)


def _observe(
    status: ExecutionRolloutStatus, kind: str, holds: bool, reason: str, message: str, now: datetime
) -> ExecutionRolloutStatus:
    state = ConditionStatus.TRUE if holds else ConditionStatus.FALSE
    condition = Condition(type=kind, status=state, reason=reason, message=message[:4096], last_transition_time=now)
    return status.model_copy(update={"conditions": set_condition(status.conditions, condition)})


def _describe(
    spec: ExecutionRolloutSpec,
    status: ExecutionRolloutStatus,
    measures: RolloutMeasures,
    warm: Mapping[str, int],
    now: datetime,
    generation: int | None,
) -> RolloutProgress:
    """Add what people read: names, exposure, the worst guard, conditions."""
    names = [spec.control, *(arm.name for arm in spec.arms if arm.name != spec.control)]
    update: dict[str, Any] = {
        "observed_generation": generation,
        "arm_names": ", ".join(names),
        "exposure": describe_exposure(spec, status),
        "guard": describe_guards(status.guards),
    }
    if not measures.problem:
        update["arms"] = list(measures.arms)
    status = _observe(status.model_copy(update=update), "Ready", True, "Driven", "", now)
    reason = "Unreadable" if measures.problem else "Read"
    status = _observe(status, "Measured", not measures.problem, reason, measures.problem, now)
    return RolloutProgress(status=status, warm=warm)


class NoLaterStage(Exception):
    """The requested stage is not a later one; the message names those that are."""


def choose_promotion(spec: ExecutionRolloutSpec, stage: str | None, to: str | None) -> str:
    """Return the value of `spec.promotedTo`: `to`, or by default the stage after the present one.

    Raises NoLaterStage. Before the first stage, the end is not allowed.
    """
    present = spec.find_stage(stage)
    later = [each.name for each in spec.stages[0 if present is None else present + 1 :]]
    allowed = [*later, *([] if present is None else [COMPLETED])]
    if to is None:
        return allowed[0]
    if to not in allowed:
        raise NoLaterStage(f"{to!r} is no later stage; allowed: {', '.join(allowed)}")
    return to
