"""A sandbox pod in memory: its state, its object, its start, and whom it serves. No I/O."""

import asyncio
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Final

from mcp_exec_api.constants import LABEL_STATE, LABEL_TEMPLATE
from mcp_exec_api.reasons.execution import Reason
from mcp_exec_common.kube.objects import Object, compact
from mcp_exec_common.supervisor.tokens import read_token_digest
from mcp_exec_operator.core.pods.integrity import ChangeableParts
from mcp_exec_operator.core.pods.status import (
    PodProblem,
    address_of,
    age_of,
    age_of_deletion,
    is_over,
    is_terminating,
    node_of,
    starting_problem,
)

EXPECTATION_SECONDS: Final = 300.0
"""How many seconds a requested pod counts that was never seen."""
_STUCK_SECONDS: Final = 10.0
"""A pod ends in less, unless its node is lost or its kubelet missed the deletion, which takes it a minute to see."""


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


@dataclass(frozen=True, kw_only=True)
class SeenPod:
    """What a pod's newest object says, and what an earlier one said if the newest does not. Replaced as a whole."""

    uid: str | None = None
    template: str = ""
    """Hash of its template."""
    token_sha256: str = ""
    """Digest of its token, which shows from which of the release's keys the token is derived."""
    address: str = ""
    node: str | None = None
    labelled_busy: bool = False
    body: Object | None = None
    """The object."""
    has_ended: bool = False
    """Whether its container has ended, or it is being deleted."""

    def observe(self, body: Object) -> "SeenPod":
        """Return what is known after an object of the same pod."""
        labels = body["metadata"].get("labels") or {}
        return SeenPod(
            uid=body["metadata"]["uid"],
            template=labels.get(LABEL_TEMPLATE, self.template),
            token_sha256=read_token_digest(body),
            address=address_of(body) or self.address,
            node=node_of(body) or self.node,
            labelled_busy=labels.get(LABEL_STATE) == "busy",
            body=compact(body, self.body),  # the cache keeps it for the pod's whole life
            has_ended=is_over(body) or is_terminating(body),
        )


@dataclass(kw_only=True, eq=False)
class PodStart:
    """How a pod came to exist and to be warm. Times are seconds of a monotonic clock."""

    created_here: bool = False
    """Whether this process created it, and so measures its startup time."""
    since: float = 0.0
    """Time of the request, or of its first observation."""
    existing_since: float = 0.0
    """Time since which it is known to exist."""
    expected_seconds: float = EXPECTATION_SECONDS
    """How much younger a list without it must be to prove that it was not created."""
    uncertain: bool = False
    """Whether the answer to the request was lost."""
    requested: Object | None = None
    """Its manifest, until it is known whether the API server stored it unchanged."""
    ready_at: float = 0.0
    """When it became warm."""
    created_at: float | None = None
    """Creation time of a pod that another process created, computed when it is first needed."""


@dataclass(kw_only=True, eq=False)
class PodDelay:
    """What keeps a pod from becoming ready. Times are seconds of a monotonic clock."""

    warning: str = ""
    """Message of its newest warning Event, if Events were read."""
    read_events_at: float = 0.0
    """When its Events may be read; infinite while and after they are."""
    held: bool = False
    """Whether a reason that is not its own, such as full nodes, delays it."""
    held_at: float = 0.0
    """When such a reason was last seen."""
    next_failure_at: float = 0.0
    """When another failed image pull counts against its pool."""
    overtaken_at: float = 0.0
    """When a much younger pod on its node became ready before it."""


@dataclass(kw_only=True, eq=False)
class PodUse:
    """Whom a pod serves, and what it has served. Times are seconds of a monotonic clock."""

    owner: str = ""
    """Digest of the only owner that it serves; empty before its first execution, and if it serves only one."""
    caller: str = ""
    """Caller of its last execution: callers share pods fairly."""
    count: int = 0
    """Executions that it has served."""
    taken_by: str = ""
    """Digest of the owner whose execution has it, or had it last; empty if the pod is not used again."""
    taken_at: float = 0.0
    """When that execution took it."""
    owned_since: float = 0.0
    """Time of its first execution, or of the start of this process if an earlier one dispatched it."""
    idle_since: float = 0.0
    """When it became idle for its owner."""
    recycling: bool = False
    """Whether it is being cleaned after an execution."""
    wrappers: str | None = None
    """Hash of the tool wrappers that it has."""

    def count_up_to(self, count: int) -> None:
        """Record how many executions its supervisor has counted: an earlier operator may have dispatched some."""
        self.count = max(self.count, count)


@dataclass(kw_only=True, eq=False)
class PodTrust:
    """Why a pod is known to be the operator's own, and unaltered."""

    verified: bool = False
    """Whether an operator created it and it is as requested. Only then it is probed and used."""
    sealed: bool = False
    """Whether the next operator can recognize it, or is about to be able to."""
    parts: ChangeableParts | None = None
    """What must stay as it was when the pod was verified, or first seen."""


@dataclass(kw_only=True, eq=False)
class Pod:
    """One pod in memory."""

    name: str
    state: PodState
    seen: SeenPod = field(default_factory=SeenPod)
    """What its object says."""
    start: PodStart = field(default_factory=PodStart)
    delay: PodDelay = field(default_factory=PodDelay)
    use: PodUse = field(default_factory=PodUse)
    trust: PodTrust = field(default_factory=PodTrust)
    gone: bool = False
    """Whether it does not exist any more."""
    wakeup: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the pod is lost or its node changes. An execution that has the pod puts its own event here."""

    def changed(self) -> None:
        """Wake up the execution or the session that has the pod."""
        self.wakeup.set()

    def observe(self, body: Object) -> None:
        """Apply a newer object of the pod."""
        self.seen = self.seen.observe(body)

    def identify(self, uid: str) -> None:
        """Record the uid that the API server gave to the pod."""
        self.seen = replace(self.seen, uid=uid)

    def note_label(self) -> None:
        """Record that the label of a busy pod was written."""
        self.seen = replace(self.seen, labelled_busy=True)

    def age(self, now: float, moment: datetime) -> float:
        """Return the seconds since its creation. `now` and `moment` are the same moment."""
        start, body = self.start, self.seen.body
        if start.created_here:
            return now - start.existing_since
        if start.created_at is None:
            start.created_at = now - (age_of(body, moment) if body is not None else 0.0)
        return now - start.created_at

    def starting_for(self, now: float, moment: datetime) -> float:
        """Return how many seconds it had to become ready: since its creation, or since nothing delayed it."""
        since = now - self.start.since if self.seen.address else self.age(now, moment)
        return min(since, now - self.delay.held_at) if self.delay.held_at else since

    @property
    def problem(self) -> PodProblem | None:
        """Why it does not become ready, or None if nothing is known."""
        if self.seen.body is not None and (problem := starting_problem(self.seen.body)) is not None:
            return problem
        warning = self.delay.warning
        return PodProblem(reason=Reason.POD_FAILED, message=warning) if warning else None

    @property
    def lost(self) -> bool:
        """Whether its container has ended, or it was deleted."""
        return self.gone or self.seen.has_ended

    def is_stuck(self, moment: datetime) -> bool:
        """Whether it was deleted so long ago that nobody should wait for its end: its node may not answer."""
        return self.seen.body is not None and age_of_deletion(self.seen.body, moment) > _STUCK_SECONDS


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
