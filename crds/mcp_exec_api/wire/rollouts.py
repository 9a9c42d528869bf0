"""Rollouts, their assignments and what their arms measured."""

from typing import Annotated, Final

from pydantic import Field

from mcp_exec_api.execution_rollout import ArmMode, RolloutArm, RolloutUnit
from mcp_exec_api.meta import Condition, MicroTime, Model
from mcp_exec_api.rollout_status import ArmMeasures, GuardResult, RolloutPhase

MAX_MEASURED_ARMS: Final = 64
"""Arms of an answer: a rollout has at most 8, and all its outcomes name one of them."""


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


class Assignment(Model):
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


class StageSummary(Model):
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
    """Seconds until the next stage begins."""
    manual: bool
    """Whether the stage lasts until somebody promotes the rollout."""


class Rollout(Model):
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
    """Time when the present stage began."""
    ended_at: MicroTime | None = None
    """Time when the rollout ended."""
    message: str | None = None
    """Reason for the phase."""
    exposure: str | None = None
    """Who is enrolled."""
    arms: list[RolloutArm] = Field(default_factory=list)
    """Alternatives."""
    stages: list[StageSummary] = Field(default_factory=list)
    """Steps, in their order."""
    measures: list[ArmMeasures] = Field(default_factory=list)
    """What each arm measured."""
    guards: list[GuardResult] = Field(default_factory=list)
    """What each guard found."""
    conditions: list[Condition] = Field(default_factory=list)
    """Conditions of the rollout."""


class RolloutList(Model):
    """The namespace's rollouts."""

    items: list[Rollout]
    """Rollouts, ordered by name."""


class MeasuredInterval(Model):
    """An estimate with the ends of its 95 % confidence interval."""

    value: float
    """Share, mean or percentile."""
    low: float | None = None
    """Lower end; not set if the samples say nothing about that side."""
    high: float | None = None
    """Upper end; not set if the samples say nothing about that side."""
    samples: Annotated[int, Field(ge=0)]
    """Units that have the value: each counts once, however many outcomes it has."""


class MeasuredArm(Model):
    """Measures of one arm."""

    name: str
    """Name of the arm."""
    exposed: Annotated[int, Field(ge=0)] = 0
    """Units that asked for their arm."""
    units: Annotated[int, Field(ge=0)] = 0
    """Units that have outcomes."""
    outcomes: Annotated[int, Field(ge=0)] = 0
    """Outcomes."""
    failures: Annotated[int, Field(ge=0)] = 0
    """Outcomes that failed."""
    error_rate: MeasuredInterval | None = None
    """Mean of the units' shares of failures, from 0 to 1, among outcomes that say whether they succeeded."""
    p95_latency_ms: Annotated[MeasuredInterval | None, Field(alias="p95LatencyMs")] = None
    """95th percentile of the units' newest latencies in milliseconds, of the newest 10,000."""
    cost: MeasuredInterval | None = None
    """Mean of the units' mean costs."""
    tokens: MeasuredInterval | None = None
    """Mean of the units' mean numbers of tokens."""
    rating: MeasuredInterval | None = None
    """Mean of the units' mean ratings, from 1 to 5."""


class MeasuredRollout(Model):
    """Measures of a rollout's arms in a window."""

    arms: Annotated[list[MeasuredArm], Field(max_length=MAX_MEASURED_ARMS)] = []
    """Arms with outcomes or exposures, by name."""


class RolloutReport(MeasuredRollout):
    """Measures of a rollout's arms since it began."""

    rollout: str
    """Name of the rollout."""
    control: str | None = None
    """Name of the control arm."""
    confidence: float = 0.95
    """Confidence of the intervals."""
