"""Guards of a rollout: limits on what its arms may measure."""

from enum import StrEnum
from typing import Annotated, Any, Final

from pydantic import ConfigDict, Field, JsonValue

from mcp_exec_api.meta import Condition, ConditionStatus, MicroTime, Model, OpenEnum
from mcp_exec_api.reasons.execution import Reason

MAX_WINDOW_SECONDS: Final = 24 * 3600
MAX_SAMPLES: Final = 100_000

RolloutLabel = Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
"""Name of an arm, a stage or a guard: a DNS label, which is also a label's value."""


class GuardMetric(OpenEnum):
    """Measure of an arm that a guard limits."""

    ERROR_RATE = "errorRate"
    """Share of the outcomes that failed, from 0 to 1."""
    P95_LATENCY_MS = "p95LatencyMs"
    """95th percentile of the latency in milliseconds."""
    COST_PER_CONVERSATION = "costPerConversation"
    """Mean cost of an outcome, in the currency of the price table."""
    RATING = "rating"
    """Mean rating, from 1 to 5. Lower is worse."""
    FAULT_RATE = "faultRate"
    """Share of the runs in the arm's pool that ended by a fault of the sandbox, from 0 to 1."""
    START_FAILURES = "startFailures"
    """Consecutive pods of the arm's pool that did not become ready."""


class GuardComparison(StrEnum):
    """The value that a guard compares an arm with."""

    CONTROL = "Control"


class GuardAction(StrEnum):
    """Action if a guard's limit is crossed."""

    PAUSE = "Pause"
    ROLLBACK = "Rollback"


class UnknownAction(StrEnum):
    """Action while a guard has too few samples, or none can be read."""

    HOLD = "Hold"
    PROCEED = "Proceed"
    ROLLBACK = "Rollback"


_RULES: Final[list[JsonValue]] = [
    {
        "rule": "self.metric != 'errorRate' || self.threshold <= 1.0",
        "message": "the threshold of errorRate is a share from 0 to 1",
    },
    {
        "rule": "self.metric != 'faultRate' || self.threshold <= 1.0",
        "message": "the threshold of faultRate is a share from 0 to 1",
    },
    {
        "rule": "self.metric != 'rating' || self.threshold <= 5.0",
        "message": "the threshold of rating is at most 5",
    },
]


class RolloutGuard(Model):
    """A limit that stops the rollout. It applies to each arm except the control arm."""

    model_config = ConfigDict(json_schema_extra={"x-kubernetes-validations": _RULES})

    name: RolloutLabel
    """Name of the guard, unique in the rollout."""
    metric: GuardMetric
    """errorRate: share of failed outcomes, from 0 to 1. p95LatencyMs: 95th percentile of the latency.
    costPerConversation: mean cost. rating: mean rating, from 1 to 5, where lower is worse. Each unit counts once, with
    the mean of its outcomes, or its newest latency. The operator measures two more itself in the arm's pool, without
    reported outcomes. faultRate: share of the runs that ended by a fault of the sandbox, from 0 to 1. startFailures:
    consecutive pods that did not become ready."""
    threshold: Annotated[float, Field(ge=0, le=1e12)]
    """Limit, in the unit of the metric. The guard acts if the 95 % confidence interval of an arm lies on the wrong side
    of it, so that few samples do not stop a rollout. With `compareTo`, the allowed difference from the control arm."""
    compare_to: GuardComparison | None = None
    """Control: compare with the control arm in the same window. By default, `threshold` is absolute."""
    min_samples: Annotated[int, Field(ge=1, le=MAX_SAMPLES)] = 20
    """Units with outcomes that the arm needs in the window, and the control arm too with `compareTo`. For faultRate,
    runs. Not used for startFailures."""
    window_seconds: Annotated[int, Field(ge=10, le=MAX_WINDOW_SECONDS)] = 3600
    """Seconds of the past whose outcomes count; the default is one hour."""
    action: GuardAction = GuardAction.ROLLBACK
    """Rollback: every unit gets the control arm, for good. Pause: the stage stays as it is until somebody resumes."""
    on_unknown: UnknownAction = UnknownAction.HOLD
    """What happens at the end of a stage if there are fewer than `minSamples`. Hold: the stage lasts longer.
    Proceed: the next stage begins. Rollback: every unit gets the control arm."""


