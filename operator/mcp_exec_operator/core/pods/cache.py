"""Cache of the pods of one pool, by state. A state machine without I/O.

A pod counts from the moment the operator asks for it, before any watch event, so that no pod is created twice because
the cache lags. A taken pod is never taken again, unless its taker releases it unused.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice, takewhile
from typing import Final

from mcp_exec_common.kube.objects import Object
from mcp_exec_operator.core.pods.indexes import NEVER, NOW, OwnedPods, PodsByNode, Schedule
from mcp_exec_operator.core.pods.pod import (
    IDLE,
    LOOKED_AFTER,
    Pod,
    PodCounts,
    PodStart,
    PodState,
    PodUse,
    SeenPod,
)
from mcp_exec_operator.core.pods.status import PodProblem, is_terminating, is_unready

UNCERTAIN_SECONDS: Final = 5.0
"""How many seconds a requested pod counts that was never seen, if the API server's answer was lost."""


@dataclass(kw_only=True)
class PodCache:
    """All pods of a pool. Every operation on one pod visits no other and is O(log n)."""

    is_trusted_node: Callable[[str | None], bool] = lambda node: True
    """Whether pods on a node may be taken."""
    _pods: dict[str, Pod] = field(default_factory=dict)
    _by_state: dict[PodState, dict[str, Pod]] = field(default_factory=lambda: {each: {} for each in PodState})
    _owned: OwnedPods = field(default_factory=OwnedPods)
    _left: list[Pod] = field(default_factory=list)
    """Pods of owners that an earlier operator left and that are to be cleaned."""
    _by_node: PodsByNode = field(default_factory=PodsByNode)
    _problems: dict[str, PodProblem] = field(default_factory=dict)
    """Why starting pods do not become ready, the first that was seen first."""
    _schedule: Schedule = field(default_factory=Schedule)
    """When each pod has to be looked at again."""
    _counts: PodCounts | None = field(default_factory=PodCounts)
    """None after a change."""

    @property
    def counts(self) -> PodCounts:
        """Number of pods in each state."""
        if self._counts is None:
            self._counts = PodCounts(**{state.name.lower(): len(pods) for state, pods in self._by_state.items()})
        return self._counts

    @property
    def first_problem(self) -> PodProblem | None:
        """Why a starting pod does not become ready: the problem that was seen first, or None if none is known."""
        return next(iter(self._problems.values()), None)

    @property
    def next_at(self) -> float | None:
        """When the next pod has to be looked at, or None if no time is known."""
        return self._schedule.next_at

    def get(self, name: str) -> Pod | None:
        """Return the pod of that name, or None."""
        return self._pods.get(name)

    def all(self, *states: PodState) -> list[Pod]:
        """Return the pods in these states, or all pods; within a state, the longest in it first."""
        return [pod for state in states or PodState for pod in self._by_state[state].values()]

    def first(self, state: PodState, count: int) -> list[Pod]:
        """Return so many pods in this state, the longest in it first."""
        return list(islice(self._by_state[state].values(), count))

    def each(self, state: PodState) -> Iterator[Pod]:
        """Yield the pods in this state, the longest in it first. No pod may change meanwhile."""
        return iter(self._by_state[state].values())

    def count_stuck(self, moment: datetime) -> int:
        """Return how many terminating pods take room for an unknown time."""
        return sum(1 for _ in takewhile(lambda pod: pod.is_stuck(moment), self.each(PodState.TERMINATING)))

    def touch(self, *pods: Pod) -> None:
        """Update what is known of pods, and make them due at once, because something about them has changed."""
        for pod in pods:
            if self._pods.get(pod.name) is not pod:
                continue
            if pod.state is PodState.STARTING and (problem := pod.problem) is not None:
                self._problems[pod.name] = problem
            else:
                self._problems.pop(pod.name, None)
            self._schedule.set(pod.name, NOW if pod.state in LOOKED_AFTER else NEVER)

    def look_again(self, pod: Pod, at: float) -> None:
        """Make a pod due at a time, unless it changes earlier."""
        self._schedule.set(pod.name, at)

    def pop_due(self, now: float) -> list[Pod]:
        """Return the pods that have changed since the last call or whose time has come, once each."""
        return [self._pods[name] for name in self._schedule.pop_due(now)]

    def note_warning(self, pod: Pod, warning: str) -> None:
        """Store the newest warning Event about a pod."""
        pod.delay.warning = warning
        self.touch(pod)

    def add_expectation(self, name: str, *, template: str, now: float) -> Pod:
        """Count a pod that is about to be requested."""
        pod = Pod(
            name=name,
            state=PodState.CREATING,
            seen=SeenPod(template=template),
            start=PodStart(created_here=True, since=now, existing_since=now),
        )
        self._add(pod)
        return pod

    def confirm_created(self, name: str, *, uid: str, now: float) -> None:
        """Record that the API server created a pod as requested."""
        pod = self._pods.get(name)
        if pod is not None and pod.seen.uid not in (None, uid):
            template, since = pod.seen.template, pod.start.since
            self.forget(name)  # the events were of another pod of that name
            pod = self.add_expectation(name, template=template, now=since)
        if pod is not None:
            pod.trust.verified, pod.start.requested = True, None
            if pod.state is PodState.CREATING:
                pod.identify(uid)
                pod.start.existing_since = now
                self._move(pod, PodState.STARTING)
            self.touch(pod)

    def mark_uncertain(self, name: str, *, now: float) -> None:
        """Record that the answer to a request was lost. A list that is a little younger shows whether it exists."""
        if (pod := self._pods.get(name)) is not None and pod.state is PodState.CREATING:
            pod.start.existing_since, pod.start.expected_seconds = now, UNCERTAIN_SECONDS
            pod.start.uncertain = True

    def forget(self, name: str) -> None:
        """Drop a pod that does not exist."""
        pod = self._pods.pop(name, None)
        if pod is not None:
            del self._by_state[pod.state][name]
            self._owned.remove(name, pod.use.owner)
            self._by_node.move(pod, pod.seen.node, None)
            self._problems.pop(name, None)
            self._schedule.set(name, NEVER)
            self._counts = None
            pod.gone = True
            pod.changed()

    def observe(self, item: Object, *, now: float) -> Pod:
        """Update the cache from a pod's object of a watch or a list. Return the cached pod."""
        meta = item["metadata"]
        pod = self._pods.get(meta["name"])
        if pod is not None and pod.seen.uid not in (None, meta["uid"]):
            self.forget(pod.name)  # another pod of the same name: the old one is gone
            pod = None
        if pod is None:
            pod = _build_found(meta["name"], PodState.STARTING, now=now)
            self._add(pod)
        former_node = pod.seen.node
        pod.observe(item)
        self._by_node.move(pod, former_node, pod.seen.node)
        if pod.state is PodState.CREATING:
            pod.start.existing_since = now
            self._move(pod, PodState.STARTING)
        if pod.lost:
            pod.changed()
            if pod.state in IDLE and is_terminating(item):
                self._move(pod, PodState.TERMINATING)
        self._update_readiness(pod, now)
        self.touch(pod)
        return pod

    def recheck_node(self, node: str, *, now: float) -> None:
        """Check the readiness of all pods on a node after the node changed."""
        for pod in self._by_node.get(node):
            self._update_readiness(pod, now)
            self.touch(pod)
            pod.changed()

    def mark_ready(self, name: str, *, now: float) -> Pod | None:
        """Make a starting pod warm after its supervisor reported that it is idle. Return it if it is warm."""
        pod = self._pods.get(name)
        if pod is None or pod.state is not PodState.STARTING or pod.lost:
            return None
        pod.start.ready_at = now
        self._move(pod, PodState.WARM)
        return pod if self._update_readiness(pod, now) else None

    def take(self) -> Pod | None:
        """Take the pod that became warm last. It is busy from now on.

        The others rest, so that a pool larger than its load needs writes no seal of a pod that is about to be used.
        """
        while warm := self._by_state[PodState.WARM]:
            pod = next(reversed(warm.values()))
            # an ended pod counts as starting again, and is replaced like one that failed to start
            has_ended = pod.seen.has_ended
            self._move(pod, PodState.STARTING if has_ended else PodState.BUSY)
            if not has_ended:
                return pod
        return None

    def take_owned(self, owner: str) -> Pod | None:
        """Take the idle pod of an owner that was used last. Pods that are lost or not ready stay, to be deleted."""
        name = self._owned.newest(owner)
        pod = self._pods[name] if name is not None else None
        if pod is None or not self.is_usable(pod):
            return None
        self._move(pod, PodState.BUSY)
        return pod

    def keep_owned(self, pod: Pod, *, now: float) -> bool:
        """Keep a clean pod for its owner. Return False if it cannot be used again."""
        known = self._pods.get(pod.name) is pod and pod.state is PodState.BUSY
        if not known or not pod.use.owner or not self.is_usable(pod):
            return False
        pod.use.idle_since = now
        self._move(pod, PodState.OWNED)
        return True

    def is_usable(self, pod: Pod) -> bool:
        """Return whether a pod exists, is ready, and is on a node that may be relied on."""
        return not pod.lost and self._is_ready(pod)

    def set_aside(self, pod: Pod) -> None:
        """Count a pod that an earlier operator left for its owner as busy until it is clean: it is not warm soon."""
        if pod.use.owner and pod.state is PodState.STARTING:
            pod.use.recycling = True
            self._move(pod, PodState.BUSY)
            self._left.append(pod)

    def pop_left(self) -> list[Pod]:
        """Return the pods that were set aside since the last call and that no execution or session has."""
        left, self._left = self._left, []
        return [pod for pod in left if pod.use.recycling and not pod.gone]

    def count_owned(self, owner: str) -> int:
        """Return how many idle pods an owner has."""
        return self._owned.count(owner)

    def adopt(self, name: str, *, uid: str, now: float) -> Pod:
        """Make the pod that an execution's status names busy, whatever its state, even if it is unknown.

        If another pod has the name now, that pod is not touched, and the returned one is gone. An empty uid is that of
        a pod which an operator bound before statuses had uids.
        """
        pod = self._pods.get(name)
        if pod is not None and pod.seen.uid is not None and uid not in ("", pod.seen.uid):
            other = _build_found(name, PodState.BUSY, uid=uid, now=now)
            other.gone = True
            return other
        if pod is None:
            pod = _build_found(name, PodState.BUSY, uid=uid or None, now=now)
            self._add(pod)
        if pod.state not in (PodState.BUSY, PodState.TERMINATING):
            self._move(pod, PodState.BUSY)
        pod.use.recycling = False
        return pod

    def release(self, pod: Pod) -> bool:
        """Return a pod that its taker did not use, which is the next to be taken. Return False if it is not warm."""
        if self._pods.get(pod.name) is not pod or pod.state is not PodState.BUSY:
            return False
        if pod.use.owner:
            self._move(pod, PodState.OWNED)
            return False
        if pod.lost:
            self._move(pod, PodState.STARTING)  # as in `take`
            return False
        self._move(pod, PodState.WARM)
        return self._update_readiness(pod, pod.start.since)

    def retire(self, pod: Pod) -> bool:
        """Mark a pod that is about to be deleted. Return False if it already is."""
        if self._pods.get(pod.name) is not pod or pod.state is PodState.TERMINATING:
            return False
        self._move(pod, PodState.TERMINATING)
        return True

    def replace(self, items: Iterable[Object], *, listed_at: float, now: float) -> list[str]:
        """Update the cache from a list of all pods, requested at `listed_at`. Return the names of unknown pods.

        Pods that are not in the list are gone.
        """
        objects = list(items)
        names = {item["metadata"]["name"] for item in objects}
        unknown = [name for name in names if name not in self._pods]
        for pod in list(self._pods.values()):
            margin = pod.start.expected_seconds if pod.state is PodState.CREATING else 0.0
            if pod.name not in names and pod.start.existing_since + margin < listed_at:
                self.forget(pod.name)
        for item in objects:
            self.observe(item, now=now)
        return unknown

    def _update_readiness(self, pod: Pod, now: float) -> bool:
        """Move a pod between warm and not ready. Return whether it is warm.

        A pod that becomes ready again starts again: its supervisor is probed. One that starts on a lost node is not
        ready either, so that another is created.
        """
        if pod.state is PodState.STARTING and not self.is_trusted_node(pod.seen.node):
            self._move(pod, PodState.NOT_READY)
        if pod.state not in (PodState.WARM, PodState.NOT_READY):
            return False
        ready = self._is_ready(pod)
        if pod.state is PodState.WARM and not ready:
            self._move(pod, PodState.NOT_READY)
        elif pod.state is PodState.NOT_READY and ready:
            pod.start.since = now
            self._move(pod, PodState.STARTING)
        return pod.state is PodState.WARM

    def _is_ready(self, pod: Pod) -> bool:
        return self.is_trusted_node(pod.seen.node) and (pod.seen.body is None or not is_unready(pod.seen.body))

    def _add(self, pod: Pod) -> None:
        self._pods[pod.name] = pod
        self._by_state[pod.state][pod.name] = pod
        self._counts = None
        self.touch(pod)

    def _move(self, pod: Pod, state: PodState) -> None:
        del self._by_state[pod.state][pod.name]
        if pod.state is PodState.OWNED:
            self._owned.remove(pod.name, pod.use.owner)
        self._by_state[state][pod.name] = pod
        pod.state = state
        if state is PodState.OWNED:
            self._owned.add(pod.name, pod.use.owner)
        self._counts = None
        self.touch(pod)


def _build_found(name: str, state: PodState, *, uid: str | None = None, now: float) -> Pod:
    """Return a pod that another process has created."""
    start, use = PodStart(since=now, existing_since=now), PodUse(owned_since=now)
    return Pod(name=name, state=state, seen=SeenPod(uid=uid), start=start, use=use)
