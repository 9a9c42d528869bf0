"""Rollouts and assignments in requests and responses."""

from typing import Annotated, Any, Final

from pydantic import Field

from mcp_exec_api.meta import Condition, MicroTime, Model
from mcp_exec_api.rollouts.rollout import ArmMode, RolloutArm, RolloutUnit
from mcp_exec_api.rollouts.status import ArmMeasures, GuardResult, RolloutPhase
from mcp_exec_common.rollouts.assignment import ArmAssignment
from mcp_exec_gateway.rollouts.cache import CachedRollout


class NewAssignment(Model):
    """Body of a request for an arm."""

    unit: RolloutUnit
    """What gets an arm and keeps it, such as a user, a conversation or a tenant: 1 to 253 characters."""
    user: RolloutUnit | None = None
    """User of the unit. A stage that names the user enrols the unit."""


class NewPromotion(Model):
    """Body of a request to begin a stage."""

    to: Annotated[str | None, Field(min_length=1, max_length=63)] = None
    """Stage to begin, or `Completed` to end the last one; by default the one after the present stage."""


class AssignmentView(Model):
    """Arm of a unit."""

    rollout: str
    """Name of the rollout."""
    unit: str
    """The unit of the request."""
    arm: str
    """Name of the unit's arm: the control arm, unless the unit is enrolled or the rollout is complete."""
    mode: ArmMode | None = None
    """How an agent uses tools in the arm."""
    pool: str | None = None
    """Pool for the arm's executions."""
    enrolled: bool
    """Whether a stage enrolled the unit."""
    stage: str | None = None
    """Stage that enrolled the unit."""
    phase: RolloutPhase
    """Phase of the rollout."""


class StageView(Model):
    """One step of a rollout."""

    name: str
    """Name of the stage."""
    users: int
    """Number of units that are enrolled by name."""
    percent: int
    """Share of all units that are enrolled."""
    arm: str | None = None
    """Arm of the named units; by default they get one by the arms' weights."""
    duration_seconds: int | None = None
    """Seconds after which the next stage begins."""
    manual: bool
    """Whether the stage lasts until somebody promotes the rollout."""


class RolloutView(Model):
    """One rollout. Users that its stages name are counted and not listed."""

    name: str
    """Name of the rollout."""
    namespace: str
    """Namespace of the rollout."""
    phase: RolloutPhase
    """Pending, Warming, Progressing, Paused, Completed, RolledBack or Aborted."""
    problem: str | None = None
    """What is wrong with the spec. No unit gets an arm until it is corrected."""
    control: str | None = None
    """Name of the control arm."""
    paused: bool = False
    """Whether somebody paused the rollout."""
    kill_switch: bool = False
    """Whether every unit gets the control arm, for good."""
    stage: str | None = None
    """Name of the present stage, or of the last one."""
    since: MicroTime | None = None
    """Time at which the present stage began."""
    ended_at: MicroTime | None = None
    """Time at which the rollout ended."""
    message: str | None = None
    """Reason for the phase."""
    exposure: str | None = None
    """Who is enrolled."""
    arms: list[RolloutArm] = Field(default_factory=list)
    """Alternatives."""
    stages: list[StageView] = Field(default_factory=list)
    """Steps, in their order."""
    measures: list[ArmMeasures] = Field(default_factory=list)
    """What each arm measured."""
    guards: list[GuardResult] = Field(default_factory=list)
    """What each guard found."""
    conditions: list[Condition] = Field(default_factory=list)
    """Conditions of the rollout."""


class RolloutList(Model):
    """The namespace's rollouts."""

    items: list[RolloutView]
    """Rollouts, ordered by name."""


_FROM_STATUS: Final = ("stage", "since", "endedAt", "message", "exposure", "guards", "conditions")


def build_assignment_view(rollout: CachedRollout, unit: str, found: ArmAssignment) -> dict[str, Any]:
    """Return an assignment as a response shows it."""
    return AssignmentView(
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
        StageView(
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
