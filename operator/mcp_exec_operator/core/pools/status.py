"""A pool's status: built from the pool and written after a change, at most once a second, off the executions' path."""

import logging
from dataclasses import dataclass, field
from datetime import datetime
from time import monotonic
from typing import Final

from mcp_exec_api.constants import LABEL_STATE
from mcp_exec_api.meta import Condition, ConditionStatus, set_condition
from mcp_exec_api.meta import now as utc_now
from mcp_exec_api.reasons.execution import Reason
from mcp_exec_api.reasons.pool import PoolReason
from mcp_exec_api.sandbox_pool import SandboxPoolStatus
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.events import build_event
from mcp_exec_common.kube.objects import Object, drop_empty_fields
from mcp_exec_operator.cluster.kube.api import OperatorApi
from mcp_exec_operator.core.pods.manifest import pool_labels
from mcp_exec_operator.core.pods.pod import PodState
from mcp_exec_operator.core.pods.status import PodProblem
from mcp_exec_operator.core.pools.pool import Pool
from mcp_exec_operator.metrics import Metrics
from mcp_exec_tools.protocol import PROTOCOLS, format_protocols
from mcp_exec_tools.text import shorten

log = logging.getLogger(__name__)

REFILL_SECONDS: Final = 10.0
"""How long pods may be missing, without a known problem, while the pool still counts as ready."""
_MAX_MESSAGE: Final = 1024
_SETTLE_SECONDS: Final = 1.0
"""Delay between a change and its write, so that an execution that ends within it causes no write."""
_QUIET_REASONS: Final = frozenset(
    {
        PoolReason.STARTING,
        PoolReason.REFILLING,
        PoolReason.NOT_VERIFIED,
        PoolReason.NETWORK_POLICY_FAILED,
        Reason.POOL_AT_CAPACITY,
    }
)
"""Reasons that are no one's fault, or that another condition reports, and that cause no Event."""


def build_status(pool: Pool, *, moment: datetime, now: float) -> SandboxPoolStatus:
    """Return the status of a pool. `moment` and the monotonic `now` are the same moment."""
    counts, image = pool.counts, pool.libraries.current
    measurement = pool.supply.autoscaler.demand.measure(now)
    conditions = _written_conditions(pool)
    for condition in (
        _ready(pool, moment, now),
        *_scaled(pool, moment),
        _current(pool, moment),
        _isolated(pool, moment),
        _pods_trusted(pool, moment),
        _template_honoured(pool, moment),
    ):
        conditions = set_condition(conditions, condition)
    selector = {**pool_labels(pool.name), LABEL_STATE: "warm"}
    return SandboxPoolStatus(
        observed_generation=pool.shape.generation,
        replicas=counts.warm + counts.coming,
        selector=",".join(f"{name}={value}" for name, value in sorted(selector.items())),
        desired=pool.desired,
        warm=counts.warm,
        starting=counts.coming,
        busy=counts.busy,
        owned=counts.owned,
        sessions=pool.session_pods.kept,
        queued=len(pool.queue),
        expected_wait_seconds=pool.queue.expected_wait(now),
        arrival_rate=measurement.rate,
        startup_p95=measurement.startup_seconds,
        warm_hit_rate=measurement.hit_rate,
        reuse_rate=measurement.reuse_rate,
        python=image.python if image is not None else None,
        libraries=list(image.libraries) if image is not None else [],
        conditions=conditions,
    )


def find_condition(status: SandboxPoolStatus, kind: str) -> Condition | None:
    """Return the condition of a type, or None."""
    return next((condition for condition in status.conditions if condition.type == kind), None)


def _written_conditions(pool: Pool) -> list[Condition]:
    written = ((pool.shape.body or {}).get("status") or {}).get("conditions") or []
    return [Condition.model_validate(condition) for condition in written]


def _problem(pool: Pool) -> PodProblem | None:
    """Return why the pool lacks pods, or None if nothing is known."""
    return (
        pool.shape.invalid
        or pool.isolation.problem
        or pool.supply.refusal
        or pool.pods.first_problem
        or pool.supply.failure
    )


