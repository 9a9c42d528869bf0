"""The pods of one pool, in memory: which stand ready, which start, run or end. A state machine without I/O.

A pod that was asked for counts before any watch tells of it, so that nothing is made twice behind the cache. A pod
that was taken is never handed out again, unless whoever took it says that it is unused.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from datetime import datetime
from enum import StrEnum
from typing import Final

from mcp_exec_api.constants import LABEL_STATE, LABEL_TEMPLATE
from mcp_exec_common.kube.objects import Object
from mcp_exec_operator.pods.status import address_of, age_of, is_over, is_terminating, is_unready, node_of

EXPECTATION_SECONDS: Final = 300.0
"""Seconds after which a pod that was asked for and never seen is counted no more."""
DOUBT_SECONDS: Final = 5.0
"""The same, where the API server's answer was lost: it ends what nobody waits for any more."""


class PodState(StrEnum):
    """Where a pod is in its one way through life."""

    CREATING = "creating"
    """Asked for; the API server has not answered."""
    STARTING = "starting"
    WARM = "warm"
    UNFIT = "unfit"
    """It was warm and is not ready any more, by its node: nobody gets it, unless it becomes ready again."""
    BUSY = "busy"
    TERMINATING = "terminating"


@dataclass(kw_only=True, eq=False)
class Pod:
    """What is known of one pod. Times are of a monotonic clock, in seconds."""

    name: str
    state: PodState
    template: str = ""
    uid: str | None = None
    address: str = ""
    node: str | None = None
    asked_for: bool = False
    """Whether this process asked for it, and so knows how long it takes to start."""
    since: float = 0.0
    """When it was asked for or first seen."""
    existing_since: float = 0.0
    """When it was first known to exist."""
    expected_seconds: float = EXPECTATION_SECONDS
    """How much younger a list must be that it is missing from, while the API server has not answered."""
    ready_at: float = 0.0
    """When it became warm."""
    born: float | None = None
    """When it was created, where another process asked for it and somebody wants to know."""
    newest: Object | None = None
    """Its object as last seen."""
    gone: bool = False
    """Whether it does not exist any more."""
    labelled_busy: bool = False
    wrappers: str | None = None
    """The hash of the wrappers that it is known to have."""
    blame_at: float = 0.0
    """When its variant is next to be blamed for an image that can't be pulled."""
    warning: str = ""
    """What the newest warning Event says of it, where somebody looked."""
    looked_for_events: bool = False
    held_at: float = 0.0
    """When it was last seen to be held for a reason that is not its own: it had no node, say."""
    overtaken_at: float = 0.0
    """When one that was made much later came up on its node before it."""
    wakeup: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the pod is lost or its node changes. An execution that has the pod puts its own event here."""

    def age(self, now: float, moment: datetime) -> float:
        """Seconds since it was created. `now` and `moment` are the same moment."""
        if self.asked_for:
            return now - self.existing_since
        if self.born is None:
            self.born = now - (age_of(self.newest, moment) if self.newest is not None else 0.0)
        return now - self.born

    def starting_for(self, now: float, moment: datetime) -> float:
        """Seconds in which it might have come up: since it was created, or was held no more."""
        since = now - self.since if self.address else self.age(now, moment)
        return min(since, now - self.held_at) if self.held_at else since

    @property
    def lost(self) -> bool:
        """Whether its container has ended, or somebody deleted it."""
        if self.gone:
            return True
        return self.newest is not None and (is_over(self.newest) or is_terminating(self.newest))


@dataclass(frozen=True, kw_only=True)
class PodCounts:
    """How many pods are in each state."""

    creating: int = 0
    starting: int = 0
    warm: int = 0
    unfit: int = 0
    busy: int = 0
    terminating: int = 0

    def __add__(self, other: "PodCounts") -> "PodCounts":
        return PodCounts(**{each.name: getattr(self, each.name) + getattr(other, each.name) for each in fields(self)})

    @property
    def total(self) -> int:
        """All of them: those that end still take room."""
        return self.creating + self.starting + self.warm + self.unfit + self.busy + self.terminating

    @property
    def coming(self) -> int:
        """Those that may become warm."""
        return self.creating + self.starting


@dataclass(kw_only=True)
class PodCache:
    """All pods of a pool. Every operation is O(1) but for those over all pods."""

    trusts: Callable[[str | None], bool] = lambda node: True
    """Whether pods on a node can be handed out."""
    _pods: dict[str, Pod] = field(default_factory=dict)
    _in: dict[PodState, OrderedDict[str, Pod]] = field(
        default_factory=lambda: {each: OrderedDict() for each in PodState}
    )
    _ended: dict[str, Pod] = field(default_factory=dict)
    """Those whose container has ended, for good."""

    @property
    def counts(self) -> PodCounts:
        """How many pods are in each state."""
        return PodCounts(**{state.value: len(pods) for state, pods in self._in.items()})

    def get(self, name: str) -> Pod | None:
        """The pod of that name, if it is known."""
        return self._pods.get(name)

    def all(self, *states: PodState) -> list[Pod]:
        """The pods in these states, or all where none is given; the longest in a state first."""
        return [pod for state in states or PodState for pod in self._in[state].values()]

    def failed(self) -> list[Pod]:
        """The pods that ended before anybody used them."""
        idle = (PodState.STARTING, PodState.WARM, PodState.UNFIT)
        return [pod for pod in self._ended.values() if pod.state in idle]

    def expect(self, name: str, *, template: str, now: float) -> Pod:
        """Counts a pod that is about to be asked for."""
        pod = Pod(name=name, state=PodState.CREATING, template=template, asked_for=True, since=now, existing_since=now)
        self._add(pod)
        return pod

    def created(self, name: str, *, uid: str, now: float) -> None:
        """The API server has made it."""
        if (pod := self._pods.get(name)) is not None and pod.state is PodState.CREATING:
            pod.uid, pod.existing_since = uid, now
            self._move(pod, PodState.STARTING)

    def doubt(self, name: str, *, now: float) -> None:
        """Nobody knows whether it was made: a list that is a little younger tells."""
        if (pod := self._pods.get(name)) is not None and pod.state is PodState.CREATING:
            pod.existing_since, pod.expected_seconds = now, DOUBT_SECONDS

    def forget(self, name: str) -> None:
        """It does not exist, or no longer."""
        pod = self._pods.pop(name, None)
        if pod is not None:
            self._ended.pop(name, None)
            del self._in[pod.state][name]
            pod.gone = True
            pod.wakeup.set()

    def observe(self, item: Object, *, now: float) -> Pod:
        """Takes in a pod's object, from a watch or a list, and returns what is known of it now."""
        meta = item["metadata"]
        labels = meta.get("labels") or {}
        pod = self._pods.get(meta["name"])
        if pod is not None and pod.uid not in (None, meta["uid"]):
            self.forget(pod.name)  # another pod of the same name: the old one is gone
            pod = None
        if pod is None:
            pod = Pod(name=meta["name"], state=PodState.STARTING, since=now, existing_since=now)
            self._add(pod)
        pod.uid, pod.newest = meta["uid"], item
        if is_over(item):
            self._ended[pod.name] = pod
        pod.template = labels.get(LABEL_TEMPLATE, pod.template)
        pod.labelled_busy = labels.get(LABEL_STATE) == "busy"
        pod.address, pod.node = address_of(item) or pod.address, node_of(item) or pod.node
        if pod.state is PodState.CREATING:
            pod.existing_since = now
            self._move(pod, PodState.STARTING)
        if pod.lost:
            pod.wakeup.set()
            if pod.state in (PodState.STARTING, PodState.WARM, PodState.UNFIT) and is_terminating(item):
                self._move(pod, PodState.TERMINATING)
        self._judge(pod, now)
        return pod

    def node_changed(self, node: str, *, now: float) -> None:
        """Looks again at the pods on a node: it was lost, or is back."""
        for pod in self._pods.values():
            if pod.node == node:
                self._judge(pod, now)
                pod.wakeup.set()

    def ready(self, name: str, *, now: float) -> Pod | None:
        """Its supervisor answered that it is idle: it is warm, if it was starting."""
        pod = self._pods.get(name)
        if pod is None or pod.state is not PodState.STARTING or pod.lost:
            return None
        pod.ready_at = now
        self._move(pod, PodState.WARM)
        return pod if self._judge(pod, now) else None

    def take(self) -> Pod | None:
        """The pod that has been warm for longest, busy from now on."""
        while warm := self._in[PodState.WARM]:
            pod = next(iter(warm.values()))
            # one that ended counts as starting again, and is replaced like any that failed to start
            self._move(pod, PodState.STARTING if pod.lost else PodState.BUSY)
            if not pod.lost:
                return pod
        return None

    def adopt(self, name: str, *, now: float) -> Pod:
        """An execution has it by its status: it is busy, whatever it was thought to be, and even if it is unknown."""
        pod = self._pods.get(name)
        if pod is None:
            pod = Pod(name=name, state=PodState.BUSY, since=now, existing_since=now)
            self._add(pod)
        if pod.state in (PodState.CREATING, PodState.STARTING, PodState.WARM, PodState.UNFIT):
            self._move(pod, PodState.BUSY)
        return pod

    def put_back(self, pod: Pod) -> bool:
        """It was taken and not used: it is the next to be taken. False where it is lost in the meantime."""
        if self._pods.get(pod.name) is not pod or pod.state is not PodState.BUSY:
            return False
        if pod.lost:
            self._move(pod, PodState.STARTING)  # as in `take`
            return False
        self._move(pod, PodState.WARM)
        self._in[PodState.WARM].move_to_end(pod.name, last=False)
        return self._judge(pod, pod.since)

    def retire(self, pod: Pod) -> bool:
        """It is about to be deleted. False where it is on its way out already."""
        if self._pods.get(pod.name) is not pod or pod.state is PodState.TERMINATING:
            return False
        self._move(pod, PodState.TERMINATING)
        return True

    def replace(self, items: Iterable[Object], *, listed_at: float, now: float) -> list[str]:
        """Takes in a list of all pods that was begun at `listed_at`; what is not in it is gone. Returns new names."""
        found = list(items)
        names = {item["metadata"]["name"] for item in found}
        news = [name for name in names if name not in self._pods]
        for pod in list(self._pods.values()):
            old = pod.expected_seconds if pod.state is PodState.CREATING else 0.0
            if pod.name not in names and pod.existing_since + old < listed_at:
                self.forget(pod.name)
        for item in found:
            self.observe(item, now=now)
        return news

    def _judge(self, pod: Pod, now: float) -> bool:
        """Takes a warm pod away that is not ready any more, and lets one that is again start anew: its supervisor is
        asked. True where it is warm."""
        if pod.state not in (PodState.WARM, PodState.UNFIT):
            return False
        fit = self.trusts(pod.node) and (pod.newest is None or not is_unready(pod.newest))
        if pod.state is PodState.WARM and not fit:
            self._move(pod, PodState.UNFIT)
        elif pod.state is PodState.UNFIT and fit:
            pod.since = now
            self._move(pod, PodState.STARTING)
        return pod.state is PodState.WARM

    def _add(self, pod: Pod) -> None:
        self._pods[pod.name] = pod
        self._in[pod.state][pod.name] = pod

    def _move(self, pod: Pod, state: PodState) -> None:
        del self._in[pod.state][pod.name]
        self._in[state][pod.name] = pod
        pod.state = state
