"""One pool in memory: its spec, its pods, the executions that wait for one, and why they wait. No I/O."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic

from pydantic import ValidationError

from mcp_exec_api.code_execution import Priority, Reason
from mcp_exec_api.constants import DEFAULT_MAX_QUEUED
from mcp_exec_api.meta import field_errors
from mcp_exec_api.sandbox_pool import SandboxPoolSpec
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.util.backoff import Backoff
from mcp_exec_operator.pods.cache import Pod, PodCache, PodState
from mcp_exec_operator.pods.manifest import PoolIdentity, template_hash
from mcp_exec_operator.pods.nodes import NodeCache
from mcp_exec_operator.pods.status import PodProblem
from mcp_exec_operator.pools.pool import WarmPool
from mcp_exec_operator.pools.shortage import starting_problem_of, why_not
from mcp_exec_operator.queueing.wait_queue import Waiter, WaitQueue
from mcp_exec_operator.scaling.autoscaler import Autoscaler
from mcp_exec_operator.scaling.outdated import OutdatedPods
from mcp_exec_operator.scaling.plan import Stock
from mcp_exec_operator.scaling.stragglers import Stragglers


@dataclass(kw_only=True, eq=False)
class Partition:
    """A pool and all that is known of it. `kicked` is set whenever its keeper should look at it."""

    namespace: str
    name: str
    variant: str = ""
    """The variant whose pods these are, where this is a part of a pool that has variants."""
    mixture: WarmPool = field(init=False)
    """All parts of the pool, this one too."""
    allotted: int | None = None
    """How many of the pool's desired pods are this part's; None where it has no other parts."""
    held: int = 0
    """Warm pods beyond those that stay until other parts have theirs."""
    uid: str = ""
    generation: int = 0
    spec: SandboxPoolSpec | None = None
    """The spec, or None where there is no such pool or its spec is no good."""
    template: str = ""
    """The hash of the pods that the spec asks for."""
    newest: Object | None = None
    """The pool's object as last seen."""
    invalid: PodProblem | None = None
    """What is wrong with the spec."""
    exposed: PodProblem | None = None
    """Why its NetworkPolicy could not be verified."""
    isolated: bool = False
    """Whether its NetworkPolicy was seen to stand."""
    refusal: PodProblem | None = None
    """Why the API server refused its last pod."""
    failure: PodProblem | None = None
    """Why its last pod that failed did so."""
    refused_fields: tuple[str, ...] = ()
    """What its template asks for in vain."""
    nodes: NodeCache = field(default_factory=NodeCache)
    inventory: PodCache = field(init=False)
    scaler: Autoscaler = field(default_factory=Autoscaler)
    clock: Callable[[], float] = monotonic
    waiters: WaitQueue = field(default_factory=WaitQueue)
    served_at: float = 0.0
    """When the last of those who wait got a pod: while the queue moves, nobody in it has waited too long."""
    backoff: Backoff = field(default_factory=Backoff)
    kicked: asyncio.Event = field(default_factory=asyncio.Event)
    lacking_since: float | None = None
    """Since when fewer pods are warm than should be, or None while enough are."""
    lookout: OutdatedPods = field(init=False)
    stock: Stock = field(init=False)
    """Which pods are to be made and ended."""
    stragglers: Stragglers = field(init=False)
    """Which pods take far longer to start than others."""

    def __post_init__(self) -> None:
        self.inventory = PodCache(trusts=self.nodes.trusts)
        self.lookout = OutdatedPods(nodes=self.nodes)
        self.stock = Stock(pool=self)
        self.stragglers = Stragglers(pool=self)
        self.mixture = WarmPool(base=self, make=self._make_part)

    def _make_part(self, variant: str) -> "Partition":
        part = Partition(namespace=self.namespace, name=self.name, variant=variant, nodes=self.nodes, clock=self.clock)
        part.mixture, part.scaler = self.mixture, self.scaler
        return part

    @property
    def identity(self) -> PoolIdentity:
        """What its pods refer to."""
        return PoolIdentity(namespace=self.namespace, name=self.name, uid=self.uid)

    @property
    def open(self) -> bool:
        """Whether its pods are for anybody: not those of a variant that is out of rotation."""
        return self.mixture.is_open(self)

    @property
    def max_pods(self) -> int:
        """Pods that it may have in all, beside those of the pool's other parts."""
        return self.spec.max_pods - self.mixture.elsewhere(self) if self.spec is not None else 0

    @property
    def desired(self) -> int:
        """Pods of this part that should be warm or on their way, as last decided."""
        return self.total_desired if self.allotted is None else self.allotted

    @property
    def total_desired(self) -> int:
        """The same of all parts."""
        if self.spec is None:
            return 0
        decision = self.scaler.decision
        return decision.desired if decision is not None and self.spec.follows_demand else self.spec.warm.min

    @property
    def standing(self) -> int:
        """Pods that should be warm now: of the desired ones, those that are used while they are replaced may start."""
        decision = self.scaler.decision
        expected = decision.expected * self.desired // max(1, decision.desired) if decision else 0
        return self.desired - min(self.inventory.counts.coming, expected)

    @property
    def lacking(self) -> bool:
        """Whether fewer pods are warm than should be."""
        return self.inventory.counts.warm < self.standing

    def configure(self, body: Object) -> None:
        """Takes in the pool's object."""
        meta = body["metadata"]
        same = self.newest is not None and meta["uid"] == self.uid
        if same and int(meta.get("generation", 0)) < self.generation:
            return  # a list that was begun before the last change
        if same and meta.get("generation") == self.generation:
            self.newest = body
            self.mixture.heed(body)
            return
        if meta["uid"] != self.uid:
            self.isolated = False
            self.scaler.remember(body.get("status") or {}, self.clock())
            self.mixture.remember(body.get("status") or {})
        self.newest, self.uid, self.generation = body, meta["uid"], int(meta.get("generation", 0))
        self.spec, self.invalid = None, None
        self.refusal = self.failure = None
        self.lookout.look_at = 0.0
        self.backoff.succeed()
        try:
            spec = SandboxPoolSpec.model_validate(body.get("spec") or {})
            self.template = template_hash(spec)
            self.spec = spec
            self.scaler.configure(spec)
        except ValidationError as error:
            text = "; ".join(f"{found.field}: {found.message}" for found in field_errors(error))
            self.invalid = PodProblem(reason=Reason.POOL_UNAVAILABLE, message=f"the pool's spec is invalid: {text}")
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            self.invalid = PodProblem(
                reason=Reason.POOL_UNAVAILABLE, message=f"the pool's template is invalid: {error}"
            )
        self.mixture.configure()
        self.mixture.heed(body)
        self.kicked.set()

    def remove(self) -> None:
        """The pool was deleted: its idle pods are deleted with it, by Kubernetes, and are no longer used."""
        self.newest, self.spec, self.isolated = None, None, False
        for pod in self.inventory.all(PodState.CREATING, PodState.STARTING, PodState.WARM, PodState.UNFIT):
            self.inventory.retire(pod)
        if not self.variant:
            self.mixture.remove()
        self.kicked.set()

    def take(self) -> Pod | None:
        """A warm pod, at once, if there is one and nobody waits for it."""
        if self.spec is None or self.waiters:
            return None
        pod = self.inventory.take()
        if pod is not None:
            self.scaler.demand.arrived(self.clock(), warm=True)
            self.kicked.set()
        return pod

    def wait(self, *, caller: str = "", priority: Priority = Priority.NORMAL) -> Waiter:
        """Joins the queue for a pod, where there was none to take. Raises QueueFull."""
        self.scaler.demand.arrived(self.clock(), warm=False)
        waiter = Waiter(future=asyncio.get_running_loop().create_future())
        most = DEFAULT_MAX_QUEUED if self.spec is None else self.spec.max_queued
        most -= self.mixture.queued - len(self.waiters)
        self.waiters.join(waiter, caller=caller, priority=priority, most=most, now=self.clock())
        self.kicked.set()
        return waiter

    def leave(self, waiter: Waiter) -> None:
        """Leaves the queue; a pod that was already handed over goes back."""
        self.waiters.leave(waiter)
        if waiter.future.done() and not waiter.future.cancelled():
            self.put_back(waiter.future.result())
        waiter.future.cancel()
        self.kicked.set()

    def became_ready(self, name: str) -> Pod | None:
        """A pod's supervisor answered: the pod goes to who waits first, or stands warm."""
        known = self.inventory.get(name)
        first = known is not None and known.asked_for and not known.ready_at
        pod = self.inventory.ready(name, now=self.clock())
        if pod is not None:
            if first:
                self.scaler.demand.started(pod.ready_at - pod.since)
                self.mixture.record(self.variant).started()
            self.stragglers.overtake(pod, pod.ready_at)
            self.backoff.succeed()
            self.failure = None
            self._serve()
            self.kicked.set()
        return pod

    def put_back(self, pod: Pod) -> None:
        """A pod that was taken and not used; where it is lost meanwhile, the keeper ends it."""
        if self.inventory.put_back(pod):
            self._serve()
        self.kicked.set()

    def node_changed(self, node: str) -> None:
        """A node was lost, is back, or is to be left."""
        self.inventory.node_changed(node, now=self.clock())
        self.lookout.look_at = 0.0
        self.kicked.set()

    def room_was_made(self) -> None:
        """A pod has ended, or is about to: what is short may be made now, and a full quota tried again."""
        for part in self.mixture:
            part.stock.hurried = True
            if part.refusal is not None and part.refusal.reason is Reason.QUOTA_EXCEEDED:
                part.backoff.until = 0.0
            part.kicked.set()

    def decide(self, now: float) -> None:
        """Decides how many pods should be warm."""
        self.mixture.decide(now)

    def note_warmth(self, now: float) -> None:
        """Remembers since when pods are lacking."""
        if not self.lacking:
            self.lacking_since = None
        elif self.lacking_since is None:
            self.lacking_since = now

    def look_in(self) -> float | None:
        """Seconds until time alone may change how many pods should be warm, or None where it can't."""
        return self.scaler.look_in(self.spec) if self.spec is not None and not self.variant else None

    def why_not(self) -> PodProblem:
        """Why no pod is to be had."""
        return why_not(self)

    def starting_problem(self) -> PodProblem | None:
        """What keeps the first of its starting pods from becoming ready, if anything does."""
        return starting_problem_of(self.inventory.all(PodState.STARTING))

    def _serve(self) -> None:
        while self.waiters and (pod := self.inventory.take()) is not None:
            self.served_at = self.clock()
            waiter = self.waiters.pop(self.served_at)
            waiter.future.set_result(pod)
            waiter.woken.set()
