"""SandboxSession: one pod that is kept for one owner across executions."""

from typing import Annotated, Any, Final

from pydantic import AfterValidator, ConfigDict, Field, JsonValue

from mcp_exec_api.code_execution import PoolRef
from mcp_exec_api.constants import (
    DEFAULT_SESSION_AGE_SECONDS,
    DEFAULT_SESSION_IDLE_SECONDS,
    DEFAULT_SESSION_QUEUED,
    MAX_SESSION_AGE_SECONDS,
    MAX_SESSION_QUEUED,
)
from mcp_exec_api.meta import Condition, MicroTime, Model, OpenEnum, SessionName, check_one_line
from mcp_exec_api.reasons.execution import SessionReason

_IMMUTABLE: Final = ("name", "poolRef", "user")


class SessionPhase(OpenEnum):
    """Phase of a session."""

    PENDING = "Pending"
    READY = "Ready"
    BUSY = "Busy"
    LOST = "Lost"
    ENDED = "Ended"


def _build_rules() -> list[JsonValue]:
    optional = {"name", "user"}
    rules: list[JsonValue] = []
    for name in _IMMUTABLE:
        same = f"self.{name} == oldSelf.{name}"
        if name in optional:
            same = f"has(self.{name}) == has(oldSelf.{name}) && (!has(self.{name}) || {same})"
        rules.append({"rule": same, "message": f"spec.{name} of a session is immutable"})
    rules.append({"rule": "self.resets >= oldSelf.resets", "message": "spec.resets cannot be lowered"})
    return rules


class SandboxSessionSpec(Model):
    """A session and its limits. `name`, `poolRef` and `user` cannot change."""

    model_config = ConfigDict(json_schema_extra={"x-kubernetes-validations": _build_rules()})

    name: SessionName | None = None
    """Name that executions of the owner use for the session; by default the name of the object."""
    pool_ref: PoolRef = PoolRef()
    """Pool whose pod the session keeps; by default the pool named `default`. Executions must name the same pool."""
    user: Annotated[str | None, Field(min_length=1, max_length=253)] = None
    """User on whose behalf the session's code runs. Only executions with the same `user` can use the session."""
    idle_timeout_seconds: Annotated[int, Field(ge=1, le=MAX_SESSION_AGE_SECONDS)] = DEFAULT_SESSION_IDLE_SECONDS
    """Seconds without an execution until the session ends; the default is 15 minutes."""
    max_age_seconds: Annotated[int, Field(ge=1, le=MAX_SESSION_AGE_SECONDS)] = DEFAULT_SESSION_AGE_SECONDS
    """Seconds until the session ends, counted from the moment it got its pod; the default is 8 hours. A run is
    not interrupted."""
    max_queued: Annotated[int, Field(ge=0, le=MAX_SESSION_QUEUED)] = DEFAULT_SESSION_QUEUED
    """Executions that may wait while another one runs in the session. Further ones fail with `SessionBusy`."""
    description: Annotated[
        str | None,
        Field(max_length=200, json_schema_extra={"pattern": r"^[^\x00-\x1f\x7f-\x9f]*$"}),
        AfterValidator(check_one_line),
    ] = None
    """What the session is for, for people: one line of at most 200 characters."""
    resets: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    """Number of resets so far. A higher number than `status.resets` resets the session: a running execution is
    cancelled, and the next one starts in a new pod. It cannot be lowered."""


class SandboxSessionStatus(Model):
    """State of the session. Only the operator writes it."""

    phase: SessionPhase | None = None
    """Pending: has no pod yet. Ready: has a pod and runs nothing. Busy: runs an execution. Lost and Ended: the
    interpreter and its files are gone; the next execution fails with `SessionLost`, and later ones start afresh."""
    reason: SessionReason = SessionReason.NONE
    """Reason for the phase, for example `Idle` if no execution used the session for too long."""
    conditions: list[Condition] = Field(default_factory=list)
    """Ready: executions can use the session, or why not."""
    owner: str | None = None
    """Who may use the session: its caller, and the user if it has one. `nobody` if nothing proves who created it."""
    owner_digest: str | None = None
    """Digest of namespace, caller and user: the label `mcp-exec.dev/owner` of the pod."""
    caller: str | None = None
    """Caller whose session it is; `k8s/USERNAME` is an account that created it through the Kubernetes API."""
    pod_name: str | None = None
    """Name of the session's pod."""
    pod_uid: str | None = None
    """Uid of the session's pod. Another pod of that name is not the session's."""
    node_name: str | None = None
    """Name of the pod's node."""
    started_at: MicroTime | None = None
    """Time when the session got its pod."""
    executions: Annotated[int | None, Field(ge=0)] = None
    """Executions that ran in the present pod."""
    queued: Annotated[int | None, Field(ge=0)] = None
    """Executions that wait for their turn."""
    memory_bytes: Annotated[int | None, Field(ge=0)] = None
    """Memory of the session's processes after its last execution, as the sandbox measured it."""
    memory: str | None = None
    """The same for people, for example `48Mi`."""
    last_used_at: MicroTime | None = None
    """Time when the last execution ended."""
    expires_at: MicroTime | None = None
    """Time when the session ends if no execution uses it."""
    ended_at: MicroTime | None = None
    """Time when the session was lost or ended."""
    resets: Annotated[int | None, Field(ge=0)] = None
    """Value of `spec.resets` that was handled last."""
    lost_reported_to: str | None = None
    """Uid of the execution that failed with `SessionLost` last. It fails so after a restart of the operator, too."""


UNOBSERVED_STATUS: Final[dict[str, Any]] = {"reason": str(SessionReason.NOT_OBSERVED)}
"""Status of a session that no operator has seen: it would be blank in a namespace that is not served."""

SELECTABLE_FIELDS: Final = (
    ".status.phase",
    ".status.reason",
    ".status.owner",
    ".status.podName",
    ".spec.name",
    ".spec.user",
    ".spec.poolRef.name",
)
PRINTER_COLUMNS: list[dict[str, Any]] = [
    {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
    {"name": "Pool", "type": "string", "jsonPath": ".spec.poolRef.name"},
    {"name": "Owner", "type": "string", "jsonPath": ".status.owner"},
    {"name": "Pod", "type": "string", "jsonPath": ".status.podName"},
    {"name": "Executions", "type": "integer", "jsonPath": ".status.executions"},
    {"name": "Memory", "type": "string", "jsonPath": ".status.memory"},
    {"name": "Last Used", "type": "date", "jsonPath": ".status.lastUsedAt"},
    {"name": "Reason", "type": "string", "jsonPath": ".status.reason", "priority": 1},
    {"name": "Queued", "type": "integer", "jsonPath": ".status.queued", "priority": 1},
    {"name": "Expires", "type": "string", "jsonPath": ".status.expiresAt", "priority": 1},
    {"name": "Description", "type": "string", "jsonPath": ".spec.description", "priority": 1},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
]


def format_memory(count: int) -> str:
    """Format bytes for people: `48Mi`, or `1.5Gi` from 1 GiB on."""
    return f"{count / 2**20:.0f}Mi" if count < 2**30 else f"{count / 2**30:.1f}Gi"
