"""A pool's status and its Events, from what is known of it. Pure functions."""

from datetime import datetime
from typing import Final

from mcp_exec_api.constants import API_VERSION, LABEL_STATE
from mcp_exec_api.meta import Condition, ConditionStatus, micro_time, set_condition
from mcp_exec_api.sandbox_pool import SandboxPoolStatus, VariantStatus
from mcp_exec_common.kube.objects import Object
from mcp_exec_operator.pods.manifest import pool_labels
from mcp_exec_operator.pods.status import PodProblem
from mcp_exec_operator.pools.partition import Partition
from mcp_exec_operator.pools.pool import WarmPool

PATIENCE_SECONDS: Final = 10.0
"""How long pods may be short, without a known problem, while the pool still counts as ready: they are on their way."""
_MAX_MESSAGE: Final = 1024


def build_status(pool: Partition, *, moment: datetime, now: float) -> SandboxPoolStatus:
    """The status of a pool at a moment; `now` is the same of the monotonic clock."""
    mixture = pool.mixture
    counts = mixture.counts
    waits = [wait for part in mixture if (wait := part.waiters.expected_wait(now)) is not None]
    measured = pool.scaler.demand.measured(now)
    conditions = _conditions_of(pool)
    for condition in (
        _ready(pool, moment, now),
        *_scaled(pool, moment),
        _current(pool, moment, now),
        *_healthy(pool, moment),
        _isolated(pool, moment),
        _honoured(pool, moment),
    ):
        conditions = set_condition(conditions, condition)
    selector = {**pool_labels(pool.name), LABEL_STATE: "warm"}
    return SandboxPoolStatus(
        observed_generation=pool.generation,
        replicas=counts.warm + counts.coming,
        selector=",".join(f"{name}={value}" for name, value in sorted(selector.items())),
        desired=pool.total_desired,
        warm=counts.warm,
        starting=counts.coming,
        busy=counts.busy,
        queued=mixture.queued,
        expected_wait_seconds=max(waits, default=None),
        arrival_rate=measured.rate,
        startup_p95=measured.startup_seconds,
        warm_hit_rate=measured.hit_rate,
        variants=[_variant(pool.mixture, name) for name in pool.mixture.weights],
        restored=mixture.restored,
        conditions=conditions,
    )


def _variant(mixture: WarmPool, name: str) -> VariantStatus:
    part, out = mixture.parts[name], mixture.out.get(name)
    counts = part.inventory.counts
    return VariantStatus(
        name=name,
        weight=mixture.weights[name],
        desired=part.desired,
        warm=counts.warm,
        starting=counts.coming,
        busy=counts.busy,
        in_rotation=part.open,
        reason=out.reason if out else None,
        message=out.message if out else None,
        template=part.template or None,
    )


def build_event(pool: Partition, condition: Condition, *, moment: datetime) -> Object:
    """A Warning about a pool, for `kubectl describe`."""
    at = micro_time(moment)
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{pool.name}.", "namespace": pool.namespace},
        "involvedObject": {
            "apiVersion": API_VERSION,
            "kind": "SandboxPool",
            "namespace": pool.namespace,
            "name": pool.name,
            "uid": pool.uid,
        },
        "type": "Warning",
        "reason": condition.reason,
        "message": condition.message,
        "source": {"component": "mcp-exec-operator"},
        "firstTimestamp": at[:19] + "Z",
        "lastTimestamp": at[:19] + "Z",
        "count": 1,
    }


def condition_of(status: SandboxPoolStatus, kind: str) -> Condition | None:
    """The condition of a type, if it is there."""
    return next((condition for condition in status.conditions if condition.type == kind), None)


def _conditions_of(pool: Partition) -> list[Condition]:
    found = ((pool.newest or {}).get("status") or {}).get("conditions") or []
    conditions = [Condition.model_validate(condition) for condition in found]
    return [each for each in conditions if each.type != "VariantsHealthy" or pool.mixture.weights]


