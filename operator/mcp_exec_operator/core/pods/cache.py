"""Cache of the pods of one pool, by state. A state machine without I/O.

A pod counts from the moment the operator asks for it, before any watch event, so that no pod is created twice because
the cache lags. A taken pod is never taken again, unless its taker releases it unused.
"""

import heapq
import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice, takewhile
from typing import Final

from mcp_exec_api.constants import LABEL_STATE, LABEL_TEMPLATE
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.supervisor.tokens import read_token_digest
from mcp_exec_operator.core.pods.pod import IDLE, LOOKED_AFTER, Pod, PodCounts, PodState
from mcp_exec_operator.core.pods.status import (
    PodProblem,
    address_of,
    is_terminating,
    is_unready,
    node_of,
)

NOW: Final = -math.inf
"""The time of a pod that has changed: it is due at once, by any clock."""
NEVER: Final = math.inf
"""The time of a pod that only a change makes due."""
_SLACK: Final = 64
"""Entries that the heap may have in addition to two for each name."""


@dataclass(kw_only=True, eq=False)
class Schedule:
    """One time for each name, and the names in the order of their times. Every operation is O(log n), amortized."""

    _times: dict[str, float] = field(default_factory=dict)
    _heap: list[tuple[float, str]] = field(default_factory=list)
    """Has the entry of each time, and entries whose time was replaced since."""

    def set(self, name: str, at: float) -> None:
        """Set the time of a name, which replaces its former time. `NEVER` removes the name."""
        if at == self._times.get(name, NEVER):
            return
        if at == NEVER:
            del self._times[name]
        else:
            self._times[name] = at
            heapq.heappush(self._heap, (at, name))
        if len(self._heap) > 2 * len(self._times) + _SLACK:
            self._heap = [(at, name) for name, at in self._times.items()]
            heapq.heapify(self._heap)

    def pop_due(self, now: float) -> list[str]:
        """Remove and return the names whose time has come, the earliest first."""
        due = []
        while (at := self.next_at) is not None and at <= now:
            _, name = heapq.heappop(self._heap)
            del self._times[name]
            due.append(name)
        return due

    @property
    def size(self) -> int:
        """Number of entries in memory."""
        return len(self._heap)

    @property
    def next_at(self) -> float | None:
        """The earliest time, or None without names."""
        while self._heap and self._times.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None


@dataclass(kw_only=True, eq=False)
class OwnedPods:
    """Names of idle pods by the digest of their owner. Every operation takes constant time."""

    _by_owner: dict[str, OrderedDict[str, None]] = field(default_factory=dict)
    """Of an owner's pods, the least recently used first."""

    def add(self, name: str, owner: str) -> None:
        """Add a pod that was just used."""
        self._by_owner.setdefault(owner, OrderedDict())[name] = None

    def remove(self, name: str, owner: str) -> None:
        """Remove a pod."""
        names = self._by_owner.get(owner, OrderedDict())
        names.pop(name, None)
        if not names:
            self._by_owner.pop(owner, None)

    def newest(self, owner: str) -> str | None:
        """Return the most recently used pod of an owner, or None. The others grow old and are deleted."""
        names = self._by_owner.get(owner)
        return next(reversed(names)) if names else None

    def count(self, owner: str) -> int:
        """Return how many pods an owner has."""
        return len(self._by_owner.get(owner, ()))


UNCERTAIN_SECONDS: Final = 5.0
"""The same if the API server's answer to the request was lost."""


