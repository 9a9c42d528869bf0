"""What never changes of an execution, read once from its object, and what is kept of each newer object."""

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Self

from mcp_exec_api.code_execution import Phase, UseCase, is_finished, read_created_at, read_phase, spec_digest
from mcp_exec_api.constants import ANNOTATION_CREATED, ANNOTATION_LIMITED_TOOLS, LABEL_USE_CASE
from mcp_exec_api.files import Owner
from mcp_exec_api.meta import now
from mcp_exec_common.broker.attestations import CLAIMED, drop_claim, select_proof
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.reflector import ObjectKey
from mcp_exec_operator.core.executions.outcome import EXACT_CHARACTERS
from mcp_exec_tools.text import estimate_tokens

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
_MAX_WATCH_DELAY: Final = timedelta(seconds=2)


@dataclass(frozen=True, kw_only=True)
class ExecutionFacts:
    """Identity of an execution, and what its first object said that cannot change."""

    namespace: str
    name: str
    uid: str
    digest: str
    """Digest of the spec as it was first seen, which is the one that runs."""
    code_bytes: int
    """Bytes of the code."""
    code_tokens: int
    """Estimated tokens of the code; 0 if the execution had ended when it was first seen."""
    rest_bytes: int
    """Bytes that the object without its status takes in the API server, at most."""
    first_seen: datetime
    created: datetime
    """The time of creation: for an object with whole seconds only, when it was first seen, if that was soon after."""
    use_case: str
    """The use case that its label names; empty for all other labels, which are unbounded."""
    pool: ObjectKey
    """Namespace and name of the requested pool."""
    owner: Owner
    """Who may use again what it leaves; nobody unless its caller is proven."""
    has_limited_tools: bool = False
    """Whether its caller's API key may use some tools only."""
    claimed_caller: str = ""
    """The caller that it names without a proof, as `claimed:NAME`. It is recorded and has no effect."""
    proof: Object | None = None
    """What proves its caller, as `select_proof` returns it; None if nothing does."""

    @classmethod
    def from_object(cls, body: Object, *, caller: str = "") -> Self:
        """Return the facts of an object, with its caller as `Attestor` reads it."""
        meta, spec = body["metadata"], body.get("spec") or {}
        code = str(spec.get("code") or "")
        first_seen = now()
        owner = Owner(namespace=meta["namespace"], caller=drop_claim(caller), user=str(spec.get("user") or ""))
        return cls(
            namespace=meta["namespace"],
            name=meta["name"],
            uid=meta["uid"],
            digest=spec_digest(spec),
            code_bytes=len(code.encode("utf-8", "surrogatepass")),
            # a start with many finished executions must not estimate them all
            code_tokens=0 if is_finished(body) else estimate_tokens(code, exact_characters=EXACT_CHARACTERS),
            rest_bytes=measure_stored_bytes({"metadata": meta, "spec": spec}),
            first_seen=first_seen,
            created=_read_created(body, first_seen=first_seen),
            use_case=_read_use_case(meta.get("labels") or {}),
            pool=(meta["namespace"], str((spec.get("poolRef") or {}).get("name") or "default")),
            owner=owner,
            has_limited_tools=ANNOTATION_LIMITED_TOOLS in (meta.get("annotations") or {}),
            claimed_caller=caller if caller.startswith(CLAIMED) else "",
            proof=select_proof(meta) if owner.caller else None,
        )

    @property
    def named_caller(self) -> str:
        """The caller that it names, with or without a proof; empty if it names none."""
        return self.owner.caller or self.claimed_caller


@dataclass(frozen=True, kw_only=True)
class ExecutionSeen:
    """What the newest object of an execution says."""

    body: Object
    """The object without what may be large and is needed once at most: code, context, output, other metadata."""
    version: str
    """The resource version."""
    phase: Phase | None
    """None if a newer version of the operator wrote one that is unknown here."""
    status: Object
    """Empty if nothing was written yet."""
    cancel_requested: bool

    @classmethod
    def from_object(cls, body: Object) -> Self:
        """Return what an object says, which must not be written: the status of a finished one has lost its output."""
        metadata, spec, status = body["metadata"], body.get("spec") or {}, body.get("status") or {}
        created = (metadata.get("annotations") or {}).get(ANNOTATION_CREATED)
        reduced = {
            "metadata": {
                **{name: metadata[name] for name in _METADATA if name in metadata},
                **({} if created is None else {"annotations": {ANNOTATION_CREATED: str(created)[:_MAX_CREATED]}}),
            },
            "spec": {name: spec[name] for name in _MUTABLE_SPEC if name in spec},
            "status": {name: value for name, value in status.items() if name != "output"},
        }
        return cls(
            body=reduced,
            version=str(metadata["resourceVersion"]),
            phase=read_phase(reduced),
            status=reduced["status"],
            cancel_requested=bool(spec.get("cancelRequested")),
        )


def _read_created(body: Object, *, first_seen: datetime) -> datetime:
    recorded = read_created_at(body)
    try:
        created = datetime.fromisoformat(recorded)
        delay = first_seen - created
    except (ValueError, TypeError):  # no time, or one without a zone: somebody else wrote the status
        return first_seen
    is_coarse = recorded == body["metadata"].get("creationTimestamp")
    return first_seen if is_coarse and timedelta() <= delay < _MAX_WATCH_DELAY else created


def _read_use_case(labels: Object) -> str:
    try:
        return UseCase(str(labels.get(LABEL_USE_CASE))).value
    except ValueError:
        return ""


def measure_stored_bytes(value: Any) -> int:
    """Return an upper bound of a value's size as JSON, both as Python and as the API server write it."""
    text = json.dumps(value)
    return len(text) + 5 * sum(text.count(mark) for mark in "<>&")
