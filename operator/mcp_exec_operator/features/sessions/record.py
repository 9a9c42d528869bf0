"""One session in memory: its object, its pod, what its interpreter has done, and how it ended. No I/O."""

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from math import inf
from typing import Any, Final, Self

from pydantic import ValidationError

from mcp_exec_api.constants import LABEL_MANAGED_BY, MANAGED_BY
from mcp_exec_api.files import Owner
from mcp_exec_api.meta import explain_errors, now
from mcp_exec_api.reasons.execution import SessionReason
from mcp_exec_api.sandbox_session import SandboxSessionSpec, SandboxSessionStatus, SessionPhase
from mcp_exec_common.broker.attestations import CLAIMED, select_proof
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.reflector import ObjectKey, object_key
from mcp_exec_operator.cluster.kube.observations import is_older
from mcp_exec_operator.core.pods.pod import Pod

_KEPT_PHASES: Final = (SessionPhase.READY, SessionPhase.BUSY)
MANAGED: Final = {LABEL_MANAGED_BY: MANAGED_BY}
"""Labels of sessions that were created for their owners."""
_IDENTITY: Final = ("name", "poolRef", "user")
_STATUS_FIELDS: Final = frozenset(str(field.alias) for field in SandboxSessionStatus.model_fields.values())


@dataclass(frozen=True, kw_only=True)
class SeenSession:
    """What a session's newest object says. Replaced as a whole."""

    key: ObjectKey
    """Namespace and name of the object."""
    uid: str
    version: str
    """Newest resource version."""
    managed: bool
    """Whether the object was created for its owner, and not by its owner: it is deleted some time after its end."""
    identity: Object
    """Name, pool and user of the first spec; later changes are ignored."""
    spec: SandboxSessionSpec
    """The newest valid spec."""
    problem: str = ""
    """What is wrong with the newest spec; empty if nothing is."""
    status: Object = field(default_factory=dict)
    """The status that the API server has, as far as it is known."""

    @classmethod
    def from_object(cls, body: Object) -> Self:
        """Return what the first object of a session says."""
        meta = body["metadata"]
        return cls(
            key=object_key(body),
            uid=meta["uid"],
            version=str(meta["resourceVersion"]),
            managed=bool(MANAGED.items() <= (meta.get("labels") or {}).items()),
            identity=_read_identity(body.get("spec") or {}),
            spec=SandboxSessionSpec(),
        ).observe(body)

    def observe(self, body: Object) -> Self:
        """Return what a newer object says. What cannot change stays, also if a cluster did not reject the change."""
        given, spec, problem = body.get("spec") or {}, self.spec, ""
        try:
            spec = SandboxSessionSpec.model_validate({**_drop_identity(given), **self.identity})
            if _read_identity(given) != self.identity:
                problem = "spec.name, spec.poolRef or spec.user was changed after its creation"
        except ValidationError as error:
            problem = explain_errors(error, SandboxSessionSpec, place="spec")
        version, status = str(body["metadata"]["resourceVersion"]), _reduce_status(body.get("status") or {})
        return replace(self, version=version, spec=spec, problem=problem, status=status)


@dataclass(frozen=True, kw_only=True)
class SessionEnd:
    """How a session was lost or ended."""

    phase: SessionPhase
    reason: SessionReason
    message: str = ""
    """The reason for people; empty if the reason says all."""
    at: datetime | None = None

    def __str__(self) -> str:
        return self.message or self.reason.meaning


@dataclass(kw_only=True, eq=False)
class SessionUse:
    """What a session's interpreter has done."""

    started_at: datetime | None = None
    """None if there is no interpreter."""
    executions: int = 0
    memory_bytes: int | None = None
    last_used_at: datetime | None = None

    def count(self, moment: datetime) -> None:
        """Count an execution that has ended."""
        self.executions += 1
        self.last_used_at = moment

    def discard(self) -> None:
        """Discard what is known of the interpreter."""
        self.started_at = self.memory_bytes = None

    def find_expiry(self, spec: SandboxSessionSpec) -> tuple[datetime, SessionReason] | None:
        """Return when the session ends if no execution uses it, and why; None if it has no interpreter."""
        if self.started_at is None:
            return None
        idle_at = (self.last_used_at or self.started_at) + timedelta(seconds=spec.idle_timeout_seconds)
        old_at = self.started_at + timedelta(seconds=spec.max_age_seconds)
        return (idle_at, SessionReason.IDLE) if idle_at <= old_at else (old_at, SessionReason.TOO_OLD)