def _ready(pool: Pool, moment: datetime, now: float) -> Condition:
    counts = pool.counts
    have = f"{counts.warm} of {pool.desired} pods are warm"
    enough = pool.shape.spec is not None and not pool.supply.is_lacking(counts)
    if enough and not pool.queue:
        return _condition("Ready", True, PoolReason.WARM, have, moment)
    if (problem := _problem(pool)) is not None:
        message = pool.session_pods.explain(problem).message
        return _condition("Ready", False, problem.reason, f"{have}; {message}", moment)
    if pool.shape.spec is not None and counts.total >= pool.shape.spec.max_pods:
        message = f"{have}; the pool has all {counts.total} pods that maxPods allows"
        problem = PodProblem(reason=Reason.POOL_AT_CAPACITY, message=message)
        return _condition("Ready", False, problem.reason, pool.session_pods.explain(problem).message, moment)
    if enough:
        return _condition("Ready", True, PoolReason.WARM, have, moment)
    was_ready = any(each.type == "Ready" and each.status == ConditionStatus.TRUE for each in _written_conditions(pool))
    if was_ready and pool.supply.lacking_since is not None and now - pool.supply.lacking_since < REFILL_SECONDS:
        return _condition("Ready", True, PoolReason.REFILLING, have, moment)
    return _condition("Ready", False, PoolReason.STARTING, f"{have}; {counts.coming} are starting", moment)


def _scaled(pool: Pool, moment: datetime) -> list[Condition]:
    decision = pool.supply.autoscaler.decision
    if pool.shape.spec is None or decision is None:
        return []
    return [_condition("Scaled", not decision.limited, decision.reason, decision.message, moment)]


def _current(pool: Pool, moment: datetime) -> Condition:
    if pool.supply.plan.message:
        return _condition("Current", False, PoolReason.REPLACING, pool.supply.plan.message, moment)
    if pool.supply.protocol < PROTOCOLS[-1]:
        message = (
            f"all idle pods are up to date; their image speaks version {pool.supply.protocol} of the protocol, and the "
            f"operator {format_protocols()}: build the image again before the next upgrade"
        )
        return _condition("Current", True, PoolReason.EARLIER_PROTOCOL, message, moment)
    return _condition("Current", True, PoolReason.CURRENT, "all idle pods are up to date", moment)


def _isolated(pool: Pool, moment: datetime) -> Condition:
    if pool.isolation.problem is not None:
        return _condition("Isolated", False, PoolReason.NETWORK_POLICY_FAILED, pool.isolation.problem.message, moment)
    if not pool.isolation.verified:
        return _condition(
            "Isolated", False, PoolReason.NOT_VERIFIED, "the NetworkPolicies have not been verified yet", moment
        )
    if openings := pool.isolation.find_openings(pool.shape):
        names = ", ".join(map(str, openings))
        message = f"NetworkPolicies of others allow traffic of the pool's sandboxes, and policies are additive: {names}"
        return _condition("Isolated", False, PoolReason.OPENED_BY_OTHERS, message, moment)
    return _condition("Isolated", True, PoolReason.NETWORK_POLICY, "the pool's NetworkPolicies are in place", moment)


def _pods_trusted(pool: Pool, moment: datetime) -> Condition:
    if changed := pool.supply.changed_fields:
        message = f"pods are not used, because an admission webhook changed them: {', '.join(sorted(changed))}"
        return _condition("PodsTrusted", False, PoolReason.PODS_CHANGED, message, moment)
    if altered := pool.isolation.alterations.describe():
        message = f"pods were deleted, because somebody changed them after their creation: {altered}"
        return _condition("PodsTrusted", False, PoolReason.PODS_ALTERED, message, moment)
    if pool.isolation.strangers:
        names = ", ".join(sorted(pool.isolation.strangers))
        message = f"pods have the pool's labels, but no operator created them, so they are ignored: {names}"
        return _condition("PodsTrusted", False, PoolReason.PODS_OF_OTHERS, message, moment)
    return _condition("PodsTrusted", True, PoolReason.CREATED, "the operator created all pods of the pool", moment)


def _template_honoured(pool: Pool, moment: datetime) -> Condition:
    if pool.supply.refused_fields:
        message = "the template may not set " + ", ".join(sorted(pool.supply.refused_fields))
        return _condition("TemplateHonoured", False, PoolReason.FIELDS_REFUSED, message, moment)
    return _condition("TemplateHonoured", True, PoolReason.HONOURED, "", moment)


def _condition(kind: str, holds: bool, reason: PoolReason | Reason, message: str, moment: datetime) -> Condition:
    status = ConditionStatus.TRUE if holds else ConditionStatus.FALSE
    short = shorten(message, _MAX_MESSAGE)
    return Condition(type=kind, status=status, reason=reason, message=short, last_transition_time=moment)


