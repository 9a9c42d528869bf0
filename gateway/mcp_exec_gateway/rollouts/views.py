"""Rollouts and assignments in responses."""

from typing import Any, Final

from mcp_exec_api.wire.rollouts import Assignment, StageSummary
from mcp_exec_common.rollouts.assignment import ArmAssignment
from mcp_exec_gateway.rollouts.cache import CachedRollout

_FROM_STATUS: Final = ("stage", "since", "endedAt", "message", "exposure", "guards", "conditions")


def build_assignment_view(rollout: CachedRollout, unit: str, found: ArmAssignment) -> dict[str, Any]:
    """Return an assignment as a response shows it."""
    return Assignment(
        rollout=rollout.name,
        unit=unit,
        arm=found.arm.name,
        mode=found.arm.mode,
        pool=found.arm.pool,
        enrolled=found.is_enrolled,
        stage=found.stage,
        phase=rollout.position.phase,
    ).to_api()


def build_rollout_view(rollout: CachedRollout) -> dict[str, Any]:
    """Return a rollout as a response shows it."""
    status = rollout.status
    optional = {name: status.get(name) for name in _FROM_STATUS}
    optional |= {"measures": status.get("arms"), "problem": rollout.problem}
    return {
        "name": rollout.name,
        "namespace": rollout.namespace,
        "phase": str(rollout.position.phase),
        **({} if rollout.spec is None else _build_spec_view(rollout)),
        **{name: value for name, value in optional.items() if value not in (None, "", [])},
    }


def _build_spec_view(rollout: CachedRollout) -> dict[str, Any]:
    spec = rollout.require_spec()
    stages = [
        StageSummary(
            name=stage.name,
            users=len(stage.users),
            percent=stage.percent,
            arm=stage.arm,
            duration_seconds=stage.duration_seconds,
            manual=stage.manual,
        )
        for stage in spec.stages
    ]
    return {
        "control": spec.control,
        "paused": spec.paused,
        "killSwitch": spec.kill_switch,
        "arms": [arm.to_api() for arm in spec.arms],
        "stages": [stage.to_api() for stage in stages],
    }
