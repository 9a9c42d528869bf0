"""A sandbox pod as the operator knows it: its state, its owner, and when something was last seen of it. No I/O."""

import asyncio
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final

from mcp_exec_api.reasons.execution import Reason
from mcp_exec_common.kube.objects import Object
from mcp_exec_operator.core.pods.integrity import ChangeableParts
from mcp_exec_operator.core.pods.status import (
    PodProblem,
    age_of,
    age_of_deletion,
    is_over,
    is_terminating,
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


@dataclass(kw_only=True, eq=False)
class Pod:
    """One pod as the operator last saw it. Times are seconds of a monotonic clock."""

    name: str
    state: PodState
    template: str = ""
    """Hash of its template."""
    uid: str | None = None
    address: str = ""
    token_sha256: str = ""
    """Digest of its token, which shows from which of the release's keys the token is derived."""
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

    def changed(self) -> None:
        """Wake up the execution or the session that has the pod."""
        self.wakeup.set()

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

    def is_stuck(self, moment: datetime) -> bool:
        """Whether it was deleted so long ago that nobody should wait for its end: its node may not answer."""
        return self.newest is not None and age_of_deletion(self.newest, moment) > _STUCK_SECONDS

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
