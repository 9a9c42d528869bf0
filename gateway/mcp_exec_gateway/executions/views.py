"""Executions and tools in responses: the status as the operator wrote it, with the execution's name.

The models describe the responses to OpenAPI. Responses are built without them, because validating an output costs more
than the rest of a request.
"""

from typing import Annotated, Any, Final, Literal

from pydantic import ConfigDict, Field

from mcp_exec_api.approvals import Approval, PendingApproval
from mcp_exec_api.code_execution import CodeExecutionStatus, Phase, Start
from mcp_exec_api.constants import LABEL_CONVERSATION, LABEL_USE_CASE
from mcp_exec_api.execution_state import read_created_at
from mcp_exec_api.files.workspace import WorkspaceMode, WorkspaceStatus
from mcp_exec_api.meta import MicroTime, Model
from mcp_exec_api.reasons.execution import Reason
from mcp_exec_common.broker.attestations import Attestor
from mcp_exec_common.kube.objects import Object
from mcp_exec_gateway.executions.metadata import read_own_labels
from mcp_exec_gateway.http.query_params import Include
from mcp_exec_gateway.listing.entry import ExecutionEntry

_EMPTY_OUTPUT: Final[dict[str, Any]] = {
    "stdout": "",
    "stderr": "",
    "stdoutBytes": 0,
    "stderrBytes": 0,
    "truncated": False,
}


class UsedWorkspace(WorkspaceStatus):
    """The workspace of an execution, what the run read from it and what it saved."""

    name: str
    """Name of the workspace."""
    mode: WorkspaceMode = WorkspaceMode.WRITE
    """Write: changes are saved. Read: they are dropped."""


class ExecutionView(CodeExecutionStatus):
    """One execution: its name and its status."""

    name: str
    """Name of the execution, used in all further requests."""
    namespace: str
    """Namespace of the execution."""
    pool: str
    """Pool of the execution."""
    caller: str | None = None
    """Creator, as a label value; not set for executions created with kubectl. `claimed:` precedes a name that the
    gateway did not write."""
    description: str | None = None
    """What the code is for."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Own labels; not set if there are none."""
    conversation: str | None = None
    """Conversation that the execution is part of."""
    use_case: str | None = None
    """What the execution is for: filtering, workflow, polling or other."""
    session: str | None = None
    """Session in which the code runs."""
    workspace: UsedWorkspace | None = None
    """Workspace whose files the code has."""
    code: str | None = None
    """Code of the execution, with `include=code` only."""


class ExecutionSummary(Model):
    """One execution in a list, without its output."""

    name: str
    """Name of the execution."""
    namespace: str
    """Namespace of the execution."""
    pool: str
    """Pool of the execution."""
    caller: str | None = None
    """Creator, as a label value. `claimed:` precedes a name that the gateway did not write."""
    description: str | None = None
    """What the code is for."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Own labels; not set if there are none."""
    conversation: str | None = None
    """Conversation that the execution is part of."""
    use_case: str | None = None
    """What the execution is for: filtering, workflow, polling or other."""
    phase: Phase
    """Phase of the execution."""
    reason: Reason = Reason.NONE
    """Why the execution waits or ended as it did."""
    start: Start | None = None
    """Warm or Cold."""
    pod_name: str | None = None
    """Sandbox pod of the execution."""
    created_at: MicroTime
    """Time of creation."""
    finished_at: MicroTime | None = None
    """Time of the end."""
    duration: str | None = None
    """Total duration, for people."""


class ExecutionList(Model):
    """One page of executions."""

    items: list[ExecutionSummary]
    """Executions of the page."""
    continue_token: Annotated[str | None, Field(alias="continue")] = None
    """Token of the next page; not set on the last page."""


class ApprovalList(Model):
    """An execution's approvals."""

    items: list[Approval]
    """Approvals, oldest first."""


class PendingApprovalList(Model):
    """Pending approvals of a namespace."""

    items: list[PendingApproval]
    """Approvals, newest first."""
    complete: bool
    """False if a replica of the broker did not answer. Approvals of its executions may then be missing."""


class FoundTool(Model):
    """A tool that matches a search, in the requested detail."""

    model_config = ConfigDict(alias_generator=None)

    name: str
    """Name in Python."""
    server: str
    """Name of the server."""
    description: str | None = None
    """Description that the server gives."""
    import_line: Annotated[str | None, Field(alias="import")] = None
    """Python statement that imports the tool."""
    signature: str | None = None
    """The call in Python, with the parameters in their positional order."""
    input_schema: dict[str, Any] | None = None
    """JSON Schema of the arguments."""
    output_schema: dict[str, Any] | None = None
    """JSON Schema of the structured result, if known."""


