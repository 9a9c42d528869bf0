"""Executions as the gateway shows them: the status as the operator wrote it, under the execution's name.

The models below say so to OpenAPI; answers are not built with them, which would cost more than all else does.
"""

import json
from typing import Annotated, Any, Final

from pydantic import ConfigDict, Field
from starlette.responses import Response

from mcp_exec_api.approvals import Approval
from mcp_exec_api.code_execution import CodeExecutionStatus, Phase, Reason, Start
from mcp_exec_api.constants import LABEL_CALLER
from mcp_exec_api.execution_state import read_created_at
from mcp_exec_api.meta import MicroTime, Model
from mcp_exec_common.kube.objects import Object

_OUTPUT: Final[dict[str, Any]] = {
    "stdout": "",
    "stderr": "",
    "stdoutBytes": 0,
    "stderrBytes": 0,
    "truncated": False,
}
_SUMMARY: Final = ("reason", "start", "podName", "duration", "finishedAt")


class Execution(CodeExecutionStatus):
    """One execution: its name and its status."""

    name: str
    """Its name, for all further requests."""
    namespace: str
    """Its namespace."""
    pool: str
    """The pool that it was sent to."""
    caller: str | None = None
    """Who created it, as a label value; not set for those that came past the gateway."""


class ExecutionSummary(Model):
    """One execution in a list, without its output."""

    name: str
    """Its name."""
    namespace: str
    """Its namespace."""
    pool: str
    """The pool that it was sent to."""
    caller: str | None = None
    """Who created it, as a label value."""
    phase: Phase
    """Where it is in its life."""
    reason: Reason = Reason.NONE
    """Why it waits or ended so."""
    start: Start | None = None
    """Warm or Cold."""
    pod_name: str | None = None
    """Its sandbox pod."""
    created_at: MicroTime
    """When it was created."""
    finished_at: MicroTime | None = None
    """When it ended."""
    duration: str | None = None
    """Its total duration, for people."""


class ExecutionList(Model):
    """One page of executions."""

    items: list[ExecutionSummary]
    """The executions of the page."""
    continue_token: Annotated[str | None, Field(alias="continue")] = None
    """Where there is more: the next page's `continue`."""


class ApprovalList(Model):
    """An execution's approvals."""

    items: list[Approval]
    """Oldest first."""


class FoundTool(Model):
    """A tool that was found, with as much as was asked for."""

    model_config = ConfigDict(alias_generator=None)

    name: str
    """What it is called in Python."""
    server: str
    """Its server."""
    description: str | None = None
    """What its server says of it."""
    import_line: Annotated[str | None, Field(alias="import")] = None
    """The statement that imports it."""
    input_schema: dict[str, Any] | None = None
    """JSON Schema of its arguments."""
    output_schema: dict[str, Any] | None = None
    """JSON Schema of its structured result, where it is known."""


class ServerTool(Model):
    """A tool as its server lists it."""

    name: str
    """Its name at the server."""
    description: str
    """What its server says of it."""
    input_schema: dict[str, Any]
    """JSON Schema of its arguments."""
    output_schema: dict[str, Any] | None = None
    """JSON Schema of its structured content."""
    annotations: dict[str, Any] | None = None
    """Hints such as `readOnlyHint`."""
    inferred: bool = False
    """Whether the output schema was made from results that were seen."""


class ServerTools(Model):
    """The tools of one server."""

    server: str
    """The server."""
    tools: list[ServerTool]
    """Ordered by name."""


class CallList(Model):
    """One page of records of tool calls."""

    items: list[dict[str, Any]]
    """The records, newest first."""
    next: str | None
    """The next page's `cursor`; null at the end."""


def execution_view(execution: Object) -> dict[str, Any]:
    """One execution as an answer shows it, with the empty texts that old API servers refuse to store."""
    status = execution.get("status") or {}
    view = {**_identity(execution), "phase": "Pending", "reason": "", "createdAt": read_created_at(execution), **status}
    if "output" in status:
        view["output"] = _OUTPUT | status["output"]
    if "error" in status:
        view["error"] = {"message": "", **status["error"]}
    return view


def summary_view(execution: Object) -> dict[str, Any]:
    """One execution as a list shows it."""
    status = execution.get("status") or {}
    return {
        **_identity(execution),
        "phase": status.get("phase", "Pending"),
        "reason": "",
        "createdAt": read_created_at(execution),
        **{name: status[name] for name in _SUMMARY if name in status},
    }


def _identity(execution: Object) -> dict[str, Any]:
    metadata, spec = execution["metadata"], execution.get("spec") or {}
    caller = (metadata.get("labels") or {}).get(LABEL_CALLER)
    return {
        "name": metadata["name"],
        "namespace": metadata.get("namespace", ""),
        "pool": (spec.get("poolRef") or {}).get("name", "default"),
        **({"caller": caller} if caller else {}),
    }


def to_json(data: object) -> bytes:
    """JSON as answers have it: compact, UTF-8."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def json_response(data: object, *, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """An answer with JSON in it."""
    return Response(to_json(data), status, headers=headers, media_type="application/json")
