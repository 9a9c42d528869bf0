"""A SandboxPool in memory: its object, its pods, the executions that wait for them, and what to do next. No I/O."""

import asyncio
from collections.abc import Callable
from dataclasses import InitVar, dataclass, field, replace
from time import monotonic

from mcp_exec_api.code_execution import Priority
from mcp_exec_api.constants import DEFAULT_MAX_QUEUED
from mcp_exec_api.files import Owner
from mcp_exec_api.meta import now as utc_now
from mcp_exec_api.reasons.execution import Reason
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.sandbox_keys import SandboxKeys
from mcp_exec_operator.core.pods.authenticity import Alterations
from mcp_exec_operator.core.pods.cache import PodCache
from mcp_exec_operator.core.pods.manifest import PoolIdentity
from mcp_exec_operator.core.pods.network_policy import NamespacePolicies
from mcp_exec_operator.core.pods.nodes import NodeCache
from mcp_exec_operator.core.pods.pod import IDLE, Pod, PodCounts, PodState
from mcp_exec_operator.core.pods.status import PodProblem
from mcp_exec_operator.core.pools.health import PoolHealth, SessionPodFinder, SessionPods, explain_shortage
from mcp_exec_operator.core.pools.isolation import Isolation
from mcp_exec_operator.core.pools.libraries import NamespaceLibraries, PoolLibraries
from mcp_exec_operator.core.pools.reuse import PlaceSharing, PodUses, ReuseRules
from mcp_exec_operator.core.pools.reviews import PodReview, PodReviews, PodTimes, ReviewRules
from mcp_exec_operator.core.pools.shape import PoolShape
from mcp_exec_operator.core.pools.supply import Supply
from mcp_exec_operator.core.queueing.wait_queue import Waiter, WaitQueue
from mcp_exec_operator.core.scaling.plan import PodPlan, overtaken_pods
from mcp_exec_tools.protocol import PROTOCOLS


