"""Cache of the pods of one pool, by state. A state machine without I/O.

A pod counts from the moment the operator asks for it, before any watch event, so that no pod is created twice because
the cache lags. A taken pod is never taken again, unless its taker releases it unused.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from itertools import islice
from typing import Final

from mcp_exec_api.constants import LABEL_STATE, LABEL_TEMPLATE
from mcp_exec_api.reasons.execution import Reason
from mcp_exec_common.kube.objects import Object
from mcp_exec_operator.pods.indexes import NEVER, NOW, OwnedPods, Schedule
from mcp_exec_operator.pods.integrity import ChangeableParts
from mcp_exec_operator.pods.status import (
    PodProblem,
    address_of,
    age_of,
    is_over,
    is_terminating,
    is_unready,
    node_of,
    starting_problem,
)

EXPECTATION_SECONDS: Final = 300.0
"""How many seconds a requested pod counts that was never seen."""
UNCERTAIN_SECONDS: Final = 5.0
"""The same if the API server's answer to the request was lost."""


class PodState(StrEnum):
    """States of a pod, in the order of its life. The values are labels of metrics."""

    CREATING = "creating"
    """Requested; the API server has not answered yet."""
    STARTING = "starting"
    WARM = "warm"
    NOT_READY = "not_ready"
    """Was warm and is not ready, or its node is lost. It is not taken, and starts again if it becomes ready."""
    OWNED = "owned"
    """Was used, is clean, and is kept for its owner."""
    BUSY = "busy"
    TERMINATING = "terminating"


IDLE: Final = (PodState.STARTING, PodState.WARM, PodState.NOT_READY, PodState.OWNED)
"""States of pods that exist and serve no execution."""
LOOKED_AFTER: Final = frozenset({*IDLE, PodState.BUSY})
"""States of pods about which something may have to be done."""


@dataclass(kw_only=True, eq=False)
class Pod:
    """One pod as the operator last saw it. Times are seconds of a monotonic clock."""

    name: str
    state: PodState
    template: str = ""
    """Hash of its template."""
    uid: str | None = None
    address: str = ""
    node: str | None = None
    created_here: bool = False
    """Whether this process created it, and so measures its startup time."""
    since: float = 0.0
    """Time of the request, or of its first observation."""
    existing_since: float = 0.0
    """Time since which it is known to exist."""
    expected_seconds: float = EXPECTATION_SECONDS
    """How much younger a list without it must be to prove that it was not created."""
    ready_at: float = 0.0
    """When it became warm."""
    created_at: float | None = None
    """Creation time of a pod that another process created, computed when it is first needed."""
    newest: Object | None = None
    """Its object as last observed."""
    uncertain: bool = False
    """Whether the answer to the request was lost."""
    requested: Object | None = None
    """Its manifest, until it is known whether the API server stored it unchanged."""
    verified: bool = False
    """Whether an operator created it and it is as requested. Only then it is probed and used."""
    parts: ChangeableParts | None = None
    """What must stay as it was when the pod was verified, or first seen."""
    sealed: bool = False
    """Whether the next operator can recognize it, or is about to be able to."""
    gone: bool = False
    """Whether it does not exist any more."""
    owner: str = ""
    """Digest of the only owner that it serves; empty before its first execution, and if it serves only one."""
    caller: str = ""
    """Caller of its last execution: callers share pods fairly."""
    taken_by: str = ""
    """Digest of the owner whose execution has it, or had it last; empty if the pod is not used again."""
    taken_at: float = 0.0
    """When that execution took it."""
    uses: int = 0
    """Executions that it has served."""
    owned_since: float = 0.0
    """Time of its first execution, or of the start of this process if an earlier one dispatched it."""
    idle_since: float = 0.0
    """When it became idle for its owner."""
    recycling: bool = False
    """Whether it is being cleaned after an execution."""
    labelled_busy: bool = False
    wrappers: str | None = None
    """Hash of the tool wrappers that it has."""
    next_failure_at: float = 0.0
    """When another failed image pull counts against its pool."""
    warning: str = ""
    """Message of its newest warning Event, if Events were read."""
    read_events_at: float = 0.0
    """When its Events may be read; infinite while and after they are."""
    held: bool = False
    """Whether a reason that is not its own, such as full nodes, delays it."""
    held_at: float = 0.0
    """When such a reason was last seen."""
    overtaken_at: float = 0.0
    """When a much younger pod on its node became ready before it."""
    wakeup: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the pod is lost or its node changes. An execution that has the pod puts its own event here."""

    def age(self, now: float, moment: datetime) -> float:
        """Return the seconds since its creation. `now` and `moment` are the same moment."""
        if self.created_here:
            return now - self.existing_since
        if self.created_at is None:
            self.created_at = now - (age_of(self.newest, moment) if self.newest is not None else 0.0)
        return now - self.created_at

    def starting_for(self, now: float, moment: datetime) -> float:
        """Return how many seconds it had to become ready: since its creation, or since nothing delayed it."""
        since = now - self.since if self.address else self.age(now, moment)
        return min(since, now - self.held_at) if self.held_at else since

    @property
    def problem(self) -> PodProblem | None:
        """Why it does not become ready, or None if nothing is known."""
        if self.newest is not None and (problem := starting_problem(self.newest)) is not None:
            return problem
        return PodProblem(reason=Reason.POD_FAILED, message=self.warning) if self.warning else None

    @property
    def lost(self) -> bool:
        """Whether its container has ended, or it was deleted."""
        return self.gone or self.has_ended

    @property
    def has_ended(self) -> bool:
        """Whether its newest object shows that its container has ended, or that it is being deleted."""
        return self.newest is not None and (is_over(self.newest) or is_terminating(self.newest))


@dataclass(frozen=True, kw_only=True)
class PodCounts:
    """Number of pods in each state."""

    creating: int = 0
    starting: int = 0
    warm: int = 0
    not_ready: int = 0
    owned: int = 0
    busy: int = 0
    terminating: int = 0

    @property
    def total(self) -> int:
        """All pods. Terminating ones still take room."""
        idle = self.warm + self.not_ready + self.owned
        return self.creating + self.starting + idle + self.busy + self.terminating

    @property
    def coming(self) -> int:
        """Pods that may become warm."""
        return self.creating + self.starting


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
            pod.wakeup.set()

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
        pod.uid, pod.newest = meta["uid"], item
        pod.template = labels.get(LABEL_TEMPLATE, pod.template)
        pod.labelled_busy = labels.get(LABEL_STATE) == "busy"
        pod.address = address_of(item) or pod.address
        self._set_node(pod, node_of(item) or pod.node)
        if pod.state is PodState.CREATING:
            pod.existing_since = now
            self._move(pod, PodState.STARTING)
        if pod.lost:
            pod.wakeup.set()
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
            pod.wakeup.set()

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
