"""What the arms of a rollout measured, as the broker answers from its records."""

import math
from typing import Annotated, Self

from pydantic import Field

from mcp_exec_api.meta import Model
from mcp_exec_common.rollouts.intervals import Interval

MAX_MEASURED_ARMS = 64
"""Arms of an answer: a rollout has at most 8, and all its outcomes name one of them."""


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

    @classmethod
    def from_interval(cls, interval: Interval) -> Self:
        """Return an interval for an answer: JSON has no infinite numbers."""
        return cls(
            value=interval.value,
            low=interval.low if math.isfinite(interval.low) else None,
            high=interval.high if math.isfinite(interval.high) else None,
            samples=interval.samples,
        )

    def to_interval(self) -> Interval:
        """Return the interval of an answer."""
        return Interval(
            value=self.value,
            low=-math.inf if self.low is None else self.low,
            high=math.inf if self.high is None else self.high,
            samples=self.samples,
        )


class MeasuredArm(Model):
    """What one arm measured."""

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
    """What the arms of a rollout measured in a window."""

    arms: Annotated[list[MeasuredArm], Field(max_length=MAX_MEASURED_ARMS)] = []
    """Arms of which there are outcomes or exposures, by name."""
