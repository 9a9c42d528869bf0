"""One session in memory, and when it ends. Decisions are pure."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import inf
from typing import Any, Final, Self

from pydantic import ValidationError

from mcp_exec_api.constants import LABEL_MANAGED_BY, MANAGED_BY
from mcp_exec_api.files import Owner
from mcp_exec_api.meta import field_errors, now
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
KEEP_UNUSED: Final = timedelta(hours=1)
"""How long the object of a session without a pod is kept, so that the next execution can report its end."""


@dataclass(kw_only=True, eq=False)
class SessionRecord:
    """The newest spec of a session, and its state. `phase` of a session that is neither lost nor ended is derived."""

    key: ObjectKey
    """Namespace and name of the object."""
    uid: str
    version: str
    """Newest resource version."""
    owner: Owner
    managed: bool
    """Whether the object was created for its owner, and not by its owner: it is deleted some time after its end."""
    first_seen: datetime
    unused_since: datetime
    """When it lost its last pod, or was first seen without one."""
    kind: Object
    """What the spec said first of name, pool and user, which cannot change."""
    spec: SandboxSessionSpec
    proof: Object | None = None
    """What proves its owner's caller, as `select_proof` returns it; None if nothing does."""
    unproven: bool = False
    """Whether the key that proved its owner was withdrawn. It serves nobody, and is replaced at its next use."""
    invalid: str = ""
    """What is wrong with the object; empty if executions can use it."""
    foreign: str = ""
    """What is wrong with the status that it had first, which no later event mends; empty if nothing is."""
    stored: Object = field(default_factory=dict)
    """The status that the API server has, as far as it is known."""
    pod: Pod | None = None
    """The pod that is kept for it."""
    end: SessionPhase | None = None
    """Lost or Ended, until an execution reported it or it was reset."""
    reason: SessionReason = SessionReason.NONE
    message: str = ""
    """Why it was lost or ended, for people."""
    started_at: datetime | None = None
    executions: int = 0
    memory_bytes: int | None = None
    last_used_at: datetime | None = None
    ended_at: datetime | None = None
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
    dirty: bool = True
    """Whether the controller has to look at it."""
    due: float = -inf
    """When the controller has to look at it next; seconds of a monotonic clock, as all times below."""
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

    @classmethod
    def from_object(cls, body: Object, *, caller: str) -> Self:
        """Return the record of an object, with its caller as `Attestor` reads it. The pod is adopted by others."""
        meta = body["metadata"]
        key = object_key(body)
        record = cls(
            kind=_read_identity(body.get("spec") or {}),
            key=key,
            uid=meta["uid"],
            version=str(meta["resourceVersion"]),
            owner=Owner(namespace=key[0]),
            managed=bool(MANAGED.items() <= (meta.get("labels") or {}).items()),
            first_seen=now(),
            unused_since=now(),
            spec=SandboxSessionSpec(),
        )
        record._apply_spec(body)
        named = Owner(namespace=key[0], caller=caller.removeprefix(CLAIMED), user=record.spec.user or "")
        # an earlier operator has written an owner that was proven then
        was_proven = (body.get("status") or {}).get("ownerDigest") == named.digest
        record.unproven = caller.startswith(CLAIMED) and was_proven
        is_proven = record.unproven or not caller.startswith(CLAIMED)
        record.owner = named if is_proven else Owner(namespace=key[0], user=named.user)
        record.proof = select_proof(meta) if caller and not caller.startswith(CLAIMED) else None
        record._check_name()
        record._apply_status(body.get("status") or {})
        record.invalid = record.invalid or record.foreign
        return record

    @property
    def name(self) -> str:
        """Name of the object."""
        return self.key[1]

    @property
    def pool(self) -> ObjectKey:
        """Namespace and name of the pool."""
        return self.key[0], self.spec.pool_ref.name

    @property
    def occupies(self) -> bool:
        """Whether it has a pod or is about to get one."""
        return self.pod is not None or self.starting

    @property
    def log_fields(self) -> dict[str, Any]:
        """Fields of each log line about the session."""
        pod = self.pod.name if self.pod is not None else None
        return {"session": self.name, "namespace": self.key[0], "pool": self.pool[1], "pod": pod}

    def observe(self, body: Object) -> None:
        """Take in a newer object. An older one changes nothing."""
        version = str(body["metadata"]["resourceVersion"])
        if is_older(version, self.version):
            return
        self.version = version
        self.stored = _reduce_status(body.get("status") or {})
        self._apply_spec(body)
        self._check_name()
        self.invalid = self.invalid or self.foreign

    def start(self, pod: Pod, *, moment: datetime) -> None:
        """Begin afresh in a pod."""
        self.pod = pod
        self.end, self.reason, self.message, self.ended_at = None, SessionReason.NONE, "", None
        self.started_at, self.executions, self.memory_bytes, self.last_used_at = moment, 0, None, None
        self.resets = max(self.resets, self.spec.resets)
        self.unsettled = False

    def discard_pod(self) -> Pod | None:
        """Discard the pod and what is known of its interpreter. Return the pod."""
        pod, self.pod = self.pod, None
        self.started_at = self.memory_bytes = None
        self.end, self.reason, self.message, self.ended_at = None, SessionReason.NONE, "", None
        self.unsettled = False
        return pod

    def _apply_spec(self, body: Object) -> None:
        """Apply a spec. What cannot change stays, on a cluster that did not reject the change, too."""
        given = body.get("spec") or {}
        try:
            self.spec = SandboxSessionSpec.model_validate({**_drop_identity(given), **self.kind})
            changed = _read_identity(given) != self.kind
            self.invalid = "spec.name, spec.poolRef or spec.user was changed after its creation" if changed else ""
        except ValidationError as error:
            found = field_errors(error, SandboxSessionSpec)
            self.invalid = "; ".join(f"spec.{each.field}: {each.message}" for each in found)

    def _check_name(self) -> None:
        """Compare the object's name with the one under which executions of the owner look for it."""
        name = self.spec.name
        if not self.invalid and self.owner.is_nobody:
            self.invalid = "nothing proves who created it, so nobody may use it (docs/platform/identities.md)"
        suffix = self.owner.qualify("")
        found = self.name.endswith(suffix) if name is None else self.owner.qualify(name) == self.name
        if not self.invalid and not found:
            wanted = self.owner.qualify(name or "NAME")
            self.invalid = f"executions of its owner look for the session {name or 'NAME'} under the name {wanted}"

    def _apply_status(self, given: Object) -> None:
        self.stored = _reduce_status(given)
        try:
            status = SandboxSessionStatus.model_validate({**self.stored, "conditions": []})
        except ValidationError:
            # a newer version wrote it: what it kept is unknown here
            self.foreign = "its status was written by a newer version of the operator"
            return
        if status.phase in (SessionPhase.LOST, SessionPhase.ENDED):
            self.end, self.reason, self.ended_at = status.phase, status.reason, status.ended_at
            self.unused_since = status.ended_at or self.unused_since
            self.message = next(
                (str(each.get("message") or "") for each in self.stored.get("conditions") or ()), status.reason.meaning
            )
        self.started_at, self.last_used_at = status.started_at, status.last_used_at
        self.executions, self.memory_bytes = status.executions or 0, status.memory_bytes
        if status.owner_digest not in (None, self.owner.digest):
            # somebody changed the spec or the labels while no operator ran: its pod serves its first owner only
            self.foreign = "it belonged to another owner; delete it"
        self.resets = self.spec.resets if status.resets is None else status.resets
        self.lost_reported_to = status.lost_reported_to or ""

    @property
    def is_durable(self) -> bool:
        """Whether the next operator finds its pod, by the stored status and the pod's labels."""
        pod = self.pod
        return pod is not None and pod.seen.labelled_busy and self.find_stored_pod() == (pod.name, pod.seen.uid)

    def find_stored_pod(self) -> tuple[str, str] | None:
        """Return name and uid of the pod that the stored status keeps for it, or None."""
        name, uid = self.stored.get("podName"), self.stored.get("podUid")
        kept = self.stored.get("phase") in _KEPT_PHASES and self.stored.get("ownerDigest") == self.owner.digest
        return (str(name), str(uid)) if kept and name and uid else None


