"""One rollout: read from its object, written to it, and reported by Events and metrics."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final, Self

from prometheus_client import CollectorRegistry
from pydantic import ValidationError

from mcp_exec_api.execution_rollout import ExecutionRolloutSpec
from mcp_exec_api.meta import explain_errors, field_errors
from mcp_exec_api.reasons.event import EventReason
from mcp_exec_api.rollout_status import ExecutionRolloutStatus, GuardState, RolloutPhase
from mcp_exec_common.kube.events import build_event
from mcp_exec_common.kube.objects import Object, drop_empty_fields
from mcp_exec_common.kube.reflector import ObjectKey, object_key
from mcp_exec_common.process.metrics import MetricsBase
from mcp_exec_common.rollouts.assignment import expect_shares

_WARNINGS: Final = (RolloutPhase.ROLLED_BACK, RolloutPhase.ABORTED)
_ROLLOUT: Final = ("namespace", "rollout")
_ARM: Final = (*_ROLLOUT, "arm")
_MAX_ROLLOUTS: Final = 200
"""Rollouts that have series: their names come from tenants."""


@dataclass(frozen=True, kw_only=True)
class RolloutRecord:
    """A rollout as last observed."""

    key: ObjectKey
    uid: str
    version: str
    generation: int
    spec: ExecutionRolloutSpec | None
    """None if the spec contradicts itself, which API servers without CEL accept."""
    status: ExecutionRolloutStatus | None
    """None if it has fields that this operator cannot read, which a newer one has written."""
    problem: str = ""
    """What is wrong with the spec or the status; empty if nothing is."""

    @classmethod
    def from_object(cls, body: Object) -> Self:
        """Read a rollout."""
        metadata, problems = body["metadata"], []
        spec = status = None
        try:
            spec = ExecutionRolloutSpec.model_validate(body.get("spec") or {})
        except ValidationError as error:
            problems.append("the spec is invalid: " + explain_errors(error, ExecutionRolloutSpec))
        try:
            status = ExecutionRolloutStatus.model_validate(body.get("status") or {})
        except ValidationError as error:
            found = field_errors(error, ExecutionRolloutStatus)
            fields = ", ".join(each.field for each in found)
            problems.append(f"another version of the operator wrote the status; it is left as it is: {fields}")
        return cls(
            key=object_key(body),
            uid=metadata["uid"],
            version=metadata["resourceVersion"],
            generation=int(metadata.get("generation", 0)),
            spec=spec,
            status=status,
            problem="; ".join(problems),
        )

    @property
    def is_active(self) -> bool:
        """Whether the status may change: the rollout has not ended, or its spec has changed since."""
        if self.status is None:
            return False
        return not self.status.phase.is_final or self.status.observed_generation != self.generation


def build_status(status: ExecutionRolloutStatus) -> Object:
    """Return a status as the API server gets it: some versions read an empty text as null and reject it."""
    fields = drop_empty_fields(status.to_api())
    return fields | {"conditions": [drop_empty_fields(each) for each in fields.get("conditions", ())]}


def build_events(
    record: RolloutRecord, before: ExecutionRolloutStatus, after: ExecutionRolloutStatus, *, moment: datetime
) -> list[Object]:
    """Return the Events of a change of status: each new stage, and each new phase other than that of a new stage."""
    events = []
    if after.stage is not None and (after.stage, after.since) != (before.stage, before.since):
        message = f"stage {after.stage} began: {after.exposure}"
        events.append(_build(record, EventReason.STAGE_BEGAN, message, moment=moment))
    elif after.phase is not before.phase and after.phase is RolloutPhase.PROGRESSING:
        events.append(_build(record, EventReason.RESUMED, after.message, moment=moment))
    if after.phase is not before.phase and after.phase is not RolloutPhase.PROGRESSING:
        kind = "Warning" if after.phase in _WARNINGS else "Normal"
        events.append(_build(record, str(after.phase), after.message, kind=kind, moment=moment))
    return events


def _build(record: RolloutRecord, reason: str, message: str, *, moment: datetime, kind: str = "Normal") -> Object:
    return build_event(
        "ExecutionRollout", key=record.key, uid=record.uid, kind=kind, reason=reason, message=message, moment=moment
    )


class RolloutMetrics(MetricsBase):
    """Gauges of all rollouts. Their labels are names of objects, arms and guards, which specs bound."""

    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__("mcp_exec_rollout_", registry)
        self.stage = self.gauge("stage", "Number of the present stage, from 1; 0 before the first", *_ROLLOUT)
        self.phase = self.gauge("phase", "1 for the present phase of a rollout, else 0", *_ROLLOUT, "phase")
        self.share = self.gauge(
            "arm_share_ratio", "Expected share of units that get the arm, without users by name", *_ARM
        )
        self.exposed = self.gauge("arm_exposed_units", "Units of the arm that have outcomes", *_ARM)
        self.outcomes = self.gauge("arm_outcomes", "Outcomes of the arm that count", *_ARM)
        self.error_ratio = self.gauge("arm_error_ratio", "Share of the arm's outcomes that failed", *_ARM)
        self.latency = self.gauge(
            "arm_latency_p95_seconds", "95th percentile of the latency of the arm's outcomes", *_ARM
        )
        self.cost = self.gauge("arm_cost_mean", "Mean cost of the arm's outcomes, in the currency of the prices", *_ARM)
        self.rating = self.gauge("arm_rating_mean", "Mean rating of the arm's outcomes, from 1 to 5", *_ARM)
        self.violated = self.gauge(
            "guard_violated", "1 if an arm is beyond the guard's limit, else 0", *_ROLLOUT, "guard"
        )
        self._shown: set[ObjectKey] = set()

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

    def discard(self, record: RolloutRecord) -> None:
        """Drop all series of a deleted rollout."""
        namespace, name = record.key
        self._shown.discard(record.key)
        self.drop(namespace=namespace, rollout=name)

    def discard_namespace(self, namespace: str) -> None:
        """Drop all series of a namespace that is not served any more."""
        self._shown = {key for key in self._shown if key[0] != namespace}
        self.drop(namespace=namespace)
