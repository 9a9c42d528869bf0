"""Executions as responses and commands show them: objects and rows of tables, in the form of `Execution`."""

from typing import Any, Final

from mcp_exec_api.code_execution import read_created_at
from mcp_exec_api.constants import LABEL_CONVERSATION, LABEL_USE_CASE
from mcp_exec_api.wire.executions import ExecutionSummary

Object = dict[str, Any]

LISTED: Final = "listed"
"""Key of what a table's row has of a spec. An object of a row has no spec, so that it is not taken for a whole one."""
_MAX_SHOWN_LABELS: Final = 64
"""Own labels that a view shows: those of executions from kubectl have no limit."""
_EMPTY_OUTPUT: Final[Object] = {
    "stdout": "",
    "stderr": "",
    "stdoutBytes": 0,
    "stderrBytes": 0,
    "truncated": False,
}
_SUMMARY: Final = tuple(field.alias or name for name, field in ExecutionSummary.model_fields.items())


def build_execution_view(execution: Object, *, caller: str, with_code: bool = False) -> Object:
    """Return an execution in the form of `Execution`, with the empty texts that old API servers do not store.

    `caller` is its creator as the reader could check it; empty if nothing names one.
    """
    spec, status = execution.get("spec") or execution.get(LISTED) or {}, execution.get("status") or {}
    view = {
        **_read_identity(execution["metadata"], spec, caller),
        "phase": "Pending",
        "reason": "",
        "createdAt": read_created_at(execution),
        **status,
    }
    if workspace := spec.get("workspace"):
        view["workspace"] = {**workspace, **(status.get("workspace") or {})}
    if output := status.get("output"):
        view["output"] = _EMPTY_OUTPUT | output
    if error := status.get("error"):
        view["error"] = {"message": "", **error}
    if with_code:
        view["code"] = spec.get("code", "")
    return view


def build_execution_summary(execution: Object, *, caller: str) -> Object:
    """Return an execution, or a table's row as `read_listed` returns it, in the form of `ExecutionSummary`."""
    view = build_execution_view(execution, caller=caller)
    return {name: view[name] for name in _SUMMARY if name in view}


def read_listed(metadata: Object, cells: Object) -> Object:
    """Return what a table's row shows of an execution as an object without spec.

    `cells` are its values by the name of their printer column; null if the object does not have the field.
    """
    status = {
        "phase": cells.get("Phase"),
        "reason": cells.get("Reason"),
        "start": cells.get("Start"),
        "podName": cells.get("Pod"),
        "createdAt": cells.get("Created"),
        "finishedAt": cells.get("Finished"),
        "duration": cells.get("Duration"),
        "storedBytes": cells.get("Bytes"),
    }
    listed = {
        "poolRef": {"name": cells.get("Pool")},
        "description": cells.get("Description"),
        "user": (cells["User"] or "") if "User" in cells else None,
    }
    return {
        "metadata": metadata,
        LISTED: listed,
        "status": {name: value for name, value in status.items() if value},
    }


def read_own_labels(labels: Object) -> dict[str, str]:
    """Return the labels without a prefix, in the order of their keys."""
    return {key: labels[key] for key in sorted(key for key in labels if "/" not in key)[:_MAX_SHOWN_LABELS]}


def _read_identity(metadata: Object, spec: Object, caller: str) -> Object:
    labels = metadata.get("labels") or {}
    about = {
        "language": spec.get("language"),
        "caller": caller,
        "description": spec.get("description"),
        "labels": read_own_labels(labels),
        "conversation": labels.get(LABEL_CONVERSATION),
        "useCase": labels.get(LABEL_USE_CASE),
        "session": spec.get("session"),
    }
    return {
        "name": metadata["name"],
        "namespace": metadata.get("namespace", ""),
        "pool": (spec.get("poolRef") or {}).get("name") or "default",
        **{name: value for name, value in about.items() if value},
    }
