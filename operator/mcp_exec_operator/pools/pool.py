"""A SandboxPool in memory: its spec, its partitions, and how its pods are divided between them. No I/O."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Final

from pydantic import ValidationError

from mcp_exec_api.code_execution import Priority
from mcp_exec_api.constants import ANNOTATION_RESTORE, DEFAULT_MAX_QUEUED, LABEL_VARIANT
from mcp_exec_api.meta import field_errors
from mcp_exec_api.owner import Owner
from mcp_exec_api.reasons.execution import Reason
from mcp_exec_api.sandbox_pool import SandboxPoolSpec
from mcp_exec_common.kube.objects import Object
from mcp_exec_operator.pods.alterations import Alterations
from mcp_exec_operator.pods.cache import Pod, PodCounts, PodState
from mcp_exec_operator.pods.manifest import PoolIdentity, pool_labels, template_hash
from mcp_exec_operator.pods.network_policy import pool_of_policy
from mcp_exec_operator.pods.nodes import NodeCache
from mcp_exec_operator.pods.openings import NamespacePolicies, Opening
from mcp_exec_operator.pods.status import PodProblem
from mcp_exec_operator.pods.template import select_labels
from mcp_exec_operator.pools.libraries import NamespaceLibraries, PoolLibraries
from mcp_exec_operator.pools.partition import Partition
from mcp_exec_operator.pools.shortage import SessionPods, explain_shortage
from mcp_exec_operator.queueing.wait_queue import Waiter
from mcp_exec_operator.scaling.autoscaler import Autoscaler
from mcp_exec_operator.scaling.plan import PodPlan
from mcp_exec_operator.variants.allocation import Allocation, allocate_pods
from mcp_exec_operator.variants.assignment import assign_variant
from mcp_exec_operator.variants.outlier_detection import (
    FAULTS,
    Ejection,
    VariantHealth,
    VariantHealthSnapshot,
    detect_outlier,
    select_rotation,
)
from mcp_exec_tools.text import shorten

log = logging.getLogger(__name__)

_MAX_MESSAGE: Final = 512
_SPARE_IDLE_SECONDS: Final = 60.0
"""Idle time after which a pod of an owner gives way to nobody in particular. With less, owners that take turns in a
pool of as many places would always find their pods deleted."""
_MAX_STRANGERS: Final = 16
"""Pods of others that are remembered, to report them."""
_MAX_ANNOTATION: Final = 128
"""Characters of the annotation that are read. Names have at most 63."""


@dataclass(kw_only=True, eq=False)
class WarmPool:
    """One SandboxPool. It owns a base partition and one partition per variant.

    The base has all pods of a pool without variants. With variants it has the pods from before.
    """

    namespace: str
    name: str
    nodes: NodeCache = field(default_factory=NodeCache)
    policies: NamespacePolicies = field(default_factory=NamespacePolicies)
    """NetworkPolicies of others in the namespace."""
    namespace_libraries: NamespaceLibraries = field(default_factory=NamespaceLibraries)
    """Libraries of all pools of the namespace."""
    template_prefixes: tuple[str, ...] = ()
    """Prefixes that labels and annotations of templates may have."""
    clock: Callable[[], float] = monotonic
    find_session_pods: Callable[[], SessionPods] = SessionPods
    """Returns the pods that are kept for sessions."""
    autoscaler: Autoscaler = field(default_factory=Autoscaler)
    wakeup: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the controller should reconcile."""
    libraries: PoolLibraries = field(init=False)
    base: Partition = field(init=False)
    partitions: dict[str, Partition] = field(default_factory=dict)
    """By variant. Includes variants that the spec does not have any more, until their pods are gone."""
    body: Object | None = None
    """The object as last observed, or None if the pool does not exist."""
    appeared_at: float = 0.0
    """When the object was first observed, by the monotonic clock."""
    label_sets: list[dict[str, str]] = field(default_factory=list)
    """Labels of the pods of each template, without those that change."""
    uid: str = ""
    generation: int = 0
    spec: SandboxPoolSpec | None = None
    """None if the pool does not exist or its spec is invalid."""
    invalid: PodProblem | None = None
    """What is wrong with the spec."""
    exposed: PodProblem | None = None
    """Why the NetworkPolicy could not be verified."""
    isolated: bool = False
    """Whether the NetworkPolicies were verified."""
    policy_uid: str = ""
    """Uid of the base NetworkPolicy, once it was verified."""
    strangers: dict[str, str] = field(default_factory=dict)
    """Uids by name of pods that have the pool's labels and that no operator created."""
    alterations: Alterations = field(init=False)
    weights: dict[str, int] = field(default_factory=dict)
    """Weights of the spec's variants."""
    rotation: tuple[str, ...] = ()
    """Variants that callers are assigned to."""
    ejections: dict[str, Ejection] = field(default_factory=dict)
    """Variants that were taken out of rotation."""
    restored: str | None = None
    """Value of the restore annotation that was handled last."""
    _openings: tuple[tuple[int, int, str], list[Opening]] | None = None
    """What `find_openings` found last, and for what."""

    def __post_init__(self) -> None:
        self.libraries = PoolLibraries(pool=self.name, namespace=self.namespace_libraries)
        self.alterations = Alterations(pool=self.name, clock=self.clock)
        self.base = self._make_partition("")

    def __iter__(self) -> Iterator[Partition]:
        """Iterate over all partitions, the base first."""
        yield self.base
        yield from self.partitions.values()

    @property
    def identity(self) -> PoolIdentity:
        """What its pods refer to as their owner."""
        return PoolIdentity(namespace=self.namespace, name=self.name, uid=self.uid, policy_uid=self.policy_uid)

    @property
    def counts(self) -> PodCounts:
        """Number of pods of all partitions in each state."""
        return sum((partition.pods.counts for partition in self.partitions.values()), self.base.pods.counts)

    @property
    def queued(self) -> int:
        """Executions that wait for a pod of any partition."""
        return sum(len(partition.queue) for partition in self)

    @property
    def desired(self) -> int:
        """Pods of all partitions that should be warm or starting."""
        if self.spec is None:
            return 0
        decision = self.autoscaler.decision
        if decision is not None and self.spec.follows_demand:
            return decision.desired
        return max(self.spec.warm.min, self.autoscaler.bound_required(self.spec))

    def configure(self, body: Object) -> None:
        """Apply the pool's object."""
        meta = body["metadata"]
        generation = int(meta.get("generation", 0))
        same = self.body is not None and meta["uid"] == self.uid
        if same and generation < self.generation:
            return  # from a list that was requested before the last change
        if not same:
            self.appeared_at = self.clock()
        if not same or generation != self.generation:
            self._apply(body)
        self.body = body
        self._handle_restore_annotation(body)

    def remove(self) -> None:
        """Handle the deletion of the pool."""
        self.body, self.spec, self.isolated = None, None, False
        self.weights, self.ejections, self.restored = {}, {}, None
        self.libraries.clear()
        for partition in self:
            partition.spec, partition.plan = None, PodPlan()
            partition.allocation = Allocation()
            partition.retire_idle()
        self._set_rotation(())

    def assign(self, key: str) -> Partition:
        """Return the partition whose pods a caller gets."""
        if not self.rotation:
            return self.base
        weights = {name: self.weights[name] for name in self.rotation}
        return self.partitions[assign_variant(key, weights, pool=f"{self.namespace}/{self.name}")]

    def wait(
        self,
        partition: Partition,
        *,
        caller: str = "",
        priority: Priority = Priority.NORMAL,
        owner: Owner | None = None,
    ) -> Waiter:
        """Join the queue of a partition. Raises QueueFull if `maxQueued` executions wait for the pool's pods."""
        limit = DEFAULT_MAX_QUEUED if self.spec is None else self.spec.max_queued
        others = self.queued - len(partition.queue)
        return partition.wait(caller=caller, priority=priority, limit=limit - others, owner=owner)

    def explain_shortage(self, partition: Partition) -> PodProblem:
        """Return why no pod of a partition is available."""
        if self.body is None:
            return PodProblem(reason=Reason.POOL_NOT_FOUND, message=f"there is no pool {self.name}")
        problem = (
            self.invalid
            or self.exposed
            or explain_shortage(
                counts=partition.pods.counts,
                waiting=len(partition.queue),
                total_pods=self.counts.total,
                max_pods=self.spec.max_pods if self.spec is not None else None,
                starting=partition.starting_problem(),
                refusal=partition.refusal,
                failure=partition.failure,
                variant=partition.variant,
            )
        )
        return self.find_session_pods().explain(problem)

    def find_openings(self) -> list[Opening]:
        """Return the NetworkPolicies of others that open its sandboxes."""
        key = (self.policies.version, self.generation, self.uid)
        if self._openings is None or self._openings[0] != key:
            found = self.policies.find(self.label_sets)
            # its own are put right whenever they change
            self._openings = key, [each for each in found if pool_of_policy(each.name) != self.name]
        return self._openings[1]

    def partition_of(self, item: Object) -> Partition:
        """Return the partition of a pod's object: the one that has the pod, else the one that its label names."""
        meta = item["metadata"]
        variant = (meta.get("labels") or {}).get(LABEL_VARIANT, "")
        return self.partition_with(meta["name"]) or self.partitions.get(variant, self.base)

    def pod(self, name: str) -> Pod | None:
        """Return the pod of that name in any partition, or None."""
        return next((pod for partition in self if (pod := partition.pods.get(name)) is not None), None)

    def partition_with(self, pod: str) -> Partition | None:
        """Return the partition that has a pod of that name, or None."""
        return next((partition for partition in self if partition.pods.get(pod) is not None), None)

    def adopt(self, pod: str, *, uid: str, now: float) -> tuple[Partition, Pod]:
        """Make the pod with the name and uid of an execution's status busy. Return it and its partition."""
        partition = self.partition_with(pod) or self.base
        return partition, partition.pods.adopt(pod, uid=uid, now=now)

    def note_stranger(self, item: Object) -> bool:
        """Record a pod that no operator created. Return whether it is new."""
        name, uid = str(item["metadata"]["name"]), str(item["metadata"]["uid"])
        new = self.strangers.get(name) != uid
        if new and len(self.strangers) < _MAX_STRANGERS:
            self.strangers[name] = uid
            self.wakeup.set()
        return new

    def record_run(self, variant: str, reason: Reason, *, now: float) -> None:
        """Record the end of a run in a pod of a variant."""
        if variant in self.weights:
            self.partitions[variant].health.record_run(fault=reason in FAULTS, now=now)
            if reason in FAULTS:
                self.wakeup.set()

    def refill_now(self) -> None:
        """Create missing pods without delay, and retry a full quota, because a pod has ended or is about to."""
        for partition in self:
            partition.refill_now = True
            if partition.over_quota:
                partition.create_backoff.until = 0.0
        self.wakeup.set()

    def require_warm(self, count: int) -> None:
        """Set the warm pods that rollouts need at least, whatever the demand."""
        if count != self.autoscaler.required:
            self.autoscaler.required = count
            self.wakeup.set()

    def rebalance(self, now: float) -> None:
        """Decide how many pods each partition should have, and which variants are in rotation."""
        if self.spec is None:
            return
        for partition in self:
            partition.update_unserved(now)
        unserved = sum(partition.unserved.number for partition in self)
        decision = self.autoscaler.decide(self.spec, waiting=unserved, counts=self.counts, now=now)
        self._eject_outliers(now)
        allocations = allocate_pods(
            [partition.load for partition in self],
            weights={name: self.weights[name] for name in self.rotation},
            desired=decision.desired,
            expected=decision.expected,
            max_pods=self.spec.max_pods,
        )
        for partition in self:
            partition.allocation = allocations[partition.variant]

    def plan_pods(self, partition: Partition, *, now: float, max_create: int) -> PodPlan:
        """Plan which pods of a partition to create and delete. `max_create` may be created now."""
        assert self.spec is not None  # noqa: S101 - a pool without a spec is not planned
        refill = self.autoscaler.refill
        plan = partition.plan_pods(
            now=now,
            max_pods=self.spec.max_pods - (self.counts.total - partition.pods.counts.total),
            max_create=max_create,
            may_create=self.isolated,
            tokens=refill.available(now),
        )
        refill.spend(plan.refill, now)
        if plan.refill:
            partition.refilled_at = now
        if plan.short:
            plan = replace(plan, delete=(*plan.delete, *self._find_evicted(plan.short)))
        elif self._needs_spare_place():
            spare = [pod for pod in self._find_evicted(1) if now - pod.idle_since >= _SPARE_IDLE_SECONDS]
            plan = replace(plan, delete=(*plan.delete, *spare))
        return plan if plan.next_at is None else replace(plan, next_at=max(plan.next_at, refill.ready_at(now)))

    def _needs_spare_place(self) -> bool:
        """Return whether a new owner would first wait for the end of an idle pod, and then for the start of its own.

        The only idle pod is kept: in a pool of one place, no pod would ever be used again.
        """
        assert self.spec is not None  # noqa: S101 - a pool without a spec is not planned
        counts = self.counts
        on_the_way = counts.warm + counts.coming + counts.terminating
        return counts.owned > 1 and counts.total >= self.spec.max_pods and not on_the_way

    def _find_evicted(self, places: int) -> list[Pod]:
        """Return idle pods of owners that give up their places, the least recently used first."""
        owned = [pod for partition in self for pod in partition.pods.all(PodState.OWNED)]
        return sorted(owned, key=lambda pod: pod.idle_since)[:places]

    def in_refill_order(self) -> list[Partition]:
        """Return all partitions, the one that was refilled least recently first, so that they take turns."""
        return sorted(self, key=lambda partition: partition.refilled_at)

    def rebalance_after(self) -> float | None:
        """Return the seconds after which time alone may change how many pods should be warm, or None."""
        return self.autoscaler.reconsider_after(self.spec) if self.spec is not None else None

    def discard_partitions(self) -> None:
        """Drop the partitions of removed variants that have neither pods nor waiting executions."""
        for name, partition in list(self.partitions.items()):
            if name not in self.weights and not partition.pods.counts.total and not partition.queue:
                del self.partitions[name]

    def _make_partition(self, variant: str) -> Partition:
        return Partition(
            namespace=self.namespace,
            name=self.name,
            variant=variant,
            nodes=self.nodes,
            demand=self.autoscaler.demand,
            libraries=self.libraries,
            wakeup=self.wakeup,
            clock=self.clock,
            is_full=lambda: self.spec is not None and self.counts.total >= self.spec.max_pods,
        )

    def _apply(self, body: Object) -> None:
        """Apply a new spec, or the object of a new pool."""
        meta = body["metadata"]
        if meta["uid"] != self.uid:
            self.isolated = False
            self._restore_status(body.get("status") or {})
        self.uid, self.generation = meta["uid"], int(meta.get("generation", 0))
        self.spec, self.invalid = None, None
        digest = self.base.template_hash
        try:
            spec = SandboxPoolSpec.model_validate(body.get("spec") or {})
            digest = template_hash(spec, template_prefixes=self.template_prefixes)
            self.spec = spec
            self.autoscaler.configure(spec)
        except ValidationError as error:
            text = "; ".join(f"{found.field}: {found.message}" for found in field_errors(error, SandboxPoolSpec))
            self.invalid = PodProblem(reason=Reason.POOL_UNAVAILABLE, message=f"the pool's spec is invalid: {text}")
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            message = f"the pool's template is invalid: {error}"
            self.invalid = PodProblem(reason=Reason.POOL_UNAVAILABLE, message=message)
        self.base.configure(self.spec, template_hash=digest)
        specs = [] if self.spec is None else [self.spec, *map(self.spec.build_variant_spec, self.spec.variants)]
        self.label_sets = [
            select_labels(each.template.to_api(), prefixes=self.template_prefixes) | pool_labels(self.name)
            for each in specs
        ]
        self._configure_variants()
        self._update_rotation()

    def _configure_variants(self) -> None:
        spec = self.spec
        if spec is None:
            for partition in self.partitions.values():
                partition.configure(None, template_hash=partition.template_hash)
            return
        self.weights = {variant.name: variant.weight for variant in spec.variants}
        self.ejections = {name: ejection for name, ejection in self.ejections.items() if name in self.weights}
        for variant in spec.variants:
            if variant.name not in self.partitions:
                self.partitions[variant.name] = self._make_partition(variant.name)
            own = spec.build_variant_spec(variant)
            digest = template_hash(own, variant=variant.name, template_prefixes=self.template_prefixes)
            self.partitions[variant.name].configure(own, template_hash=digest)
            if variant.name in self.ejections and self.ejections[variant.name].template_hash != digest:
                self._restore_variant(variant.name)
        removed = spec.model_copy(update={"variants": []})
        for name, partition in self.partitions.items():
            if name not in self.weights:
                partition.configure(removed, template_hash=partition.template_hash)

    def _restore_status(self, status: Object) -> None:
        """Take over what the previous leader decided."""
        self.autoscaler.restore(status, self.clock())
        self.libraries.restore(status)
        self.restored = status.get("restored")
        self.ejections = {
            str(each["name"]): Ejection(
                reason=str(each["reason"]),
                message=str(each.get("message") or each["reason"]),
                template_hash=str(each.get("template") or ""),
            )
            for each in status.get("variants") or ()
            if each.get("reason")
        }

    def _handle_restore_annotation(self, body: Object) -> None:
        """Restore the variant that the annotation names, once for each value of the annotation."""
        value = str((body["metadata"].get("annotations") or {}).get(ANNOTATION_RESTORE) or "")[:_MAX_ANNOTATION] or None
        if value == self.restored:
            return
        self.restored = value
        self._restore_variant((value or "").partition("@")[0])
        self._update_rotation()

    def _restore_variant(self, name: str) -> None:
        self.ejections.pop(name, None)
        if name in self.partitions:
            self.partitions[name].health = VariantHealth()

    def _eject_outliers(self, now: float) -> None:
        while outlier := detect_outlier({name: self._health(name, now) for name in self.rotation}):
            name, reason = outlier
            health, partition = self._health(name, now), self.partitions[name]
            if reason == "StartFailures":
                text = f"{health.failures} consecutive pods did not become ready: {partition.health.last_failure}"
            else:
                text = f"{health.faults} of its last {health.runs} runs ended by a fault, far more than its siblings'"
            message = shorten(text, _MAX_MESSAGE)
            self.ejections[name] = Ejection(reason=reason, message=message, template_hash=partition.template_hash)
            log.warning("ejected variant %s: %s", name, message, extra={"pool": self.name})
            self._update_rotation()

    def _update_rotation(self) -> None:
        now = self.clock()
        healths = {name: self._health(name, now) for name in self.weights}
        self._set_rotation(select_rotation(self.weights, self.ejections, healths))

    def _set_rotation(self, rotation: tuple[str, ...]) -> None:
        self.rotation = rotation
        for partition in self:
            accepting = partition.variant in rotation if partition.variant else not rotation
            partition.allocation = replace(partition.allocation, accepting=accepting)
        self.wakeup.set()

    def _health(self, name: str, now: float) -> VariantHealthSnapshot:
        partition = self.partitions[name]
        health, counts = partition.health.snapshot(now), partition.pods.counts
        # pods from before this leader prove too that the variant starts
        started = counts.warm + counts.busy > 0 and not health.failures
        return replace(health, comes_up=health.comes_up or started)