class ServerTool(Model):
    """A tool as its server lists it."""

    name: str
    """Name at the server."""
    description: str
    """Description that the server gives."""
    input_schema: dict[str, Any]
    """JSON Schema of the arguments."""
    output_schema: dict[str, Any] | None = None
    """JSON Schema of the structured content."""
    annotations: dict[str, Any] | None = None
    """Hints such as `readOnlyHint`."""
    inferred: bool = False
    """Whether the output schema is inferred from earlier results."""


class ServerTools(Model):
    """The tools of one server."""

    server: str
    """Name of the server."""
    tools: list[ServerTool]
    """Tools, ordered by name."""


class ToolCallRecord(Model):
    """Audit record of a tool call, as the broker wrote it. Calls in progress have no end yet."""

    id: str
    """Id of the call, unique among all calls."""
    at: MicroTime
    """Time at which the broker received the call."""
    namespace: str
    """Namespace of the call."""
    source: Literal["code", "direct"] = "code"
    """`code` for a call of an execution, `direct` for a call of a caller at `/mcp`."""
    execution: str = ""
    """Name of the execution; empty for a direct call."""
    uid: str = ""
    """UID of the execution; empty for a direct call."""
    pool: str = ""
    """Pool of the execution."""
    caller: str | None = None
    """Caller, as a label value."""
    user: str | None = None
    """User on whose behalf the call was made."""
    conversation: str | None = None
    """Conversation of a direct call."""
    server: str
    """Name of the ToolServer."""
    tool: str
    """Name of the tool at the server."""
    digest: str = ""
    """SHA-256 of the arguments as the code sent them."""
    arguments: str = ""
    """Arguments as JSON, redacted and cut."""
    decision: str = ""
    """Allow, Deny or Approve."""
    reason: str = ""
    """Explanation of the decision."""
    approval: str | None = None
    """Id of the approval, if the call needed one."""
    approved_by: str | None = None
    """Who decided on the approval."""
    ended_at: MicroTime | None = None
    """Time of the end."""
    outcome: str | None = None
    """ok, error, denied, timeout, cancelled, lost or unfinished."""
    error: str = ""
    """Message of the failure."""
    duration_ms: float | None = None
    """Duration in milliseconds, with waits for approvals."""
    bytes_in: int = 0
    """Bytes of the result."""
    bytes_out: int = 0
    """Bytes of the arguments."""
    calls: int = 1
    """Number of calls: a record of denials can stand for several."""


class CallList(Model):
    """One page of audit records of tool calls."""

    items: list[ToolCallRecord]
    """Records, newest first."""
    next: str | None
    """The `cursor` of the next page; null on the last page."""


def build_view(execution: Object, *, attestor: Attestor, include: Include | None = None) -> dict[str, Any]:
    """Return one execution as a response shows it, with the empty texts that old API servers do not store."""
    status = execution.get("status") or {}
    view = {
        **_read_identity(execution, attestor.read_caller(execution)),
        "phase": "Pending",
        "reason": "",
        "createdAt": read_created_at(execution),
        **status,
    }
    if workspace := (execution.get("spec") or {}).get("workspace"):
        view["workspace"] = {**workspace, **(status.get("workspace") or {})}
    if "output" in status:
        view["output"] = _EMPTY_OUTPUT | status["output"]
    if "error" in status:
        view["error"] = {"message": "", **status["error"]}
    if include == "code":
        view["code"] = (execution.get("spec") or {}).get("code", "")
    return view


def build_summary(entry: ExecutionEntry, *, namespace: str) -> dict[str, Any]:
    """Return one execution as a list shows it."""
    optional = {
        "caller": entry.caller,
        "description": entry.description,
        "labels": read_own_labels({"labels": entry.labels}),
        "conversation": entry.conversation,
        "useCase": entry.use_case,
        "start": entry.start,
        "podName": entry.pod_name,
        "duration": entry.duration,
        "finishedAt": entry.finished_at,
    }
    return {
        "name": entry.name,
        "namespace": namespace,
        "pool": entry.pool,
        "phase": entry.phase,
        "reason": entry.reason,
        "createdAt": entry.created_at,
        **{name: value for name, value in optional.items() if value},
    }


def _read_identity(execution: Object, caller: str) -> dict[str, Any]:
    metadata, spec = execution["metadata"], execution.get("spec") or {}
    labels = metadata.get("labels") or {}
    about = {
        "caller": caller,
        "description": spec.get("description"),
        "labels": read_own_labels(metadata),
        "conversation": labels.get(LABEL_CONVERSATION),
        "useCase": labels.get(LABEL_USE_CASE),
        "session": spec.get("session"),
    }
    return {
        "name": metadata["name"],
        "namespace": metadata.get("namespace", ""),
        "pool": (spec.get("poolRef") or {}).get("name", "default"),
        **{name: value for name, value in about.items() if value},
    }