@dataclass(kw_only=True, eq=False)
class SessionSchedule:
    """What the controller does about a session, and when. Times are seconds of a monotonic clock."""

    dirty: bool = True
    """Whether the controller has to look at it."""
    due: float = -inf
    """When the controller has to look at it next."""
    writing: bool = False
    """Whether a write of the status is in flight."""
    written_at: float = -inf
    """When the status was last written."""
    write_at: float = inf
    """When the status is to be written."""
    probing: bool = False
    """Whether the sandbox is being asked for the session's memory."""
    probe_at: float = inf
    """When the sandbox is asked next."""


@dataclass(kw_only=True, eq=False)
class SessionRecord:
    """One session. The phase of a session without an end is derived."""

    seen: SeenSession
    """What its object says."""
    owner: Owner
    first_seen: datetime
    unused_since: datetime
    """When it lost its last pod, or was first seen without one."""
    proof: Object | None = None
    """What proves its owner's caller, as `select_proof` returns it; None if nothing does."""
    unproven: bool = False
    """Whether the key that proved its owner was withdrawn. It serves nobody, and is replaced at its next use."""
    foreign: str = ""
    """What is wrong with the status that it had first, which no later event mends; empty if nothing is."""
    pod: Pod | None = None
    """The pod that is kept for it."""
    use: SessionUse = field(default_factory=SessionUse)
    end: SessionEnd | None = None
    """How it was lost or ended, until an execution reported it or it was reset."""
    resets: int = 0
    """The value of `spec.resets` that was handled last."""
    lost_reported_to: str = ""
    """Uid of the execution that reported the loss of the session last."""
    starting: bool = False
    """Whether an execution is getting a pod for it."""
    unsettled: bool = False
    """Whether the sandbox must be asked before another execution may run in it."""
    gone: bool = False
    """Whether the object was deleted."""
    schedule: SessionSchedule = field(default_factory=SessionSchedule)

    @classmethod
    def from_object(cls, body: Object, *, caller: str) -> Self:
        """Return the record of an object, with its caller as `Attestor` reads it. The pod is adopted by others."""
        seen = SeenSession.from_object(body)
        named = Owner(namespace=seen.key[0], caller=caller.removeprefix(CLAIMED), user=seen.spec.user or "")
        # an earlier operator has written an owner that was proven then
        was_proven = (body.get("status") or {}).get("ownerDigest") == named.digest
        unproven = caller.startswith(CLAIMED) and was_proven
        is_proven = unproven or not caller.startswith(CLAIMED)
        record = cls(
            seen=seen,
            owner=named if is_proven else Owner(namespace=seen.key[0], user=named.user),
            first_seen=now(),
            unused_since=now(),
            proof=select_proof(body["metadata"]) if caller and not caller.startswith(CLAIMED) else None,
            unproven=unproven,
        )
        record._restore()
        return record

    @property
    def key(self) -> ObjectKey:
        """Namespace and name of the object."""
        return self.seen.key

    @property
    def name(self) -> str:
        """Name of the object."""
        return self.key[1]

    @property
    def pool(self) -> ObjectKey:
        """Namespace and name of the pool."""
        return self.key[0], self.seen.spec.pool_ref.name

    @property
    def occupies(self) -> bool:
        """Whether it has a pod or is about to get one."""
        return self.pod is not None or self.starting

    @property
    def invalid(self) -> str:
        """What is wrong with the object; empty if executions can use it."""
        return self.seen.problem or self._check_name() or self.foreign

    @property
    def is_reset(self) -> bool:
        """Whether its spec asks for a reset that was not handled yet."""
        return self.seen.spec.resets > self.resets

    @property
    def log_fields(self) -> dict[str, Any]:
        """Fields of each log line about the session."""
        pod = self.pod.name if self.pod is not None else None
        return {"session": self.name, "namespace": self.key[0], "pool": self.pool[1], "pod": pod}

    def observe(self, body: Object) -> None:
        """Apply a newer object. An older one changes nothing."""
        if not is_older(str(body["metadata"]["resourceVersion"]), self.seen.version):
            self.seen = self.seen.observe(body)

    def start(self, pod: Pod, *, moment: datetime) -> None:
        """Begin afresh in a pod."""
        self.pod, self.use, self.end = pod, SessionUse(started_at=moment), None
        self.resets = max(self.resets, self.seen.spec.resets)
        self.unsettled = False

    def discard_pod(self) -> Pod | None:
        """Discard the pod and what is known of its interpreter. Return the pod."""
        pod, self.pod, self.end = self.pod, None, None
        self.use.discard()
        self.unsettled = False
        return pod

    def find_expiry(self) -> tuple[datetime, SessionReason] | None:
        """Return when it ends if no execution uses it, and why; None if it has no pod."""
        return self.use.find_expiry(self.seen.spec)

    @property
    def is_durable(self) -> bool:
        """Whether the next operator finds its pod, by the stored status and the pod's labels."""
        pod = self.pod
        return pod is not None and pod.seen.labelled_busy and self.find_stored_pod() == (pod.name, pod.seen.uid)

    def find_stored_pod(self) -> tuple[str, str] | None:
        """Return name and uid of the pod that the stored status keeps for it, or None."""
        status = self.seen.status
        name, uid = status.get("podName"), status.get("podUid")
        kept = status.get("phase") in _KEPT_PHASES and status.get("ownerDigest") == self.owner.digest
        return (str(name), str(uid)) if kept and name and uid else None

    def _check_name(self) -> str:
        """Return why executions of the owner do not find the object by its name, or an empty text."""
        name = self.seen.spec.name
        if self.owner.is_nobody:
            return "nothing proves who created it, so nobody may use it (docs/platform/identities.md)"
        suffix = self.owner.qualify("")
        if self.name.endswith(suffix) if name is None else self.owner.qualify(name) == self.name:
            return ""
        wanted = self.owner.qualify(name or "NAME")
        return f"executions of its owner look for the session {name or 'NAME'} under the name {wanted}"

    def _restore(self) -> None:
        """Go on from the status that an earlier operator wrote."""
        stored = self.seen.status
        try:
            status = SandboxSessionStatus.model_validate({**stored, "conditions": []})
        except ValidationError:
            # a newer version wrote it: what it kept is unknown here
            self.foreign = "its status was written by a newer version of the operator"
            return
        if status.phase in (SessionPhase.LOST, SessionPhase.ENDED):
            self.unused_since = status.ended_at or self.unused_since
            messages = (str(each.get("message") or "") for each in stored.get("conditions") or ())
            message = next(messages, status.reason.meaning)
            self.end = SessionEnd(phase=status.phase, reason=status.reason, message=message, at=status.ended_at)
        self.use = SessionUse(
            started_at=status.started_at,
            executions=status.executions or 0,
            memory_bytes=status.memory_bytes,
            last_used_at=status.last_used_at,
        )
        if status.owner_digest not in (None, self.owner.digest):
            # somebody changed the spec or the labels while no operator ran: its pod serves its first owner only
            self.foreign = "it belonged to another owner; delete it"
        self.resets = self.seen.spec.resets if status.resets is None else status.resets
        self.lost_reported_to = status.lost_reported_to or ""


def _read_identity(spec: Object) -> Object:
    return {name: spec[name] for name in _IDENTITY if spec.get(name) is not None}


def _drop_identity(spec: Object) -> Object:
    return {name: value for name, value in spec.items() if name not in _IDENTITY}


def _reduce_status(status: Object) -> Object:
    """Return the known fields of a status."""
    return {name: value for name, value in status.items() if name in _STATUS_FIELDS}
