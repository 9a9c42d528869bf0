"""Guards of a rollout: limits on what its arms may measure."""

from enum import StrEnum
from typing import Annotated, Final

from pydantic import ConfigDict, Field, JsonValue

from mcp_exec_api.meta import Model, OpenEnum

MAX_WINDOW_SECONDS: Final = 24 * 3600
MAX_SAMPLES: Final = 100_000

RolloutLabel = Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
"""Name of an arm, a stage or a guard: a DNS label, which is also a label's value."""


class GuardMetric(OpenEnum):
    """What a guard measures of an arm."""

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
    """What a guard compares an arm with."""

    CONTROL = "Control"


class GuardAction(StrEnum):
    """What happens if a guard's limit is crossed."""

    PAUSE = "Pause"
    ROLLBACK = "Rollback"


class UnknownAction(StrEnum):
    """What happens while a guard has too few samples, or none can be read."""

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
