"""Pods that are used again: the limits of their lives, who has them, and which places owners give up. No I/O."""

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from mcp_exec_api.meta import now as utc_now
from mcp_exec_api.sandbox_pool import Reuse, SandboxPoolSpec
from mcp_exec_operator.core.pods.cache import PodCache
from mcp_exec_operator.core.pods.nodes import NodeCache
from mcp_exec_operator.core.pods.pod import Pod, PodState
from mcp_exec_operator.core.pods.status import tolerations_of
from mcp_exec_operator.core.queueing.wait_queue import Waiter, WaitQueue
from mcp_exec_operator.core.scaling.demand import SHORT_WAIT_SECONDS, Unserved, UseTime, find_unserved

_SPARE_IDLE_SECONDS: Final = 60.0
"""Idle time of an owner's pod before it gives way to nobody in particular. With less, owners that take turns in a
pool of as many places would always find their pods deleted."""
_SHARES_SECONDS: Final = 1.0
"""How long counted shares of owners are used."""
_IDLE_DIVISOR: Final = 2
"""The idle pods of one owner are at most this part of `maxPods`."""


def max_idle_pods(spec: SandboxPoolSpec) -> int:
    """Return how many idle pods are kept for one owner."""
    return max(1, spec.max_pods // _IDLE_DIVISOR)


@dataclass(frozen=True, kw_only=True)
class ReuseRules:
    """What ends the life of a used pod. Times are seconds of a monotonic clock."""

    limits: Reuse | None
    """The pool's limits; None if its pods are not used again."""
    template_hash: str
    nodes: NodeCache

    def reason_to_end(self, pod: Pod, *, now: float) -> str:
        """Return why a pod must not serve another execution, or an empty string."""
        limits = self.limits
        if limits is None:
            return "the pool does not reuse pods"
        if not pod.use.owner:
            return "it has no owner"
        if pod.use.count >= limits.max_uses:
            return "maxUses are reached"
        if now - pod.use.owned_since >= limits.max_age_seconds:
            return "maxAgeSeconds have passed"
        if pod.seen.template != self.template_hash:
            return "the pool's template has changed"
        return self.nodes.reason_to_leave(pod.seen.node, tolerations_of(pod.seen.body))

    def reason_to_end_idle(self, pod: Pod, *, now: float) -> str:
        """Return why an idle pod must not be kept for its owner any longer, or an empty string."""
        limits = self.limits
        if limits is not None and now - pod.use.idle_since >= limits.idle_seconds:
            return "idleSeconds have passed"
        return self.reason_to_end(pod, now=now)


@dataclass(kw_only=True, eq=False)
class PodUses:
    """The latest uses of one pool's pods. Times are seconds of a monotonic clock."""

    unserved: Unserved = field(default_factory=Unserved)
    """Waiting executions that need a new pod, as of the last update."""
    _time: UseTime = field(default_factory=UseTime)
    _taken: OrderedDict[str, Pod] = field(default_factory=OrderedDict)
    """Pods by name that owners have taken within a short wait, the latest last."""

    def begin(self, pod: Pod, *, owner: str, now: float) -> None:
        """Record that an execution of an owner has taken a pod, which is used again."""
        pod.use.taken_by, pod.use.taken_at = owner, now
        self._taken[pod.name] = pod
        self._taken.move_to_end(pod.name)

    def cancel(self, pod: Pod) -> None:
        """Record that a pod was not used."""
        pod.use.taken_by = ""
        self._taken.pop(pod.name, None)

    def end(self, pod: Pod, *, now: float) -> None:
        """Record that a pod is clean after a use."""
        if pod.use.taken_by:
            self._time.add(now - pod.use.taken_at)

    def update_unserved(self, queue: WaitQueue, *, limits: Reuse | None, now: float) -> int:
        """Return how many waiting executions need a new pod, because none of their owner comes back soon.

        `limits` are None if pods are used once.
        """
        while self._taken and now - next(iter(self._taken.values())).use.taken_at >= SHORT_WAIT_SECONDS:
            self._taken.popitem(last=False)
        if limits is None or not queue:
            self.unserved = Unserved(number=len(queue))
        else:
            busy = [
                pod
                for pod in self._taken.values()
                if pod.state is PodState.BUSY and not pod.gone and pod.use.count < limits.max_uses
            ]
            self.unserved = find_unserved(queue.count_by_owner(), busy, use_time=self._time, now=now)
        return self.unserved.number


def find_spare_pods(pods: PodCache, *, short: int, stuck: int, max_pods: int, now: float) -> list[Pod]:
    """Return idle pods of owners that give up their places, the least recently used first.

    `short` pods are missing and have no place. If none are, but a new owner would first wait for the end of an idle
    pod and then for the start of its own, one pod gives way. The only idle pod is kept: in a pool of one place, no pod
    would ever be used again. `stuck` pods are terminating and take room for an unknown time.
    """
    counts = pods.counts
    on_the_way = counts.warm + counts.coming + counts.terminating - stuck
    is_tight = counts.owned > 1 and counts.total >= max_pods and not on_the_way
    if not short and not is_tight:
        return []
    owned = pods.first(PodState.OWNED, short or 1)
    return owned if short else [pod for pod in owned if now - pod.use.idle_since >= _SPARE_IDLE_SECONDS]


@dataclass(kw_only=True, eq=False)
class OwnerShares:
    """Pods that callers and owners hold in a full pool, and the executions of each that wait.

    Callers share the pods equally, and the owners of one caller share the caller's: an owner is a caller and a user,
    and callers choose their users.
    """

    places: int
    """Pods that the pool may have."""
    held: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By caller and owner."""
    waiting: Counter[tuple[str, str]] = field(default_factory=Counter)

    @classmethod
    def count(cls, pods: Iterable[Pod], waiters: Iterable[Waiter], *, places: int) -> "OwnerShares":
        """Return the shares of the pods that have an owner and of those that wait."""
        waiting = Counter((waiter.caller, waiter.owner) for waiter in waiters)
        callers = {owner: caller for caller, owner in waiting}
        # the caller of a pod that an earlier operator left is unknown until its owner asks for it
        held = Counter((callers.get(pod.use.owner, pod.use.caller), pod.use.owner) for pod in pods if pod.use.owner)
        return cls(places=places, held=held, waiting=waiting)

    def exceeds(self, caller: str, owner: str) -> bool:
        """Return whether an owner has more than its share while others wait, so that it should give up a pod."""
        owners: defaultdict[str, set[str]] = defaultdict(set)
        for each, of_caller in [*self.held, *self.waiting]:
            owners[each].add(of_caller)
        share = self.places / max(1, len(owners))
        held = sum(number for (each, _), number in self.held.items() if each == caller)
        if held > share and any(each != caller for each, _ in self.waiting):
            return True
        others = any(each == caller and other != owner for each, other in self.waiting)
        return others and self.held[caller, owner] > share / max(1, len(owners[caller]))

    def give_up(self, caller: str, owner: str) -> None:
        """Count a pod that is deleted."""
        self.held[caller, owner] -= 1


@dataclass(kw_only=True, eq=False)
class PlaceSharing:
    """Which used pods of a full pool give up their places to others."""

    pods: PodCache
    queue: WaitQueue
    _shares: tuple[float, OwnerShares] | None = None
    """The shares that were counted last, and when."""

    def may_keep(self, pod: Pod, spec: SandboxPoolSpec, *, now: float) -> bool:
        """Return whether a given-back pod stays with its owner, which awaits it or may have one more idle pod."""
        if self._must_give_up(pod, max_pods=spec.max_pods, now=now):
            return False
        is_awaited = self.queue.first_of(pod.use.owner) is not None
        return is_awaited or self.pods.count_owned(pod.use.owner) < max_idle_pods(spec)

    def _must_give_up(self, pod: Pod, *, max_pods: int, now: float) -> bool:
        """Return whether the place of a pod is due to others, who wait for pods that do not come."""
        own, counts = self.queue.first_of(pod.use.owner), self.pods.counts
        ending = counts.terminating - self.pods.count_stuck(utc_now())
        if len(self.queue) <= counts.coming + ending or counts.total < max_pods:
            return False
        if own is None:
            return True
        first = self.queue.peek()
        if first.priority.rank < own.priority.rank and first.owner != pod.use.owner:
            return True
        shares = self._count(now, places=max_pods)
        # the caller of an owner never changes, and that of a pod which an earlier operator left is unknown
        if not shares.exceeds(own.caller, pod.use.owner):
            return False
        shares.give_up(own.caller, pod.use.owner)
        return True

    def _count(self, now: float, *, places: int) -> OwnerShares:
        """Return the shares of owners, at most a second old: this visits all used pods, but only of a full pool."""
        if self._shares is None or now - self._shares[0] >= _SHARES_SECONDS:
            pods, waiters = self.pods.all(PodState.BUSY, PodState.OWNED), self.queue.waiters()
            self._shares = now, OwnerShares.count(pods, waiters, places=places)
        return self._shares[1]