@dataclass(kw_only=True, eq=False)
class Pool:
    """One SandboxPool. Its controller reconciles it when `wakeup` is set."""

    namespace: str
    name: str
    keys: SandboxKeys | None = None
    """The release's keys; None if pods are not replaced for another one."""
    nodes: NodeCache = field(default_factory=NodeCache)
    policies: InitVar[NamespacePolicies | None] = None
    """NetworkPolicies of others in the namespace."""
    namespace_libraries: InitVar[NamespaceLibraries | None] = None
    """Libraries of all pools of the namespace."""
    template_prefixes: tuple[str, ...] = ()
    """Prefixes that labels and annotations of templates may have."""
    times: PodTimes = field(default_factory=PodTimes)
    clock: Callable[[], float] = monotonic
    sessions: SessionPodFinder | None = None
    """Finds the pods that are kept for sessions; None if there are none."""
    wakeup: asyncio.Event = field(default_factory=asyncio.Event)
    shape: PoolShape = field(default_factory=PoolShape)
    """What its object says."""
    isolation: Isolation = field(init=False)
    supply: Supply = field(default_factory=Supply)
    queue: WaitQueue = field(default_factory=WaitQueue)
    pods: PodCache = field(init=False)
    reviews: PodReviews = field(init=False)
    uses: PodUses = field(default_factory=PodUses)
    sharing: PlaceSharing = field(init=False)
    health: PoolHealth = field(default_factory=PoolHealth)
    libraries: PoolLibraries = field(init=False)

    def __post_init__(self, policies: NamespacePolicies | None, namespace_libraries: NamespaceLibraries | None) -> None:
        self.isolation = Isolation(
            pool=self.name,
            alterations=Alterations(pool=self.name, clock=self.clock),
            policies=NamespacePolicies() if policies is None else policies,
        )
        self.pods = PodCache(is_trusted_node=self.nodes.is_trusted)
        self.reviews = PodReviews(pods=self.pods)
        self.sharing = PlaceSharing(pods=self.pods, queue=self.queue)
        libraries = NamespaceLibraries() if namespace_libraries is None else namespace_libraries
        self.libraries = PoolLibraries(pool=self.name, namespace=libraries)

    @property
    def identity(self) -> PoolIdentity:
        """What its pods refer to as their owner."""
        uid, policy_uid = self.shape.uid, self.isolation.policy_uid
        return PoolIdentity(namespace=self.namespace, name=self.name, uid=uid, policy_uid=policy_uid)

    @property
    def session_pods(self) -> SessionPods:
        """Its pods that are kept for sessions."""
        return SessionPods() if self.sessions is None else self.sessions.find_pods((self.namespace, self.name))

    @property
    def counts(self) -> PodCounts:
        """Number of pods in each state."""
        return self.pods.counts

    @property
    def desired(self) -> int:
        """Pods that should be warm or starting."""
        spec = self.shape.spec
        return 0 if spec is None else self.supply.count_desired(spec)

    @property
    def reuse(self) -> ReuseRules:
        """What ends the life of its used pods."""
        return ReuseRules(limits=self.shape.reuse, template_hash=self.shape.template_hash, nodes=self.nodes)

    def changed(self) -> None:
        """Have the pool reconciled soon."""
        self.wakeup.set()

    def configure(self, body: Object) -> None:
        """Apply the pool's object. A new spec makes the pool forget the failures of the last one."""
        former = self.shape
        shape = former.observe(body, pool=self.name, prefixes=self.template_prefixes, now=self.clock())
        self.shape = shape
        if not shape.is_revised(former):
            return
        if shape.uid != former.uid:
            self.isolation.reset()
            status = body.get("status") or {}
            self.supply.autoscaler.restore(status, self.clock())
            self.libraries.restore(status)
        if shape.template_hash != former.template_hash:
            self.health = PoolHealth()
        self.supply.reset()
        if shape.spec is None:
            self.supply.stop()
        else:
            self.supply.autoscaler.configure(shape.spec)
        self.changed()

    def note_status(self, body: Object) -> None:
        """Store the object as it is after a write of its status. A new spec in it is applied when it is observed."""
        self.shape = replace(self.shape, body=body)

    def remove(self) -> None:
        """Handle the deletion of the pool. Kubernetes deletes its idle pods with it."""
        self.shape = self.shape.remove()
        self.isolation.reset()
        self.supply.autoscaler.decision = None
        self.supply.stop()
        self.libraries.clear()
        for pod in self.pods.all(PodState.CREATING, *IDLE):
            self.pods.retire(pod)
        self.changed()

    def take(self, owner: Owner | None = None) -> Pod | None:
        """Take an idle pod of the owner, else a warm pod if there is one and no execution waits for it.

        Without an owner, only a pod that nobody has used.
        """
        if self.shape.spec is None:
            return None
        if owner is not None and (owned := self.pods.take_owned(owner.digest)) is not None:
            # no reconcile: nothing is created or deleted for it
            self.supply.autoscaler.demand.add_reuse(self.clock())
            self.uses.begin(owned, owner=owner.digest, now=self.clock())
            return owned
        if self.queue:
            return None
        pod = self.pods.take()
        if pod is not None:
            self.supply.autoscaler.demand.add_arrival(self.clock(), warm=True)
            if owner is not None:
                self.uses.begin(pod, owner=owner.digest, now=self.clock())
            self.changed()
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
            self.supply.autoscaler.demand.add_arrival(self.clock(), warm=False)
        limit = DEFAULT_MAX_QUEUED if self.shape.spec is None else self.shape.spec.max_queued
        future: asyncio.Future[Pod] = asyncio.get_running_loop().create_future()
        waiter = Waiter(future=future, owner=digest, wakeup=wakeup if wakeup is not None else asyncio.Event())
        self.queue.join(waiter, caller=caller, priority=priority, limit=limit, now=self.clock())
        self.changed()
        return waiter

    def leave(self, waiter: Waiter) -> None:
        """Leave the queue, and release the pod if the waiter already has one."""
        self.queue.leave(waiter)
        if waiter.future.done() and not waiter.future.cancelled():
            self.release(waiter.future.result())
        waiter.future.cancel()
        self.changed()

    def release(self, pod: Pod) -> None:
        """Release a pod that was taken and not used. If it is lost, the controller deletes it."""
        self.uses.cancel(pod)
        if self.pods.release(pod):
            self._serve_queue()
        if pod.state is PodState.OWNED:
            self._serve_owner(pod.use.owner)
        self.changed()

    def give_back(self, pod: Pod) -> bool:
        """Give a clean pod to the next waiting execution of its owner, or keep it. Return False if it must be deleted.

        If the pool is full and others wait, an owner that has more than its share gives its place up.
        """
        now, spec = self.clock(), self.shape.spec
        self.uses.end(pod, now=now)
        if spec is None or self.reuse.reason_to_end(pod, now=now):
            return False
        if not self.sharing.may_keep(pod, spec, now=now) or not self.pods.keep_owned(pod, now=now):
            return False
        if self.counts.owned == 1:
            self.changed()  # from now on, limits are checked
        self._serve_owner(pod.use.owner)
        return True

    def mark_ready(self, name: str, *, protocol: int = PROTOCOLS[-1]) -> Pod | None:
        """Make a pod warm after its supervisor answered, and give it to the first waiting execution."""
        known = self.pods.get(name)
        first = known is not None and known.start.created_here and not known.start.ready_at
        pod = self.pods.mark_ready(name, now=self.clock())
        if pod is not None:
            if first:
                self.supply.autoscaler.demand.add_startup(pod.start.ready_at - pod.start.since)
                self.health.record_start()
            if pod.seen.template == self.shape.template_hash:
                self.supply.protocol = protocol
            self._mark_overtaken(pod)
            self.supply.succeed()
            self._serve_queue()
            self.changed()
        return pod

    def recheck_node(self, node: str) -> None:
        """Check the pods on a node after the node changed."""
        self.pods.recheck_node(node, now=self.clock())
        self.changed()

    def note_stranger(self, item: Object) -> bool:
        """Record a pod that no operator created. Return whether it is new."""
        name, uid = str(item["metadata"]["name"]), str(item["metadata"]["uid"])
        new = not self.isolation.knows_stranger(name, uid)
        if self.isolation.add_stranger(name, uid):
            self.changed()
        return new

    def refill_now(self) -> None:
        """Create missing pods without delay, and retry a full quota, because a pod has ended or is about to."""
        self.supply.refill_now()
        self.changed()

    def require_warm(self, count: int) -> None:
        """Set the warm pods that rollouts need at least, whatever the demand."""
        if count != self.supply.autoscaler.required:
            self.supply.autoscaler.required = count
            self.changed()

    def explain_shortage(self) -> PodProblem:
        """Return why no pod is available."""
        shape, supply = self.shape, self.supply
        if shape.body is None:
            return PodProblem(reason=Reason.POOL_NOT_FOUND, message=f"there is no pool {self.name}")
        problem = (
            shape.invalid
            or self.isolation.problem
            or explain_shortage(
                counts=self.counts,
                waiting=len(self.queue),
                max_pods=shape.spec.max_pods if shape.spec is not None else None,
                starting=self.pods.first_problem,
                refusal=supply.refusal,
                failure=supply.failure,
            )
        )
        return self.session_pods.explain(problem)

    def plan_pods(self, *, now: float, max_create: int) -> PodPlan:
        """Decide how many pods should be warm, plan which to create and delete, and store the plan.

        `max_create` may be created now.
        """
        spec = self.shape.spec
        assert spec is not None  # noqa: S101 - a pool without a spec is not planned
        self._update_reviews(now)
        return self.supply.plan_pods(
            spec,
            pods=self.pods,
            reviews=self.reviews,
            waiting=len(self.queue),
            unserved=self.uses.update_unserved(self.queue, limits=self.shape.reuse, now=now),
            may_create=self.isolation.verified,
            max_create=max_create,
            now=now,
        )

    def reconsider_after(self) -> float | None:
        """Return the seconds until time may change how many pods should be warm, or None."""
        spec = self.shape.spec
        return self.supply.autoscaler.reconsider_after(spec) if spec is not None else None

    def review(self, now: float) -> list[PodReview]:
        """Review the pods that have changed or whose time has come. Return what is to be done, each once."""
        self._update_reviews(now)
        return self.reviews.pop_open()

    def late_pods(self, now: float) -> list[Pod]:
        """Return the pods that take much longer to start than others."""
        self._update_reviews(now)
        return self.reviews.list_late()

    def _update_reviews(self, now: float) -> None:
        spec = self.shape.spec
        rules = ReviewRules(
            identity=self.identity,
            isolated=self.isolation.verified,
            reuse=self.reuse,
            max_idle_age=spec.max_idle_age_seconds if spec is not None else None,
            keys=tuple(self.keys) if self.keys is not None else (),
            times=self.times,
            usual_startup=self.supply.autoscaler.demand.usual_startup_seconds,
        )
        self.reviews.update(rules, now=now)

    def _mark_overtaken(self, ready: Pod) -> None:
        late = self.late_pods(ready.start.ready_at)
        usual, at = self.supply.autoscaler.demand.usual_startup_seconds, ready.start.ready_at
        for pod in overtaken_pods(late, by=ready, usual_startup=usual, now=at, moment=utc_now()) if late else ():
            pod.delay.overtaken_at = at
            self.pods.touch(pod)

    def _serve_queue(self) -> None:
        while self.queue and (pod := self.pods.take()) is not None:
            now = self.clock()
            waiter = self.queue.pop(now)
            if waiter.owner:
                self.supply.autoscaler.demand.add_arrival(now, warm=False)
            self._serve(waiter, pod, now)

    def _serve_owner(self, owner: str) -> None:
        """Give idle pods of an owner to its waiting executions."""
        while self.queue.first_of(owner) is not None and (pod := self.pods.take_owned(owner)) is not None:
            now = self.clock()
            waiter = self.queue.pop_of(owner, now)
            self.supply.autoscaler.demand.add_reuse(now)
            self._serve(waiter, pod, now)

    def _serve(self, waiter: Waiter, pod: Pod, now: float) -> None:
        if waiter.owner:
            self.uses.begin(pod, owner=waiter.owner, now=now)
        waiter.future.set_result(pod)
        waiter.changed()