def _read_identity(spec: Object) -> Object:
    return {name: spec[name] for name in _IDENTITY if spec.get(name) is not None}


def _drop_identity(spec: Object) -> Object:
    return {name: value for name, value in spec.items() if name not in _IDENTITY}


def _reduce_status(status: Object) -> Object:
    """Return the known fields of a status."""
    return {name: value for name, value in status.items() if name in _STATUS_FIELDS}


def find_expiry(
    spec: SandboxSessionSpec, *, started_at: datetime | None, last_used_at: datetime | None
) -> tuple[datetime, SessionReason] | None:
    """Return when a session ends if no execution uses it, and why; None if it has no pod."""
    if started_at is None:
        return None
    idle_at = (last_used_at or started_at) + timedelta(seconds=spec.idle_timeout_seconds)
    old_at = started_at + timedelta(seconds=spec.max_age_seconds)
    return (idle_at, SessionReason.IDLE) if idle_at <= old_at else (old_at, SessionReason.TOO_OLD)


def find_disposable(
    unused: Iterable[SessionRecord], *, moment: datetime, max_unused: int
) -> tuple[list[SessionRecord], datetime | None]:
    """Return the sessions without a pod to delete, and when the next one is due. No execution uses them.

    Of one owner, the `max_unused` that were used last are kept, so that a caller whose code ends each new session at
    once leaves no unbounded number of objects. Objects that somebody created with limits of their own stay.
    """
    by_owner: dict[Owner, list[SessionRecord]] = defaultdict(list)
    for record in unused:
        if record.managed and not record.occupies:
            by_owner[record.owner].append(record)
    disposable: list[SessionRecord] = []
    due: datetime | None = None
    for records in by_owner.values():
        records.sort(key=lambda each: each.unused_since, reverse=True)
        for position, record in enumerate(records):
            expiry = record.unused_since + KEEP_UNUSED
            if position >= max_unused or expiry <= moment:
                disposable.append(record)
            else:
                due = min(due or expiry, expiry)
    return disposable, due


def find_excess(records: Iterable[SessionRecord], owner: Owner, *, max_per_owner: int, max_per_namespace: int) -> str:
    """Return which bound another session of an owner would exceed, or an empty text. Those without a pod are free."""
    others = [each for each in records if each.key[0] == owner.namespace and each.occupies]
    own = sum(each.owner == owner for each in others)
    if own >= max_per_owner:
        return f"the owner has {own} sessions with a pod; at most {max_per_owner} are allowed"
    if len(others) >= max_per_namespace:
        return f"the namespace has {len(others)} sessions with a pod; at most {max_per_namespace} are allowed"
    return ""