def _problem(pool: Partition) -> PodProblem | None:
    """Of its parts that are used, the first that has one."""
    for part in (part for part in pool.mixture if part.open):
        problem = part.invalid or part.exposed or part.refusal or part.starting_problem() or part.failure
        if problem is not None:
            return problem
    return None


def _ready(pool: Partition, moment: datetime, now: float) -> Condition:
    counts = pool.mixture.counts
    have = f"{counts.warm} of {pool.total_desired} pods are warm"
    enough = pool.spec is not None and not any(part.lacking for part in pool.mixture)
    lacking_since = min((part.lacking_since for part in pool.mixture if part.lacking_since is not None), default=None)
    if enough and not pool.mixture.queued:
        return _condition("Ready", True, "Warm", have, moment)
    if (problem := _problem(pool)) is not None:
        return _condition("Ready", False, problem.reason, f"{have}; {problem.message}", moment)
    if pool.spec is not None and counts.total >= pool.spec.max_pods:
        message = f"{have}; {counts.total} pods are all that the pool may have"
        return _condition("Ready", False, "PoolAtCapacity", message, moment)
    if enough:
        return _condition("Ready", True, "Warm", have, moment)
    was_ready = any(each.type == "Ready" and each.status == ConditionStatus.TRUE for each in _conditions_of(pool))
    if was_ready and lacking_since is not None and now - lacking_since < PATIENCE_SECONDS:
        return _condition("Ready", True, "Refilling", have, moment)
    return _condition("Ready", False, "Starting", f"{have}; {counts.coming} start", moment)


def _scaled(pool: Partition, moment: datetime) -> list[Condition]:
    decision = pool.scaler.decision
    if pool.spec is None or decision is None:
        return []
    return [_condition("Scaled", not decision.limited, decision.reason, decision.message, moment)]


def _current(pool: Partition, moment: datetime, now: float) -> Condition:
    notes = {part.variant: part.stock.turnover(now).note for part in pool.mixture}
    note = "; ".join(f"{name}: {note}" if name else note for name, note in notes.items() if note)
    if note:
        return _condition("Current", False, "Replacing", note, moment)
    return _condition("Current", True, "Current", "no idle pod is to be replaced", moment)


def _healthy(pool: Partition, moment: datetime) -> list[Condition]:
    mixture = pool.mixture
    if not mixture.weights:
        return []
    if not mixture.out:
        return [_condition("VariantsHealthy", True, "InRotation", "none was taken out of rotation", moment)]
    notes = [f"{name}: {out.message}" for name, out in mixture.out.items()]
    if spared := [name for name in mixture.out if name in mixture.rotation]:
        notes.append(f"{spared[0]} gets callers none the less, since no other is left")
    reason = next(iter(mixture.out.values())).reason
    return [_condition("VariantsHealthy", False, reason, "; ".join(notes), moment)]


def _isolated(pool: Partition, moment: datetime) -> Condition:
    if pool.exposed is not None:
        return _condition("Isolated", False, "NetworkPolicyFailed", pool.exposed.message, moment)
    if not pool.isolated:
        return _condition("Isolated", False, "NotVerified", "the NetworkPolicy was not yet seen to stand", moment)
    return _condition("Isolated", True, "NetworkPolicy", "the pool's NetworkPolicy stands", moment)


def _honoured(pool: Partition, moment: datetime) -> Condition:
    if refused := sorted({name for part in pool.mixture for name in part.refused_fields}):
        message = "the template may not set " + ", ".join(refused)
        return _condition("TemplateHonoured", False, "FieldsRefused", message, moment)
    return _condition("TemplateHonoured", True, "Honoured", "", moment)


def _condition(kind: str, holds: bool, reason: str, message: str, moment: datetime) -> Condition:
    status = ConditionStatus.TRUE if holds else ConditionStatus.FALSE
    short = message if len(message) <= _MAX_MESSAGE else message[: _MAX_MESSAGE - 1] + "…"
    return Condition(type=kind, status=status, reason=reason, message=short, last_transition_time=moment)