@dataclass(kw_only=True, eq=False)
class PoolStatusWriter:
    """The last written status of a pool, and when the next write is due."""

    pool: Pool
    api: OperatorApi
    metrics: Metrics
    _written: SandboxPoolStatus | None = None
    _written_fields: object = None
    """What of it is compared with the present status."""
    _due: float | None = None
    _reported: dict[str, object] = field(default_factory=dict)
    """By condition, what the last Event said."""

    async def write(self, now: float) -> float | None:
        """Write the status if it is due. Return the seconds until it will be, or None if nothing changed."""
        pool = self.pool
        if pool.shape.body is None:
            self.metrics.drop(namespace=pool.namespace, pool=pool.name)
            return None
        self._update_metrics(now)
        if self._due is not None and self._due > now:  # a pool under load changes many times until then
            return self._due - now
        status = build_status(pool, moment=utc_now(), now=now)
        fields = _comparable(status)
        if fields == self._written_fields:
            self._due = None
            return None
        if self._due is None and self._written is not None:
            self._due = now + _SETTLE_SECONDS
            return _SETTLE_SECONDS
        self._due = None
        try:
            body = await self.api.patch_pool_status(
                pool.namespace, pool.name, _merge_patch(status, written=self._written)
            )
        except ApiError as error:
            if error.code == 404:
                return None
            log.warning("the status of pool %s was not written: %s", pool.name, error, extra={"pool": pool.name})
            self._due = monotonic() + _SETTLE_SECONDS
            return _SETTLE_SECONDS
        if pool.shape.body is None:
            return None  # deleted meanwhile
        pool.note_status(body)
        self._written, self._written_fields = status, fields
        for kind in ("Ready", "Isolated", "PodsTrusted"):
            await self._report(kind, find_condition(status, kind))
        return None

    async def _report(self, kind: str, condition: Condition | None) -> None:
        """Create an Event if the condition is false for a new reason."""
        if condition is None or condition.status is ConditionStatus.TRUE:
            self._reported.pop(kind, None)
            return
        # the message of Ready changes all the time
        news = condition.reason if kind == "Ready" else condition.message
        if condition.reason not in _QUIET_REASONS and news != self._reported.get(kind):
            self._reported[kind] = news
            try:
                event = build_event(
                    "SandboxPool",
                    key=(self.pool.namespace, self.pool.name),
                    uid=self.pool.shape.uid,
                    kind="Warning",
                    reason=condition.reason,
                    message=condition.message,
                    moment=utc_now(),
                )
                await self.api.create_event(event)
            except ApiError as error:
                log.warning("no Event for pool %s: %s", self.pool.name, error, extra={"pool": self.pool.name})

    def _update_metrics(self, now: float) -> None:
        pool, metrics = self.pool, self.metrics
        labels = (pool.namespace, pool.name)
        counts = pool.counts
        for state in PodState:
            metrics.pods.labels(*labels, state.value).set(getattr(counts, state.name.lower()))
        measurement = pool.supply.autoscaler.demand.measure(now)
        metrics.queued.labels(*labels).set(len(pool.queue))
        metrics.pool_desired.labels(*labels).set(pool.desired)
        metrics.pool_arrivals.labels(*labels).set(measurement.rate)
        if measurement.startup_seconds is not None:
            metrics.pool_startup.labels(*labels).set(measurement.startup_seconds)
        if measurement.hit_rate is not None:
            metrics.pool_hits.labels(*labels).set(measurement.hit_rate)
        if measurement.reuse_rate is not None:
            metrics.pool_reuse.labels(*labels).set(measurement.reuse_rate)


def _comparable(status: SandboxPoolStatus) -> object:
    """Return a status without the times of its conditions."""
    # libraries are compared as they are, which costs nothing while they are the same objects
    fields = status.model_copy(update={"libraries": []}).to_api()
    conditions = [{**each, "lastTransitionTime": None} for each in fields.get("conditions", [])]
    return fields | {"conditions": conditions}, status.libraries


def _merge_patch(status: SandboxPoolStatus, *, written: SandboxPoolStatus | None) -> Object:
    """Return the status without the libraries if these are written: most changes are of other fields."""
    # fields that are not set are null, which removes them
    same = written is not None and written.libraries == status.libraries
    fields = status.model_dump(by_alias=True, mode="json", exclude={"libraries"} if same else None)
    return fields | {"conditions": [drop_empty_fields(each) for each in fields["conditions"]]}