@dataclass(kw_only=True)
class PodCache:
    """All pods of a pool. Every operation on one pod visits no other and is O(log n)."""

    is_trusted_node: Callable[[str | None], bool] = lambda node: True
    """Whether pods on a node may be taken."""
    _pods: dict[str, Pod] = field(default_factory=dict)
    _by_state: dict[PodState, OrderedDict[str, Pod]] = field(
        default_factory=lambda: {each: OrderedDict() for each in PodState}
    )
    _owned: OwnedPods = field(default_factory=OwnedPods)
    _left: list[Pod] = field(default_factory=list)
    """Pods of owners that an earlier operator left and that are to be cleaned."""
    _by_node: dict[str, dict[str, Pod]] = field(default_factory=dict)
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
        """Make pods due at once, because something about them has changed."""
        for pod in pods:
            if self._pods.get(pod.name) is pod:
                self._schedule.set(pod.name, NOW if pod.state in LOOKED_AFTER else NEVER)

    def look_again(self, pod: Pod, at: float) -> None:
        """Make a pod due at a time, unless it changes earlier."""
        self._schedule.set(pod.name, at)

    def pop_due(self, now: float) -> list[Pod]:
        """Return the pods that have changed since the last call or whose time has come, once each."""
        return [self._pods[name] for name in self._schedule.pop_due(now)]

    def note_warning(self, pod: Pod, warning: str) -> None:
        """Store the newest warning Event about a pod."""
        pod.warning = warning
        self._note_change(pod)

    def add_expectation(self, name: str, *, template: str, now: float) -> Pod:
        """Count a pod that is about to be requested."""
        pod = Pod(
            name=name, state=PodState.CREATING, template=template, created_here=True, since=now, existing_since=now
        )
        self._add(pod)
        return pod

    def confirm_created(self, name: str, *, uid: str, now: float) -> None:
        """Record that the API server created a pod as requested."""
        pod = self._pods.get(name)
        if pod is not None and pod.uid not in (None, uid):
            template, since = pod.template, pod.since
            self.forget(name)  # the events were of another pod of that name
            pod = self.add_expectation(name, template=template, now=since)
        if pod is not None:
            pod.verified, pod.requested = True, None
            if pod.state is PodState.CREATING:
                pod.uid, pod.existing_since = uid, now
                self._move(pod, PodState.STARTING)
            self.touch(pod)

    def mark_uncertain(self, name: str, *, now: float) -> None:
        """Record that the answer to a request was lost. A list that is a little younger shows whether it exists."""
        if (pod := self._pods.get(name)) is not None and pod.state is PodState.CREATING:
            pod.existing_since, pod.expected_seconds = now, UNCERTAIN_SECONDS
            pod.uncertain = True

    def forget(self, name: str) -> None:
        """Drop a pod that does not exist."""
        pod = self._pods.pop(name, None)
        if pod is not None:
            del self._by_state[pod.state][name]
            self._owned.remove(name, pod.owner)
            self._set_node(pod, None)
            self._problems.pop(name, None)
            self._schedule.set(name, NEVER)
            self._counts = None
            pod.gone = True
            pod.changed()

    def observe(self, item: Object, *, now: float) -> Pod:
        """Update the cache from a pod's object of a watch or a list. Return the cached pod."""
        meta = item["metadata"]
        labels = meta.get("labels") or {}
        pod = self._pods.get(meta["name"])
        if pod is not None and pod.uid not in (None, meta["uid"]):
            self.forget(pod.name)  # another pod of the same name: the old one is gone
            pod = None
        if pod is None:
            pod = Pod(name=meta["name"], state=PodState.STARTING, since=now, existing_since=now, owned_since=now)
            self._add(pod)
        pod.uid, pod.newest, pod.token_sha256 = meta["uid"], item, read_token_digest(item)
        pod.template = labels.get(LABEL_TEMPLATE, pod.template)
        pod.labelled_busy = labels.get(LABEL_STATE) == "busy"
        pod.address = address_of(item) or pod.address
        self._set_node(pod, node_of(item) or pod.node)
        if pod.state is PodState.CREATING:
            pod.existing_since = now
            self._move(pod, PodState.STARTING)
        if pod.lost:
            pod.changed()
            if pod.state in IDLE and is_terminating(item):
                self._move(pod, PodState.TERMINATING)
        self._update_readiness(pod, now)
        self._note_change(pod)
        return pod

    def recheck_node(self, node: str, *, now: float) -> None:
        """Check the readiness of all pods on a node after the node changed."""
        for pod in self._by_node.get(node, {}).values():
            self._update_readiness(pod, now)
            self._note_change(pod)
            pod.changed()

    def mark_ready(self, name: str, *, now: float) -> Pod | None:
        """Make a starting pod warm after its supervisor reported that it is idle. Return it if it is warm."""
        pod = self._pods.get(name)
        if pod is None or pod.state is not PodState.STARTING or pod.lost:
            return None
        pod.ready_at = now
        self._move(pod, PodState.WARM)
        return pod if self._update_readiness(pod, now) else None

    def take(self) -> Pod | None:
        """Take the pod that has been warm the longest. It is busy from now on."""
        while warm := self._by_state[PodState.WARM]:
            pod = next(iter(warm.values()))
            # an ended pod counts as starting again, and is replaced like one that failed to start
            self._move(pod, PodState.STARTING if pod.lost else PodState.BUSY)
            if not pod.lost:
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
        if not known or not pod.owner or not self.is_usable(pod):
            return False
        pod.idle_since = now
        self._move(pod, PodState.OWNED)
        return True

    def is_usable(self, pod: Pod) -> bool:
        """Return whether a pod exists, is ready, and is on a node that may be relied on."""
        return not pod.lost and self._is_ready(pod)

    def set_aside(self, pod: Pod) -> None:
        """Count a pod that an earlier operator left for its owner as busy until it is clean: it is not warm soon."""
        if pod.owner and pod.state is PodState.STARTING:
            pod.recycling = True
            self._move(pod, PodState.BUSY)
            self._left.append(pod)

    def pop_left(self) -> list[Pod]:
        """Return the pods that were set aside since the last call and that no execution or session has."""
        left, self._left = self._left, []
        return [pod for pod in left if pod.recycling and not pod.gone]

    def count_owned(self, owner: str) -> int:
        """Return how many idle pods an owner has."""
        return self._owned.count(owner)

    def adopt(self, name: str, *, uid: str, now: float) -> Pod:
        """Make the pod that an execution's status names busy, whatever its state, even if it is unknown.

        If another pod has the name now, that pod is not touched, and the returned one is gone. An empty uid is that of
        a pod which an operator bound before statuses had uids.
        """
        pod = self._pods.get(name)
        if pod is not None and pod.uid is not None and uid not in ("", pod.uid):
            return Pod(name=name, state=PodState.BUSY, uid=uid, since=now, existing_since=now, gone=True)
        if pod is None:
            pod = Pod(name=name, state=PodState.BUSY, uid=uid or None, since=now, existing_since=now, owned_since=now)
            self._add(pod)
        if pod.state not in (PodState.BUSY, PodState.TERMINATING):
            self._move(pod, PodState.BUSY)
        pod.recycling = False
        return pod

    def release(self, pod: Pod) -> bool:
        """Return a pod that its taker did not use, which is the next to be taken. Return False if it is not warm."""
        if self._pods.get(pod.name) is not pod or pod.state is not PodState.BUSY:
            return False
        if pod.owner:
            self._move(pod, PodState.OWNED)
            return False
        if pod.lost:
            self._move(pod, PodState.STARTING)  # as in `take`
            return False
        self._move(pod, PodState.WARM)
        self._by_state[PodState.WARM].move_to_end(pod.name, last=False)
        return self._update_readiness(pod, pod.since)

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
            margin = pod.expected_seconds if pod.state is PodState.CREATING else 0.0
            if pod.name not in names and pod.existing_since + margin < listed_at:
                self.forget(pod.name)
        for item in objects:
            self.observe(item, now=now)
        return unknown

    def _update_readiness(self, pod: Pod, now: float) -> bool:
        """Move a pod between warm and not ready. Return whether it is warm.

        A pod that becomes ready again starts again: its supervisor is probed. One that starts on a lost node is not
        ready either, so that another is created.
        """
        if pod.state is PodState.STARTING and not self.is_trusted_node(pod.node):
            self._move(pod, PodState.NOT_READY)
        if pod.state not in (PodState.WARM, PodState.NOT_READY):
            return False
        ready = self._is_ready(pod)
        if pod.state is PodState.WARM and not ready:
            self._move(pod, PodState.NOT_READY)
        elif pod.state is PodState.NOT_READY and ready:
            pod.since = now
            self._move(pod, PodState.STARTING)
        return pod.state is PodState.WARM

    def _is_ready(self, pod: Pod) -> bool:
        return self.is_trusted_node(pod.node) and (pod.newest is None or not is_unready(pod.newest))

    def _add(self, pod: Pod) -> None:
        self._pods[pod.name] = pod
        self._by_state[pod.state][pod.name] = pod
        self._counts = None
        self._note_change(pod)

    def _move(self, pod: Pod, state: PodState) -> None:
        del self._by_state[pod.state][pod.name]
        self._owned.remove(pod.name, pod.owner)
        self._by_state[state][pod.name] = pod
        pod.state = state
        if state is PodState.OWNED:
            self._owned.add(pod.name, pod.owner)
        self._counts = None
        self._note_change(pod)

    def _set_node(self, pod: Pod, node: str | None) -> None:
        if node == pod.node:
            return
        if pod.node is not None:
            pods = self._by_node[pod.node]
            del pods[pod.name]
            if not pods:
                del self._by_node[pod.node]
        if node is not None:
            self._by_node.setdefault(node, {})[pod.name] = pod
            pod.node = node

    def _note_change(self, pod: Pod) -> None:
        """Update what is known of one pod after a change."""
        problem = pod.problem if pod.state is PodState.STARTING else None
        if problem is not None:
            self._problems[pod.name] = problem
        else:
            self._problems.pop(pod.name, None)
        self.touch(pod)