class RolloutPhase(OpenEnum):
    """Phase of a rollout."""

    PENDING = "Pending"
    """Nothing has begun. Every unit gets the control arm."""
    WARMING = "Warming"
    """Pools get the warm pods of the next stage; the present stage lasts until they have them."""
    PROGRESSING = "Progressing"
    PAUSED = "Paused"
    COMPLETED = "Completed"
    ROLLED_BACK = "RolledBack"
    """A guard stopped the rollout. Every unit gets the control arm."""
    ABORTED = "Aborted"
    """Somebody stopped the rollout. Every unit gets the control arm."""

    @property
    def is_final(self) -> bool:
        """Whether the rollout has ended."""
        return self in (RolloutPhase.COMPLETED, RolloutPhase.ROLLED_BACK, RolloutPhase.ABORTED)


class GuardState(OpenEnum):
    """Finding of a guard."""

    OK = "OK"
    VIOLATED = "Violated"
    UNKNOWN = "Unknown"


class ArmMeasures(Model):
    """Measures of one arm since the rollout began."""

    name: str
    """Name of the arm."""
    exposed: Annotated[int, Field(ge=0)] = 0
    """Units of the arm that have outcomes."""
    outcomes: Annotated[int, Field(ge=0)] = 0
    """Outcomes that count."""
    failures: Annotated[int, Field(ge=0)] = 0
    """Those of them that failed."""
    error_rate: float | None = None
    """Share of failures, from 0 to 1. Not set if there are no outcomes."""
    p95_latency_ms: Annotated[float | None, Field(alias="p95LatencyMs")] = None
    """95th percentile of the latency in milliseconds."""
    cost_per_conversation: float | None = None
    """Mean cost of an outcome."""
    rating: float | None = None
    """Mean rating, from 1 to 5."""


class GuardResult(Model):
    """Finding of one guard for the worst arm."""

    name: str
    """Name of the guard."""
    metric: GuardMetric
    """What the guard measures."""
    state: GuardState
    """OK: the arms are within the limit. Violated: an arm is beyond it. Unknown: there are too few samples."""
    arm: str | None = None
    """Arm that the result is of."""
    value: float | None = None
    """Value of the arm in the guard's window."""
    bound: float | None = None
    """End of the value's 95 % confidence interval that the guard compares with the limit."""
    limit: float | None = None
    """Limit in the unit of the metric; with `compareTo`, the control arm's value and the allowed difference."""
    samples: Annotated[int, Field(ge=0)] = 0
    """Units of the arm that have the metric in the guard's window."""


class ExecutionRolloutStatus(Model):
    """Progress of the rollout. Only the operator writes it."""

    observed_generation: int | None = None
    """Generation of the spec that this status describes."""
    phase: RolloutPhase = RolloutPhase.PENDING
    """Pending: nothing has begun. Warming: the next stage waits for its pools. Progressing, Paused: in a stage.
    Completed: after the last one. RolledBack and Aborted: every unit gets the control arm."""
    stage: str | None = None
    """Name of the present stage, or of the last one. Not set before the first begins."""
    since: MicroTime | None = None
    """Time when the present stage began. A new leader of the operator continues from it."""
    warming_since: MicroTime | None = None
    """Time when the pools began to warm for the next stage."""
    ended_at: MicroTime | None = None
    """Time when the rollout ended."""
    message: Annotated[str, Field(max_length=1000)] = ""
    """Reason for the phase, as a sentence for people."""
    arm_names: str | None = None
    """Names of the arms with the control arm first, for people."""
    exposure: str | None = None
    """Who is enrolled, for people: `25 users, 10 %`."""
    guard: str | None = None
    """The worst result of the guards, for people: `OK` or `errorRate Violated`."""
    arms: list[ArmMeasures] = Field(default_factory=list)
    """What each arm measured."""
    guards: list[GuardResult] = Field(default_factory=list)
    """What each guard found."""
    conditions: list[Condition] = Field(default_factory=list)
    """Ready: the operator drives the rollout. Measured: records of outcomes can be read. PoolsWarm: the pools have the
    warm pods of the stage. GuardPaused: a guard paused the rollout, and nobody has resumed it. To resume, promote it,
    or set `spec.paused` to true and back to false."""


UNOBSERVED_STATUS: Final[dict[str, Any]] = {
    "conditions": [
        {
            "type": "Ready",
            "status": str(ConditionStatus.UNKNOWN),
            "reason": str(Reason.NOT_OBSERVED),
            "message": Reason.NOT_OBSERVED.meaning,
            "lastTransitionTime": "1970-01-01T00:00:00.000000Z",
        }
    ]
}
"""Status of a rollout that no operator has seen: it would be blank in a namespace that is not served."""
