"""One unfinished execution in memory."""

import asyncio
import hashlib
import json
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from pydantic import ValidationError

from mcp_exec_api.code_execution import IMMUTABLE, Phase, UseCase, is_finished, read_created_at, read_phase, spec_digest
from mcp_exec_api.constants import ANNOTATION_CREATED, LABEL_USE_CASE
from mcp_exec_api.files import Owner, WorkspaceMode, WorkspaceRef
from mcp_exec_api.meta import now
from mcp_exec_api.reasons.execution import Reason
from mcp_exec_common.broker.attestations import CLAIMED, drop_claim, select_proof
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.reflector import ObjectKey, object_key
from mcp_exec_operator.cluster.kube.observations import is_older
from mcp_exec_operator.core.executions.outcome import (
    EndedBeforeRun,
    ExecutionOutcome,
    build_cancellation,
    build_failure,
    estimate_part,
)
from mcp_exec_operator.core.pods.pod import Pod
from mcp_exec_operator.core.queueing.turns import Turn
from mcp_exec_operator.features.sessions.claims import SessionRequest, SessionTurn

_MAX_WATCH_DELAY: Final = timedelta(seconds=2)
_MAX_CREATED: Final = 256
"""Characters that are kept of the annotation with the time of creation."""
_METADATA: Final = (
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
)
_MUTABLE_SPEC: Final = ("cancelRequested", "ttlSecondsAfterFinished")


class WorkspaceKey(NamedTuple):
    """Identity of a workspace: the digest of its owner, and its name."""

    owner: str
    name: str


class BoundPod(NamedTuple):
    """The pod of an execution, and the digest of the only owner that its sandbox serves, if it serves more than one."""

    pod: Pod
    owner: str | None


