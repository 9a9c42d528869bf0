"""Executions in responses: the status as the operator wrote it, with the execution's name."""

from typing import Any, Final

from mcp_exec_api.code_execution import read_created_at
from mcp_exec_api.constants import LABEL_CONVERSATION, LABEL_USE_CASE
from mcp_exec_common.broker.attestations import Attestor
from mcp_exec_common.kube.objects import Object
from mcp_exec_gateway.core.executions.lists import ExecutionEntry
from mcp_exec_gateway.core.executions.parameters import Include

_MAX_SHOWN_LABELS: Final = 64
"""Own labels that a view shows: those of executions from kubectl have no limit."""
_EMPTY_OUTPUT: Final[dict[str, Any]] = {
    "stdout": "",
    "stderr": "",
    "stdoutBytes": 0,
    "stderrBytes": 0,
    "truncated": False,
}


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
    if output := status.get("output"):
        view["output"] = _EMPTY_OUTPUT | output
    if error := status.get("error"):
        view["error"] = {"message": "", **error}
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


def read_own_labels(metadata: Object) -> dict[str, str]:
    """Return an object's labels without a prefix, in the order of their keys."""
    labels = metadata.get("labels") or {}
    return {key: labels[key] for key in sorted(key for key in labels if "/" not in key)[:_MAX_SHOWN_LABELS]}


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
