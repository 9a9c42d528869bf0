"""Sessions."""

from pydantic import Field

from mcp_exec_api.constants import Language
from mcp_exec_api.meta import Condition, MicroTime, Model, SessionName
from mcp_exec_api.reasons.execution import SessionReason
from mcp_exec_api.sandbox_session import SandboxSessionSpec, SessionPhase


class NewSession(SandboxSessionSpec):
    """Body of a request for a new session."""

    name: SessionName
    """Name of the session, unique for its owner: lower-case letters, digits and `-`, at most 50."""
    language: Language | None = None
    """Language of the session's code: python or typescript. Without `poolRef`, the session gets a pool that runs it."""


class Session(Model):
    """One session."""

    name: str
    """Name that executions of the caller use for the session."""
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
    """Seconds without an execution until the session ends."""
    max_age_seconds: int
    """Seconds until the session ends."""
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
    """Time when the session got its pod."""
    last_used_at: MicroTime | None = None
    """Time when the last execution ended."""
    expires_at: MicroTime | None = None
    """Time when the session ends if no execution uses it."""
    ended_at: MicroTime | None = None
    """Time when the session was lost or ended."""
    conditions: list[Condition] = Field(default_factory=list)
    """Ready: executions can use the session, or why not."""


class SessionList(Model):
    """The caller's sessions."""

    items: list[Session]
    """Sessions, ordered by name."""
