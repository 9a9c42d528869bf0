"""The pods of one template within a pool, their queue and their failures. No I/O."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic

from mcp_exec_api.code_execution import Priority
from mcp_exec_api.meta import now as utc_now
from mcp_exec_api.owner import Owner
from mcp_exec_api.reasons.execution import Reason
from mcp_exec_api.sandbox_pool import OnEmpty, SandboxPoolSpec
from mcp_exec_common.util.backoff import Backoff
from mcp_exec_operator.pods.cache import Pod, PodCache, PodState
from mcp_exec_operator.pods.nodes import NodeCache
from mcp_exec_operator.pods.scan import PeriodicScan
from mcp_exec_operator.pods.status import PodProblem
from mcp_exec_operator.pools.libraries import PoolLibraries
from mcp_exec_operator.pools.reuse import OwnerShares, ReuseRules, max_idle_pods
from mcp_exec_operator.pools.shortage import first_starting_problem
from mcp_exec_operator.queueing.wait_queue import Waiter, WaitQueue
from mcp_exec_operator.scaling.demand import Demand
from mcp_exec_operator.scaling.plan import PartitionState, PodPlan, plan_pods
from mcp_exec_operator.scaling.returns import Unserved, UseTime, find_unserved
from mcp_exec_operator.scaling.rollout import OutdatedPod, outdated_pods
from mcp_exec_operator.scaling.stragglers import late_pods, overtaken_pods, should_run
from mcp_exec_operator.variants.allocation import Allocation, PartitionLoad
from mcp_exec_operator.variants.outlier_detection import VariantHealth


@dataclass(kw_only=True, eq=False)
class Partition:
    """The pods of one variant, or of the pool itself. `wakeup` is set when the pool's controller should reconcile."""

    namespace: str
    name: str
    """Name of the pool."""
    variant: str = ""
    """Name of the variant. Empty for the base partition."""
    nodes: NodeCache = field(default_factory=NodeCache)
    demand: Demand = field(default_factory=Demand)
    """Demand for the pool, shared by its partitions."""
    libraries: PoolLibraries = field(default_factory=lambda: PoolLibraries(pool=""))
    """Libraries of the pool, shared by its partitions."""
    wakeup: asyncio.Event = field(default_factory=asyncio.Event)
    """Shared by the partitions of the pool."""
    clock: Callable[[], float] = monotonic
    is_full: Callable[[], bool] = lambda: False
    """Returns whether the pool has all pods that it may have."""
    spec: SandboxPoolSpec | None = None
    """Spec of the variant, or None if the pool does not exist or its spec is invalid."""
    template_hash: str = ""
    """Hash of the template that the spec asks for."""
    allocation: Allocation = field(default_factory=Allocation)
    """Written by the pool."""
    pods: PodCache = field(init=False)
    queue: WaitQueue = field(default_factory=WaitQueue)
    served_at: float = 0.0
    """Time at which the last waiting execution got a pod: no execution times out in a queue that moves."""
    health: VariantHealth = field(default_factory=VariantHealth)
    create_backoff: Backoff = field(default_factory=Backoff)
    refusal: PodProblem | None = None
    """Why the API server refused the last pod."""
    failure: PodProblem | None = None
    """Why the last failed pod failed."""
    changed_fields: tuple[str, ...] = ()
    """Fields in which the last created pod differed from the requested one."""
    refused_fields: tuple[str, ...] = ()
    """Fields of the template that its pods do not have."""
    lacking_since: float | None = None
    """Time since which fewer pods are warm than required, or None if enough are."""
    refill_now: bool = False
    """Whether missing pods are created without delay, because a pod has ended."""
    plan: PodPlan = field(default_factory=PodPlan)
    """The last plan."""
    unserved: Unserved = field(default_factory=Unserved)
    """Waiting executions that need a new pod, as of the last `update_unserved`."""
    use_time: UseTime = field(default_factory=UseTime)
    refilled_at: float = 0.0
    """Time at which a pod was last created for it ahead of demand."""
    _outdated: PeriodicScan[OutdatedPod] = field(default_factory=PeriodicScan)
    _late: PeriodicScan[Pod] = field(default_factory=PeriodicScan)
    _shares: PeriodicScan[OwnerShares] = field(default_factory=PeriodicScan)
    _over: PeriodicScan[Pod] = field(default_factory=PeriodicScan)

    def __post_init__(self) -> None:
        self.pods = PodCache(is_trusted_node=self.nodes.is_trusted)

    @property
    def lacking(self) -> bool:
        """Whether fewer pods are warm than required."""
        counts = self.pods.counts
        return counts.warm < self.allocation.required_warm(counts)

    @property
    def over_quota(self) -> bool:
        """Whether a quota refused the last pod."""
        return self.refusal is not None and self.refusal.reason is Reason.QUOTA_EXCEEDED

    @property
    def load(self) -> PartitionLoad:
        """The values that its allocation depends on."""
        return PartitionLoad(
            variant=self.variant,
            counts=self.pods.counts,
            waiting=self.unserved.number,
            accepting=self.allocation.accepting,
            over_quota=self.over_quota,
        )

    @property
    def reuse(self) -> ReuseRules:
        """What ends the life of its used pods."""
        return ReuseRules(spec=self.spec, template_hash=self.template_hash, nodes=self.nodes)

    def configure(self, spec: SandboxPoolSpec | None, *, template_hash: str) -> None:
        """Apply a spec and forget the failures of the last one."""
        self.spec, self.template_hash = spec, template_hash
        self.refusal = self.failure = None
        self.changed_fields = ()
        self.create_backoff.succeed()
        self._outdated.expire()
        self._over.expire()
        if spec is None:
            self.plan = PodPlan()

    def retire_idle(self) -> None:
        """Stop using the idle pods of a deleted pool. Kubernetes deletes them with it."""
        idle = (PodState.CREATING, PodState.STARTING, PodState.WARM, PodState.NOT_READY, PodState.OWNED)
        for pod in self.pods.all(*idle):
            self.pods.retire(pod)

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

    def wait(
        self, *, caller: str = "", priority: Priority = Priority.NORMAL, limit: int, owner: Owner | None = None
    ) -> Waiter:
        """Join the queue after `take` returned no pod. Raises QueueFull if `limit` executions wait already.

        With an owner, the waiter may also get a pod that the owner gives back.
        """
        digest = owner.digest if owner is not None else ""
        if not digest:  # else it is demand for a new pod only if it gets one
            self.demand.add_arrival(self.clock(), warm=False)
        waiter = Waiter(future=asyncio.get_running_loop().create_future(), owner=digest)
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
        if self.reuse.reason_to_end(pod, now=now) or self._must_give_up(pod, now) or not self._may_keep(pod):
            return False
        if not self.pods.keep_owned(pod, now=now):
            return False
        if self.pods.counts.owned == 1:
            self.wakeup.set()  # from now on, limits are checked
        self._serve_owner(pod.owner)
        return True

    def update_unserved(self, now: float) -> None:
        """Count the waiting executions that need a new pod, because none of their owner comes back soon."""
        limits = self.reuse.limits
        if limits is None or not self.queue:
            self.unserved = Unserved(number=len(self.queue))
            return
        busy = [pod for pod in self.pods.all(PodState.BUSY) if pod.uses < limits.max_uses]
        self.unserved = find_unserved(self.queue.count_by_owner(), busy, use_time=self.use_time, now=now)

    def pods_to_end(self, now: float) -> list[Pod]:
        """Return the idle owned pods that must not be kept any longer."""
        rules = self.reuse
        ended = self._over.get(
            now,
            lambda: [
                pod
                for pod in self.pods.all(PodState.OWNED)
                if not self.pods.is_usable(pod) or rules.reason_to_end_idle(pod, now=now)
            ],
        )
        return [pod for pod in ended if pod.state is PodState.OWNED]

    def mark_ready(self, name: str) -> Pod | None:
        """Make a pod warm after its supervisor answered, and give it to the first waiting execution."""
        known = self.pods.get(name)
        first = known is not None and known.created_here and not known.ready_at
        pod = self.pods.mark_ready(name, now=self.clock())
        if pod is not None:
            if first:
                self.demand.add_startup(pod.ready_at - pod.since)
                self.health.record_start()
            self._mark_overtaken(pod)
            self.create_backoff.succeed()
            self.failure = None
            self._serve_queue()
            self.wakeup.set()
        return pod

    def recheck_node(self, node: str) -> None:
        """Check the pods on a node after the node changed."""
        self.pods.recheck_node(node, now=self.clock())
        self._outdated.expire()
        self._over.expire()
        self.wakeup.set()

    def plan_pods(self, *, now: float, max_pods: int, max_create: int, may_create: bool, tokens: int | None) -> PodPlan:
        """Plan which pods to create and delete, and store the plan.

        `max_pods` may exist in total, `max_create` may be created now, `tokens` of them ahead of demand.
        """
        assert self.spec is not None  # noqa: S101 - a pool without a spec is not planned
        outdated, unserved = self._find_outdated(now), self.unserved.number
        owned = self.pods.counts.owned
        cold = self.spec.on_empty is OnEmpty.COLD_START and self.allocation.accepting
        self.plan = plan_pods(
            PartitionState(
                pods=self.pods,
                template_hash=self.template_hash,
                desired=self.allocation.desired,
                retained=self.allocation.retained,
                starting_allowance=self.allocation.starting_allowance,
                max_pods=max_pods,
                waiting=len(self.queue),
                unserved=unserved,
                cold_starts=unserved if cold else 0,
                outdated=outdated,
                late=self.late_pods(now),
                blocked=self._blocking_message() if outdated or owned else "",
                may_create=may_create,
                max_create=max_create,
                missing_since=self.plan.missing_since,
                refill_now=self.refill_now,
                refill_tokens=tokens,
                backoff_until=self.create_backoff.until,
                probing=bool(self.create_backoff.failures),
            ),
            now=now,
        )
        if self.plan.missing_since is None:
            self.refill_now = False
        return self.plan

    def late_pods(self, now: float) -> list[Pod]:
        """Return the pods that take much longer to start than others."""
        usual = self.demand.usual_startup_seconds
        found = self._late.get(
            now,
            lambda: late_pods(self.pods.all(PodState.STARTING), usual_startup=usual, now=now, moment=utc_now()),
        )
        return [pod for pod in found if should_run(pod)]

    def update_lacking(self, now: float) -> None:
        """Record since when pods are lacking."""
        if not self.lacking:
            self.lacking_since = None
        elif self.lacking_since is None:
            self.lacking_since = now

    def starting_problem(self) -> PodProblem | None:
        """Return why its pods do not become ready, or None if nothing is known."""
        return first_starting_problem(self.pods.all(PodState.STARTING))

    def _find_outdated(self, now: float) -> list[OutdatedPod]:
        max_age = self.spec.max_idle_age_seconds if self.spec is not None else None
        found = self._outdated.get(
            now,
            lambda: outdated_pods(
                self.pods.all(PodState.WARM),
                template_hash=self.template_hash,
                max_age=max_age,
                nodes=self.nodes,
                now=now,
                moment=utc_now(),
            ),
        )
        return [each for each in found if each.pod.state is PodState.WARM]

    def _mark_overtaken(self, ready: Pod) -> None:
        late = self.late_pods(ready.ready_at)
        usual, at = self.demand.usual_startup_seconds, ready.ready_at
        for pod in overtaken_pods(late, by=ready, usual_startup=usual, now=at, moment=utc_now()) if late else ():
            pod.overtaken_at = at

    def _blocking_message(self) -> str:
        """Return why no further pod becomes warm although the pool may have more, or an empty string."""
        if self.over_quota and self.refusal is not None:
            return self.refusal.message
        problem = self.starting_problem()
        return problem.message if problem is not None and problem.reason is Reason.UNSCHEDULABLE else ""

    def _serve_queue(self) -> None:
        while self.queue and (pod := self.pods.take()) is not None:
            self.served_at = self.clock()
            waiter = self.queue.pop(self.served_at)
            if waiter.owner:
                self.demand.add_arrival(self.served_at, warm=False)
            self._mark_taken(pod, waiter.owner)
            waiter.future.set_result(pod)
            waiter.wakeup.set()

    def _serve_owner(self, owner: str) -> None:
        """Give idle pods of an owner to its waiting executions."""
        while self.queue.first_of(owner) is not None and (pod := self.pods.take_owned(owner)) is not None:
            self.served_at = self.clock()
            waiter = self.queue.pop_of(owner, self.served_at)
            self.demand.add_reuse(self.served_at)
            self._mark_taken(pod, owner)
            waiter.future.set_result(pod)
            waiter.wakeup.set()

    def _mark_taken(self, pod: Pod, owner: str) -> None:
        pod.taken_by, pod.taken_at = owner, self.clock()

    def _may_keep(self, pod: Pod) -> bool:
        """Return whether the owner waits for the pod or may have one more idle pod."""
        assert self.spec is not None  # noqa: S101 - it reuses pods
        is_awaited = self.queue.first_of(pod.owner) is not None
        return is_awaited or self.pods.count_owned(pod.owner) < max_idle_pods(self.spec)

    def _must_give_up(self, pod: Pod, now: float) -> bool:
        """Return whether the place of a given-back pod is due to others, who wait for pods that do not come."""
        own, counts = self.queue.first_of(pod.owner), self.pods.counts
        if len(self.queue) <= counts.coming + counts.terminating or not self.is_full():
            return False
        if own is None:
            return True
        first = self.queue.peek()
        if first.priority.rank < own.priority.rank and first.owner != pod.owner:
            return True
        places = self.spec.max_pods if self.spec is not None else 0
        pods, waiters = self.pods, self.queue.waiters()
        shares = self._shares.get(
            now, lambda: [OwnerShares.count(pods.all(PodState.BUSY, PodState.OWNED), waiters, places=places)]
        )[0]
        # the caller of an owner never changes, and that of a pod which an earlier operator left is unknown
        if not shares.exceeds(own.caller, pod.owner):
            return False
        shares.give_up(own.caller, pod.owner)
        return True
