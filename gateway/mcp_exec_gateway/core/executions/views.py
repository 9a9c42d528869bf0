"""Executions in responses: the status as the operator wrote it, with the execution's name."""

from typing import Any

from mcp_exec_api.wire.execution_views import build_execution_view, read_own_labels
from mcp_exec_common.broker.attestations import Attestor
from mcp_exec_common.kube.objects import Object
from mcp_exec_gateway.core.executions.lists import ExecutionEntry
from mcp_exec_gateway.core.executions.parameters import Include


def build_view(execution: Object, *, attestor: Attestor, include: Include | None = None) -> dict[str, Any]:
    """Return one execution as a response shows it."""
    return build_execution_view(execution, caller=attestor.read_caller(execution), with_code=include == "code")


def build_summary(entry: ExecutionEntry, *, namespace: str) -> dict[str, Any]:
    """Return one execution as a list shows it."""
    optional = {
        "caller": entry.caller,
        "description": entry.description,
        "labels": read_own_labels(entry.labels),
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