@dataclass(kw_only=True, eq=False)
class ExecutionRecord:
    """The newest state of an execution, and the state of its task."""

    body: Object
    """The newest object without what may be large: code, context, output, and metadata that nothing reads."""
    key: ObjectKey
    uid: str
    spec: Object | None
    """The spec as it was first seen, which is the one that runs; None once it was discarded to save memory."""
    digest: str
    """Digest of that spec."""
    code_bytes: int
    """Bytes of the code."""
    code_tokens: int
    """Estimated tokens of the code; 0 if the execution had ended when it was first seen."""
    rest_bytes: int
    """Bytes that the object without its status takes in the API server, at most."""
    first_seen: datetime
    use_case: str
    """The use case that its label names; empty for all other labels, which are unbounded."""
    pool: ObjectKey
    """Namespace and name of the requested pool."""
    owner: Owner
    """Who may use again what it leaves; nobody unless its caller is proven."""
    claimed_caller: str = ""
    """The caller that it names without a proof, as `claimed:NAME`. It is recorded and has no effect."""
    proof: Object | None = None
    """What proves its caller, as `select_proof` returns it; None if nothing does."""
    session: SessionRequest | None = None
    """The session in which it runs, if any."""
    session_turn: SessionTurn | None = None
    """Its turn in the session, from joining the queue to its end."""
    workspace: WorkspaceKey | None = None
    """The workspace that it writes, if any."""
    workspace_turn: Turn[WorkspaceKey] | None = None
    """Its turn at the workspace, from joining the queue to its end."""
    pod_name: str = ""
    """Name of the pod that it has or is bound to; empty if it has none."""
    weight: int = 0
    """Bytes of memory of the spec."""
    bound_pod: BoundPod | None = None
    """Its pod, once it is bound to it."""
    outcome: ExecutionOutcome | None = None
    """How it ended, once that is known."""
    task: asyncio.Task[None] | None = None
    deleted: bool = False
    """Whether the object was deleted."""
    cancelled: str = ""
    """Why the operator cancels it: its pool or its namespace is deleted."""
    started: bool = False
    """Whether the task has made its first step."""
    writing: int = 0
    """Status writes in flight, which a shutdown waits for."""
    wakeup: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a cancellation is requested, the spec changes, the pod is lost, or the pod's node changes."""
    changed: list[str] = field(default_factory=list)
    """Immutable fields of the spec that were changed, on a cluster that did not reject it."""
    _field_digests: dict[str, bytes] = field(default_factory=dict)
    """Digests of the fields of a spec that was discarded."""

    @classmethod
    def from_object(cls, body: Object, *, caller: str = "") -> "ExecutionRecord":
        """Return the record of an execution that was not known before, with its caller as `Attestor` reads it."""
        meta, spec = body["metadata"], body.get("spec") or {}
        pool = (spec.get("poolRef") or {}).get("name") or "default"
        claimed = caller if caller.startswith(CLAIMED) else ""
        owner = Owner(namespace=meta["namespace"], caller=drop_claim(caller), user=str(spec.get("user") or ""))
        session = str(spec.get("session") or "")
        return cls(
            body=reduce_body(body),
            key=object_key(body),
            uid=meta["uid"],
            spec=spec,
            digest=spec_digest(spec),
            code_bytes=len(str(spec.get("code") or "").encode("utf-8", "surrogatepass")),
            # a start with many finished executions must not estimate them all
            code_tokens=0 if is_finished(body) else estimate_part(str(spec.get("code") or "")),
            rest_bytes=measure_stored_bytes({"metadata": meta, "spec": spec}),
            first_seen=now(),
            use_case=_read_use_case(meta.get("labels") or {}),
            pool=(meta["namespace"], str(pool)),
            owner=owner,
            claimed_caller=claimed,
            proof=select_proof(meta) if owner.caller else None,
            session=SessionRequest(uid=meta["uid"], name=session, owner=owner, pool=str(pool)) if session else None,
            workspace=_read_written_workspace(spec, owner),
            pod_name=str((body.get("status") or {}).get("podName") or ""),
        )

    @property
    def namespace(self) -> str:
        """The execution's namespace."""
        return self.key[0]

    @property
    def name(self) -> str:
        """The execution's name."""
        return self.key[1]

    @property
    def caller(self) -> str:
        """The proven caller: of the gateway, or the account that created it; empty if there is none."""
        return self.owner.caller

    @property
    def named_caller(self) -> str:
        """The caller that it names, with or without a proof; empty if it names none."""
        return self.owner.caller or self.claimed_caller

    @property
    def status(self) -> Object:
        """The newest status."""
        return self.body.get("status") or {}

    @property
    def pod_uid(self) -> str:
        """Uid of the pod that the status names; empty if the status has none."""
        return str(self.status.get("podUid") or "")

    @property
    def phase(self) -> Phase | None:
        """The newest phase; None if a newer version wrote one that is unknown here."""
        return read_phase(self.body)

    @property
    def version(self) -> str:
        """The newest resource version."""
        return str(self.body["metadata"]["resourceVersion"])

    @property
    def cancel_requested(self) -> bool:
        """Whether a cancellation is requested."""
        return bool((self.body.get("spec") or {}).get("cancelRequested"))

    @property
    def is_unwanted(self) -> bool:
        """Whether it is to be cancelled, on request or by the operator."""
        return self.cancel_requested or bool(self.cancelled)

    def check_wanted(self) -> None:
        """Raise EndedBeforeRun if it is to be cancelled, or if its spec is not the one that was created."""
        if self.is_unwanted:
            raise EndedBeforeRun(build_cancellation(self.cancelled))
        if self.changed:
            names = " and ".join(f"spec.{name}" for name in self.changed)
            raise EndedBeforeRun(build_failure(Reason.REJECTED, f"{names} was changed after creation"))

    def cancel(self, why: str) -> None:
        """Cancel it, because it cannot go on."""
        if not self.cancelled:
            self.cancelled = why
            self.wakeup.set()

    @property
    def log_fields(self) -> dict[str, Any]:
        """Fields of each log line about the execution."""
        return {"execution": self.name, "namespace": self.namespace, "pool": self.pool[1], "pod": self.pod_name or None}

    def observe(self, body: Object) -> None:
        """Take in a newer object. An older one, which a watch may deliver late, changes nothing."""
        if is_older(str(body["metadata"]["resourceVersion"]), self.version):
            return
        spec_touched = body["metadata"].get("generation") != self.body["metadata"].get("generation")
        was_requested = self.cancel_requested
        self.body = reduce_body(body)
        if spec_touched and spec_digest(body.get("spec") or {}) != self.digest:
            self.changed = self.list_changes(body.get("spec") or {})
            self.wakeup.set()
        if self.cancel_requested and not was_requested:
            self.wakeup.set()

    def discard_spec(self) -> None:
        """Discard the spec to save memory. What can still change in it is recognised by digests."""
        if self.spec is not None:
            self._field_digests = {name: _digest(self.spec.get(name)) for name in IMMUTABLE}
            self.spec = None

    def list_changes(self, spec: Object) -> list[str]:
        """Return the names of the immutable fields whose values differ from those of the spec that runs."""
        if self.spec is not None:
            return [name for name in IMMUTABLE if self.spec.get(name) != spec.get(name)]
        return [name for name in IMMUTABLE if self._field_digests.get(name) != _digest(spec.get(name))]

    def created_at(self) -> datetime:
        """Return the time of creation.

        An object with whole seconds only gets the time when it was first seen, if that was soon after.
        """
        recorded = read_created_at(self.body)
        created = datetime.fromisoformat(recorded)
        if recorded != self.body["metadata"]["creationTimestamp"]:
            return created
        return self.first_seen if timedelta() <= self.first_seen - created < _MAX_WATCH_DELAY else created


def _read_use_case(labels: Object) -> str:
    try:
        return UseCase(str(labels.get(LABEL_USE_CASE))).value
    except ValueError:
        return ""


def reduce_body(body: Object) -> Object:
    """Return an object without what may be large and is needed once at most.

    A status that was reduced must not be written: that of a finished execution has lost its output.
    """
    metadata, spec, status = body["metadata"], body.get("spec") or {}, body.get("status") or {}
    created = (metadata.get("annotations") or {}).get(ANNOTATION_CREATED)
    return {
        "metadata": {
            **{name: metadata[name] for name in _METADATA if name in metadata},
            **({} if created is None else {"annotations": {ANNOTATION_CREATED: str(created)[:_MAX_CREATED]}}),
        },
        "spec": {name: spec[name] for name in _MUTABLE_SPEC if name in spec},
        "status": {name: value for name, value in status.items() if name != "output"},
    }


def measure_stored_bytes(value: Any) -> int:
    """Return an upper bound of a value's size as JSON, both as Python and as the API server write it."""
    text = json.dumps(value)
    return len(text) + 5 * sum(text.count(mark) for mark in "<>&")


def _read_written_workspace(spec: Object, owner: Owner) -> WorkspaceKey | None:
    """Return the workspace that a spec writes, if any. The spec may be invalid."""
    try:
        workspace = WorkspaceRef.model_validate(spec.get("workspace"))
    except ValidationError:
        return None
    return WorkspaceKey(owner=owner.digest, name=workspace.name) if workspace.mode is WorkspaceMode.WRITE else None


def _digest(value: Any) -> bytes:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).digest()
