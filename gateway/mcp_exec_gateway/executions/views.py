"""Executions and tools in responses: the status as the operator wrote it, with the execution's name.

The models describe the responses to OpenAPI. Responses are built without them, because validating an output costs more
than the rest of a request.
"""

from typing import Annotated, Any, Final

from pydantic import ConfigDict, Field

from mcp_exec_api.approvals import Approval
from mcp_exec_api.code_execution import CodeExecutionStatus, Phase, Start
from mcp_exec_api.execution_state import read_created_at
from mcp_exec_api.meta import MicroTime, Model
from mcp_exec_api.reasons import Reason
from mcp_exec_common.broker.attestations import Attestor
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.pages import TableRow

_EMPTY_OUTPUT: Final[dict[str, Any]] = {
    "stdout": "",
    "stderr": "",
    "stdoutBytes": 0,
    "stderrBytes": 0,
    "truncated": False,
}
_SUMMARY_COLUMNS: Final = {
    "reason": "Reason",
    "start": "Start",
    "podName": "Pod",
    "duration": "Duration",
    "finishedAt": "Finished",
}


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


class CallList(Model):
    """One page of audit records of tool calls."""

    items: list[dict[str, Any]]
    """Records, newest first."""
    next: str | None
    """The `cursor` of the next page; null on the last page."""


def build_view(execution: Object, *, attestor: Attestor) -> dict[str, Any]:
    """Return one execution as a response shows it, with the empty texts that old API servers do not store."""
    status = execution.get("status") or {}
    view = {
        **_read_identity(execution, attestor.read_caller(execution)),
        "phase": "Pending",
        "reason": "",
        "createdAt": read_created_at(execution),
        **status,
    }
    if "output" in status:
        view["output"] = _EMPTY_OUTPUT | status["output"]
    if "error" in status:
        view["error"] = {"message": "", **status["error"]}
    return view


def build_summary(row: TableRow, *, attestor: Attestor) -> dict[str, Any]:
    """Return one execution as a list shows it."""
    metadata, cells = row.metadata, row.cells
    pool = {"poolRef": {"name": cells["Pool"]}} if cells.get("Pool") else {}
    execution = {"metadata": metadata, "spec": pool, "status": {"createdAt": cells.get("Created")}}
    return {
        **_read_identity(execution, attestor.read_listed_caller(metadata)),
        "phase": cells.get("Phase") or "Pending",
        "reason": "",
        "createdAt": read_created_at(execution),
        **{name: cells[column] for name, column in _SUMMARY_COLUMNS.items() if cells.get(column)},
    }


def _read_identity(execution: Object, caller: str) -> dict[str, Any]:
    metadata, spec = execution["metadata"], execution.get("spec") or {}
    return {
        "name": metadata["name"],
        "namespace": metadata.get("namespace", ""),
        "pool": (spec.get("poolRef") or {}).get("name", "default"),
        **({"caller": caller} if caller else {}),
    }
