"""Sessions in requests and responses."""

from typing import Any

from pydantic import Field

from mcp_exec_api.execution_state import read_created_at
from mcp_exec_api.meta import Condition, MicroTime, Model, SessionName
from mcp_exec_api.owner import Owner
from mcp_exec_api.reasons.session import SessionReason
from mcp_exec_api.sandbox_session import SandboxSessionSpec, SessionPhase
from mcp_exec_common.kube.objects import Object


class NewSession(SandboxSessionSpec):
    """Body of a request for a new session."""

    name: SessionName
    """Name of the session, unique for its owner: lower-case letters, digits and `-`, at most 50."""


class SessionView(Model):
    """One session."""

    name: str
    """Name by which executions of the caller use the session."""
    namespace: str
    """Namespace of the session."""
    pool: str
    """Pool whose pod the session keeps."""
    caller: str | None = None
    """Owner of the session, as a label value."""
    user: str | None = None
    """User on whose behalf the session's code runs."""
    description: str | None = None
    """What the session is for."""
    phase: SessionPhase = SessionPhase.PENDING
    """Pending: has no pod yet. Ready: has a pod and runs nothing. Busy: runs an execution. Lost and Ended: variables
    and files are gone."""
    reason: SessionReason = SessionReason.NONE
    """Reason for the phase."""
    executions: int = 0
    """Executions that ran in the present pod."""
    queued: int = 0
    """Executions that wait for their turn."""
    memory_bytes: int | None = None
    """Memory of the session's processes after its last execution."""
    idle_timeout_seconds: int
    """Seconds without an execution after which the session ends."""
    max_age_seconds: int
    """Seconds after which the session ends."""
    max_queued: int
    """Executions that may wait while another one runs."""
    resets: int = 0
    """Number of resets that were requested."""
    pod_name: str | None = None
    """Sandbox pod of the session."""
    node_name: str | None = None
    """Node of the pod."""
    created_at: MicroTime
    """Time of creation."""
    started_at: MicroTime | None = None
    """Time at which the session got its pod."""
    last_used_at: MicroTime | None = None
    """Time at which the last execution ended."""
    expires_at: MicroTime | None = None
    """Time at which the session ends if no execution uses it."""
    ended_at: MicroTime | None = None
    """Time at which the session was lost or ended."""
    conditions: list[Condition] = Field(default_factory=list)
    """Ready: executions can use the session, or why not."""


class SessionList(Model):
    """The caller's sessions."""

    items: list[SessionView]
    """Sessions, ordered by name."""


_FROM_STATUS = (
    "reason",
    "executions",
    "queued",
    "memoryBytes",
    "podName",
    "nodeName",
    "startedAt",
    "lastUsedAt",
    "expiresAt",
    "endedAt",
    "conditions",
)


def build_session_view(session: Object, owner: Owner) -> dict[str, Any]:
    """Return a session as a response shows it, with the spec's defaults."""
    metadata, spec, status = session["metadata"], session.get("spec") or {}, session.get("status") or {}
    defaults = {"idleTimeoutSeconds": None, "maxAgeSeconds": None, "maxQueued": None}
    for name in ("idle_timeout_seconds", "max_age_seconds", "max_queued"):
        field = SandboxSessionSpec.model_fields[name]
        defaults[str(field.alias)] = field.default
    optional = {
        "caller": owner.caller,
        "user": owner.user,
        "description": spec.get("description"),
        **{name: status.get(name) for name in _FROM_STATUS},
    }
    return {
        "name": spec.get("name") or metadata["name"],
        "namespace": owner.namespace,
        "pool": (spec.get("poolRef") or {}).get("name", "default"),
        "phase": status.get("phase") or SessionPhase.PENDING.value,
        "reason": "",
        "executions": 0,
        "queued": 0,
        **{name: spec.get(name, default) for name, default in defaults.items()},
        "resets": spec.get("resets") or 0,
        "createdAt": read_created_at(session),
        **{name: value for name, value in optional.items() if value not in (None, "")},
    }
