"""A SandboxPool in memory: its spec, its pods, the executions that wait for them, and what to do next. No I/O."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Final

from mcp_exec_api.code_execution import Priority
from mcp_exec_api.constants import DEFAULT_MAX_QUEUED
from mcp_exec_api.files import Owner
from mcp_exec_api.meta import now as utc_now
from mcp_exec_api.reasons.execution import Reason
from mcp_exec_api.sandbox_pool import OnEmpty, SandboxPoolSpec
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.sandbox_keys import SandboxKeys
from mcp_exec_common.util.backoff import Backoff
from mcp_exec_operator.core.pods.authenticity import Alterations
from mcp_exec_operator.core.pods.cache import PodCache
from mcp_exec_operator.core.pods.manifest import PoolIdentity, PoolTemplate
from mcp_exec_operator.core.pods.network_policy import NamespacePolicies, Opening, pool_of_policy
from mcp_exec_operator.core.pods.nodes import NodeCache
from mcp_exec_operator.core.pods.pod import IDLE, Pod, PodCounts, PodState
from mcp_exec_operator.core.pods.status import PodProblem
from mcp_exec_operator.core.pools.health import PoolHealth, SessionPodFinder, SessionPods, explain_shortage
from mcp_exec_operator.core.pools.libraries import NamespaceLibraries, PoolLibraries
from mcp_exec_operator.core.pools.reuse import PlaceSharing, ReuseRules, find_spare_pods, max_idle_pods
from mcp_exec_operator.core.pools.reviews import PodReview, PodReviews, PodTimes, ReviewRules
from mcp_exec_operator.core.queueing.wait_queue import Waiter, WaitQueue
from mcp_exec_operator.core.scaling.autoscaler import Autoscaler
from mcp_exec_operator.core.scaling.demand import SHORT_WAIT_SECONDS, Demand, Unserved, UseTime, find_unserved
from mcp_exec_operator.core.scaling.plan import PodPlan, PoolState, overtaken_pods, plan_pods
from mcp_exec_tools.protocol import PROTOCOLS

_MAX_STRANGERS: Final = 16
"""Pods of others that are remembered, to report them."""


@dataclass(kw_only=True, eq=False)
class Pool:
    """One SandboxPool. Its controller reconciles it when `wakeup` is set."""

    namespace: str
    name: str
    keys: SandboxKeys | None = None
    """The release's keys; None if pods are not replaced for another one."""
    nodes: NodeCache = field(default_factory=NodeCache)
    policies: NamespacePolicies = field(default_factory=NamespacePolicies)
    """NetworkPolicies of others in the namespace."""
    namespace_libraries: NamespaceLibraries = field(default_factory=NamespaceLibraries)
    """Libraries of all pools of the namespace."""
    template_prefixes: tuple[str, ...] = ()
    """Prefixes that labels and annotations of templates may have."""
    times: PodTimes = field(default_factory=PodTimes)
    clock: Callable[[], float] = monotonic
    sessions: SessionPodFinder | None = None
    """Finds the pods that are kept for sessions; None if there are none."""
    autoscaler: Autoscaler = field(default_factory=Autoscaler)
    wakeup: asyncio.Event = field(default_factory=asyncio.Event)
    pods: PodCache = field(init=False)
    reviews: PodReviews = field(init=False)
    queue: WaitQueue = field(default_factory=WaitQueue)
    health: PoolHealth = field(default_factory=PoolHealth)
    libraries: PoolLibraries = field(init=False)
    alterations: Alterations = field(init=False)
    sharing: PlaceSharing = field(init=False)
    body: Object | None = None
    """The object as last observed, or None if the pool does not exist."""
    appeared_at: float = 0.0
    """When the object was first observed, by the monotonic clock."""
    uid: str = ""
    generation: int = 0
    spec: SandboxPoolSpec | None = None
    """None if the pool does not exist or its spec is invalid."""
    invalid: PodProblem | None = None
    """What is wrong with the spec."""
    template_hash: str = ""
    """Hash of the pods that the last valid spec asks for."""
    labels: dict[str, str] = field(default_factory=dict)
    """Labels of the pods, without those that change; empty if the spec is invalid."""
    protocol: int = PROTOCOLS[-1]
    """Version of the protocol with the sandbox that became ready last, of those that the spec asks for."""
    exposed: PodProblem | None = None
    """Why the NetworkPolicy could not be verified."""
    isolated: bool = False
    """Whether the NetworkPolicies were verified."""
    policy_uid: str = ""
    """Uid of the base NetworkPolicy, once it was verified."""
    strangers: dict[str, str] = field(default_factory=dict)
    """Uids by name of pods that have the pool's labels and that no operator created."""
    served_at: float = 0.0
    """When the last waiting execution got a pod: no execution times out in a queue that moves."""
    create_backoff: Backoff = field(default_factory=Backoff)
    refusal: PodProblem | None = None
    """Why the API server refused the last pod."""
    failure: PodProblem | None = None
    """Why the last failed pod failed."""
    changed_fields: tuple[str, ...] = ()
    """Fields of the last created pod that differed from the requested one."""
    refused_fields: tuple[str, ...] = ()
    """Fields of the template that its pods do not have."""
    lacking_since: float | None = None
    """Time since which fewer pods are warm than required, or None if enough are."""
    plan: PodPlan = field(default_factory=PodPlan)
    """The last plan."""
    unserved: Unserved = field(default_factory=Unserved)
    """Waiting executions that need a new pod, as of the last plan."""
    use_time: UseTime = field(default_factory=UseTime)
    _refills_now: bool = False
    """Whether missing pods are created without delay, because a pod has ended."""
    _taken: OrderedDict[str, Pod] = field(default_factory=OrderedDict)
    """Pods by name that executions have taken within a short wait, the latest last."""
    _openings: tuple[tuple[int, int, str], list[Opening]] | None = None
    """What `find_openings` found last, and for what."""

    def __post_init__(self) -> None:
        self.pods = PodCache(is_trusted_node=self.nodes.is_trusted)
        self.reviews = PodReviews(pods=self.pods)
        self.sharing = PlaceSharing(pods=self.pods, queue=self.queue)
        self.libraries = PoolLibraries(pool=self.name, namespace=self.namespace_libraries)
        self.alterations = Alterations(pool=self.name, clock=self.clock)

    @property
    def identity(self) -> PoolIdentity:
        """What its pods refer to as their owner."""
        return PoolIdentity(namespace=self.namespace, name=self.name, uid=self.uid, policy_uid=self.policy_uid)

    @property
    def session_pods(self) -> SessionPods:
        """Its pods that are kept for sessions."""
        return SessionPods() if self.sessions is None else self.sessions.find_pods((self.namespace, self.name))

    @property
    def counts(self) -> PodCounts:
        """Number of pods in each state."""
        return self.pods.counts

    @property
    def demand(self) -> Demand:
        """Demand for the pool's pods."""
        return self.autoscaler.demand

    @property
    def desired(self) -> int:
        """Pods that should be warm or starting."""
        if self.spec is None:
            return 0
        decision = self.autoscaler.decision
        if decision is not None and self.spec.follows_demand:
            return decision.desired
        return max(self.spec.warm.min, self.autoscaler.bound_required(self.spec))

    @property
    def lacking(self) -> bool:
        """Whether fewer pods are warm than the last decision requires, given the pods that are starting."""
        decision, counts = self.autoscaler.decision, self.counts
        return decision is not None and counts.warm < decision.desired - min(counts.coming, decision.expected)

    @property
    def over_quota(self) -> bool:
        """Whether a quota refused the last pod."""
        return self.refusal is not None and self.refusal.reason is Reason.QUOTA_EXCEEDED

    @property
    def reuse(self) -> ReuseRules:
        """What ends the life of its used pods."""
        return ReuseRules(spec=self.spec, template_hash=self.template_hash, nodes=self.nodes)

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

    def remove(self) -> None:
        """Handle the deletion of the pool. Kubernetes deletes its idle pods with it."""
        self.body, self.spec, self.isolated = None, None, False
        self.autoscaler.decision, self.plan = None, PodPlan()
        self.libraries.clear()
        for pod in self.pods.all(PodState.CREATING, *IDLE):
            self.pods.retire(pod)
        self.wakeup.set()

    def take(self, owner: Owner | None = None) -> Pod | None:
        """Take an idle pod of the owner, else a warm pod if there is one and no execution waits for it.

        Without an owner, only a pod that nobody has used.
        """
        if self.spec is None:
            return None
        if owner is not None and (owned := self.pods.take_owned(owner.digest)) is not None:
            # no reconcile: nothing is created or deleted for it
            self.demand.add_reuse(self.clock())
            self._mark_taken(owned, owner.digest)
            return owned
        if self.queue:
            return None
        pod = self.pods.take()
        if pod is not None:
            self.demand.add_arrival(self.clock(), warm=True)
            self._mark_taken(pod, owner.digest if owner is not None else "")
            self.wakeup.set()
        return pod

    def join(
        self,
        *,
        caller: str = "",
        priority: Priority = Priority.NORMAL,
        owner: Owner | None = None,
        wakeup: asyncio.Event | None = None,
    ) -> Waiter:
        """Join the queue after `take` returned no pod. Raises QueueFull if `maxQueued` executions wait already.

        With an owner, the waiter may also get a pod that the owner gives back. `wakeup` is the waiter's event, if the
        caller has one.
        """
        digest = owner.digest if owner is not None else ""
        if not digest:  # else it is demand for a new pod only if it gets one
            self.demand.add_arrival(self.clock(), warm=False)
        limit = DEFAULT_MAX_QUEUED if self.spec is None else self.spec.max_queued
        future: asyncio.Future[Pod] = asyncio.get_running_loop().create_future()
        waiter = Waiter(future=future, owner=digest, wakeup=wakeup if wakeup is not None else asyncio.Event())
        self.queue.join(waiter, caller=caller, priority=priority, limit=limit, now=self.clock())
        self.wakeup.set()
        return waiter

    def leave(self, waiter: Waiter) -> None:
        """Leave the queue, and release the pod if the waiter already has one."""
        self.queue.leave(waiter)
        if waiter.future.done() and not waiter.future.cancelled():
            self.release(waiter.future.result())
        waiter.future.cancel()
        self.wakeup.set()

    def release(self, pod: Pod) -> None:
        """Release a pod that was taken and not used. If it is lost, the controller deletes it."""
        if self.pods.release(pod):
            self._serve_queue()
        if pod.state is PodState.OWNED:
            self._serve_owner(pod.owner)
        self.wakeup.set()

    def give_back(self, pod: Pod) -> bool:
        """Give a clean pod to the next waiting execution of its owner, or keep it. Return False if it must be deleted.

        If the pool is full and others wait, an owner that has more than its share gives its place up.
        """
        now = self.clock()
        if pod.taken_by:
            self.use_time.add(now - pod.taken_at)
        spec = self.spec
        if spec is None or self.reuse.reason_to_end(pod, now=now):
            return False
        if self.sharing.must_give_up(pod, max_pods=spec.max_pods, now=now) or not self._may_keep(pod, spec):
            return False
        if not self.pods.keep_owned(pod, now=now):
            return False
        if self.counts.owned == 1:
            self.wakeup.set()  # from now on, limits are checked
        self._serve_owner(pod.owner)
        return True

    def mark_ready(self, name: str, *, protocol: int = PROTOCOLS[-1]) -> Pod | None:
        """Make a pod warm after its supervisor answered, and give it to the first waiting execution."""
        known = self.pods.get(name)
        first = known is not None and known.created_here and not known.ready_at
        pod = self.pods.mark_ready(name, now=self.clock())
        if pod is not None:
            if first:
                self.demand.add_startup(pod.ready_at - pod.since)
                self.health.record_start()
            if pod.template == self.template_hash:
                self.protocol = protocol
            self._mark_overtaken(pod)
            self.create_backoff.succeed()
            self.failure = None
            self._serve_queue()
            self.wakeup.set()
        return pod

    def recheck_node(self, node: str) -> None:
        """Check the pods on a node after the node changed."""
        self.pods.recheck_node(node, now=self.clock())
        self.wakeup.set()

    def note_stranger(self, item: Object) -> bool:
        """Record a pod that no operator created. Return whether it is new."""
        name, uid = str(item["metadata"]["name"]), str(item["metadata"]["uid"])
        new = self.strangers.get(name) != uid
        if new and len(self.strangers) < _MAX_STRANGERS:
            self.strangers[name] = uid
            self.wakeup.set()
        return new

    def refill_now(self) -> None:
        """Create missing pods without delay, and retry a full quota, because a pod has ended or is about to."""
        self._refills_now = True
        if self.over_quota:
            self.create_backoff.until = 0.0
        self.wakeup.set()

    def require_warm(self, count: int) -> None:
        """Set the warm pods that rollouts need at least, whatever the demand."""
        if count != self.autoscaler.required:
            self.autoscaler.required = count
            self.wakeup.set()

    def explain_shortage(self) -> PodProblem:
        """Return why no pod is available."""
        if self.body is None:
            return PodProblem(reason=Reason.POOL_NOT_FOUND, message=f"there is no pool {self.name}")
        problem = (
            self.invalid
            or self.exposed
            or explain_shortage(
                counts=self.counts,
                waiting=len(self.queue),
                max_pods=self.spec.max_pods if self.spec is not None else None,
                starting=self.pods.first_problem,
                refusal=self.refusal,
                failure=self.failure,
            )
        )
        return self.session_pods.explain(problem)

    def find_openings(self) -> list[Opening]:
        """Return the NetworkPolicies of others that open its sandboxes."""
        key = (self.policies.version, self.generation, self.uid)
        if self._openings is None or self._openings[0] != key:
            found = self.policies.find(self.labels) if self.labels else []
            # its own are put right whenever they change
            self._openings = key, [each for each in found if pool_of_policy(each.name) != self.name]
        return self._openings[1]

    def plan_pods(self, *, now: float, max_create: int) -> PodPlan:
        """Decide how many pods should be warm, plan which to create and delete, and store the plan.

        `max_create` may be created now.
        """
        assert self.spec is not None  # noqa: S101 - a pool without a spec is not planned
        self._update_reviews(now)
        self._update_unserved(now)
        unserved, counts, refill = self.unserved.number, self.counts, self.autoscaler.refill
        decision = self.autoscaler.decide(self.spec, waiting=unserved, counts=counts, now=now)
        outdated, stuck = self.reviews.list_outdated(), self.pods.count_stuck(utc_now())
        plan = plan_pods(
            PoolState(
                pods=self.pods,
                desired=decision.desired,
                starting_allowance=decision.expected,
                max_pods=self.spec.max_pods,
                stuck=stuck,
                waiting=len(self.queue),
                unserved=unserved,
                cold_starts=unserved if self.spec.on_empty is OnEmpty.COLD_START else 0,
                outdated=outdated,
                stale=self.reviews.list_stale(),
                late=self.reviews.list_late(),
                blocked=self._blocking_message() if outdated or counts.owned else "",
                may_create=self.isolated,
                max_create=max_create,
                missing_since=self.plan.missing_since,
                refill_now=self._refills_now,
                refill_tokens=refill.available(now),
                backoff_until=self.create_backoff.until,
                probing=bool(self.create_backoff.failures),
            ),
            now=now,
        )
        if plan.missing_since is None:
            self._refills_now = False
        refill.spend(plan.refill, now)
        spare = find_spare_pods(self.pods, short=plan.short, stuck=stuck, max_pods=self.spec.max_pods, now=now)
        next_at = None if plan.next_at is None else max(plan.next_at, refill.ready_at(now))
        self.plan = replace(plan, delete=(*plan.delete, *spare), next_at=next_at)
        return self.plan

    def reconsider_after(self) -> float | None:
        """Return the seconds until time may change how many pods should be warm, or None."""
        return self.autoscaler.reconsider_after(self.spec) if self.spec is not None else None

    def review(self, now: float) -> list[PodReview]:
        """Review the pods that have changed or whose time has come. Return what is to be done, each once."""
        self._update_reviews(now)
        return self.reviews.pop_open()

    def late_pods(self, now: float) -> list[Pod]:
        """Return the pods that take much longer to start than others."""
        self._update_reviews(now)
        return self.reviews.list_late()

    def update_lacking(self, now: float) -> None:
        """Record since when pods are lacking."""
        if not self.lacking:
            self.lacking_since = None
        elif self.lacking_since is None:
            self.lacking_since = now

    def _apply(self, body: Object) -> None:
        """Apply a new spec, or the object of a new pool, and forget the failures of the last spec."""
        meta = body["metadata"]
        if meta["uid"] != self.uid:
            self.isolated = False
            status = body.get("status") or {}
            self.autoscaler.restore(status, self.clock())
            self.libraries.restore(status)
        template = PoolTemplate.read(body, pool=self.name, prefixes=self.template_prefixes)
        if template.digest not in ("", self.template_hash):
            self.health = PoolHealth()
        self.uid, self.generation = meta["uid"], int(meta.get("generation", 0))
        self.spec, self.invalid, self.labels = template.spec, template.problem, template.labels
        self.template_hash = template.digest or self.template_hash
        self.refusal = self.failure = None
        self.changed_fields = ()
        self.create_backoff.succeed()
        if self.spec is None:
            self.plan = PodPlan()
        else:
            self.autoscaler.configure(self.spec)
        self.wakeup.set()

    def _update_reviews(self, now: float) -> None:
        rules = ReviewRules(
            identity=self.identity,
            isolated=self.isolated,
            reuse=self.reuse,
            max_idle_age=self.spec.max_idle_age_seconds if self.spec is not None else None,
            signing_key=self.keys.signing if self.keys is not None else None,
            other_keys=tuple(self.keys)[1:] if self.keys is not None else (),
            times=self.times,
            usual_startup=self.demand.usual_startup_seconds,
        )
        self.reviews.update(rules, now=now)

    def _update_unserved(self, now: float) -> None:
        """Count the waiting executions that need a new pod, because none of their owner comes back soon."""
        while self._taken and now - next(iter(self._taken.values())).taken_at >= SHORT_WAIT_SECONDS:
            self._taken.popitem(last=False)
        limits = self.reuse.limits
        if limits is None or not self.queue:
            self.unserved = Unserved(number=len(self.queue))
            return
        busy = [
            pod
            for pod in self._taken.values()
            if pod.state is PodState.BUSY and not pod.gone and pod.uses < limits.max_uses
        ]
        self.unserved = find_unserved(self.queue.count_by_owner(), busy, use_time=self.use_time, now=now)

    def _mark_overtaken(self, ready: Pod) -> None:
        late = self.late_pods(ready.ready_at)
        usual, at = self.demand.usual_startup_seconds, ready.ready_at
        for pod in overtaken_pods(late, by=ready, usual_startup=usual, now=at, moment=utc_now()) if late else ():
            pod.overtaken_at = at
            self.pods.touch(pod)

    def _blocking_message(self) -> str:
        """Return why no further pod becomes warm although the pool may have more, or an empty string."""
        if self.over_quota and self.refusal is not None:
            return self.refusal.message
        problem = self.pods.first_problem
        return problem.message if problem is not None and problem.reason is Reason.UNSCHEDULABLE else ""

    def _serve_queue(self) -> None:
        while self.queue and (pod := self.pods.take()) is not None:
            waiter = self.queue.pop(self.clock())
            if waiter.owner:
                self.demand.add_arrival(self.clock(), warm=False)
            self._serve(waiter, pod)

    def _serve_owner(self, owner: str) -> None:
        """Give idle pods of an owner to its waiting executions."""
        while self.queue.first_of(owner) is not None and (pod := self.pods.take_owned(owner)) is not None:
            waiter = self.queue.pop_of(owner, self.clock())
            self.demand.add_reuse(self.clock())
            self._serve(waiter, pod)

    def _serve(self, waiter: Waiter, pod: Pod) -> None:
        self._mark_taken(pod, waiter.owner)
        self.served_at = pod.taken_at
        waiter.future.set_result(pod)
        waiter.wakeup.set()

    def _mark_taken(self, pod: Pod, owner: str) -> None:
        pod.taken_by, pod.taken_at = owner, self.clock()
        if owner:
            self._taken[pod.name] = pod
            self._taken.move_to_end(pod.name)

    def _may_keep(self, pod: Pod, spec: SandboxPoolSpec) -> bool:
        """Return whether the owner waits for the pod or may have one more idle pod."""
        is_awaited = self.queue.first_of(pod.owner) is not None
        return is_awaited or self.pods.count_owned(pod.owner) < max_idle_pods(spec)
