"""Metrics of rollouts: the stage, and what each arm got and measured."""

from dataclasses import dataclass, field
from typing import Final, Self

from prometheus_client import CollectorRegistry, Gauge

from mcp_exec_api.rollout_status import GuardState, RolloutPhase
from mcp_exec_common.kube.reflector import ObjectKey
from mcp_exec_common.rollouts.assignment import expect_shares
from mcp_exec_operator.rollouts.record import RolloutRecord

_ROLLOUT: Final = ("namespace", "rollout")
_ARM: Final = (*_ROLLOUT, "arm")
_MAX_ROLLOUTS: Final = 200
"""Rollouts that have series: their names come from tenants."""


@dataclass(frozen=True, kw_only=True)
class RolloutMetrics:
    """Gauges of all rollouts. Their labels are names of objects, arms and guards, which specs bound."""

    stage: Gauge
    phase: Gauge
    share: Gauge
    exposed: Gauge
    outcomes: Gauge
    error_ratio: Gauge
    latency: Gauge
    cost: Gauge
    rating: Gauge
    violated: Gauge
    _shown: set[ObjectKey] = field(default_factory=set)

    @classmethod
    def create(cls, registry: CollectorRegistry) -> Self:
        """Return new metrics in a registry."""

        def gauge(name: str, text: str, labels: tuple[str, ...]) -> Gauge:
            return Gauge(f"mcp_exec_rollout_{name}", text, labels, registry=registry)

        return cls(
            stage=gauge("stage", "Number of the present stage, from 1; 0 before the first", _ROLLOUT),
            phase=gauge("phase", "1 for the present phase of a rollout, else 0", (*_ROLLOUT, "phase")),
            share=gauge("arm_share_ratio", "Expected share of units that get the arm, without users by name", _ARM),
            exposed=gauge("arm_exposed_units", "Units of the arm that have outcomes", _ARM),
            outcomes=gauge("arm_outcomes", "Outcomes of the arm that count", _ARM),
            error_ratio=gauge("arm_error_ratio", "Share of the arm's outcomes that failed", _ARM),
            latency=gauge("arm_latency_p95_seconds", "95th percentile of the latency of the arm's outcomes", _ARM),
            cost=gauge("arm_cost_mean", "Mean cost of the arm's outcomes, in the currency of the prices", _ARM),
            rating=gauge("arm_rating_mean", "Mean rating of the arm's outcomes, from 1 to 5", _ARM),
            violated=gauge("guard_violated", "1 if an arm is beyond the guard's limit, else 0", (*_ROLLOUT, "guard")),
        )

    def observe(self, record: RolloutRecord) -> None:
        """Set the gauges of a rollout."""
        if record.status is None or record.spec is None:
            return
        if record.key not in self._shown and len(self._shown) >= _MAX_ROLLOUTS:
            return
        self._shown.add(record.key)
        present, status = record.spec.find_stage(record.status.stage), record.status
        self.stage.labels(*record.key).set(0 if present is None else present + 1)
        for phase in RolloutPhase:
            self.phase.labels(*record.key, phase).set(phase is status.phase)
        for arm, share in expect_shares(record.spec, status).items():
            self.share.labels(*record.key, arm).set(share)
        for each in status.arms:
            seconds = None if each.p95_latency_ms is None else each.p95_latency_ms / 1000
            for metric, value in (
                (self.exposed, each.exposed),
                (self.outcomes, each.outcomes),
                (self.error_ratio, each.error_rate),
                (self.latency, seconds),
                (self.cost, each.cost_per_conversation),
                (self.rating, each.rating),
            ):
                if value is not None:
                    metric.labels(*record.key, each.name).set(value)
        for guard in status.guards:
            self.violated.labels(*record.key, guard.name).set(guard.state is GuardState.VIOLATED)

    def drop(self, record: RolloutRecord) -> None:
        """Drop all series of a deleted rollout, so that their number stays bounded."""
        namespace, name = record.key
        self._shown.discard(record.key)
        for metric in vars(self).values():
            if isinstance(metric, Gauge):
                metric.remove_by_labels({"namespace": namespace, "rollout": name})
