"""Executions as kubectl's plugin shows them: as the gateway does, which alone can check who created them."""

from typing import Any

import pytest
from tests.support.api_server import build_table
from tests.support.constants import SANDBOX_KEY

from mcp_exec_api.code_execution import Phase
from mcp_exec_api.wire.executions import Execution, ExecutionSummary
from mcp_exec_client.cli.backends import cluster
from mcp_exec_common.broker.attestations import Attestor
from mcp_exec_common.kube.pages import name_cells
from mcp_exec_common.sandbox_keys import SandboxKeys
from mcp_exec_gateway.core.executions import views
from mcp_exec_gateway.core.executions.lists import ExecutionEntry, read_row

ATTESTOR = Attestor(keys=SandboxKeys(SANDBOX_KEY))
CREATED = "2026-11-21T20:00:00.123456Z"
FINISHED = "2026-11-21T20:00:01.000000Z"
RAN = {"start": "Warm", "podName": "default-7k2mq", "createdAt": CREATED}
ENDED = {**RAN, "finishedAt": FINISHED, "duration": "12ms", "durations": {"queued": 1.2, "run": 12.4, "total": 19.9}}
APPROVAL = {
    "id": "approval-1",
    "tool": "github.merge",
    "arguments": "{}",
    "argumentsDigest": "sha256:" + "0" * 64,
    "state": "Pending",
    "requestedAt": CREATED,
    "expiresAt": FINISHED,
}
STATUSES: dict[str, dict[str, Any] | None] = {
    "not observed": None,
    "Pending": {
        "phase": "Pending",
        "reason": "PoolAtCapacity",
        "queue": {"position": 2, "of": 3},
        "createdAt": CREATED,
    },
    "Running": {"phase": "Running", **RAN, "approvals": [APPROVAL]},
    "Succeeded": {
        "phase": "Succeeded",
        **ENDED,
        "output": {"stdout": "17\n", "result": {"total": 4210.5}, "stdoutBytes": 3},
        "toolCalls": {"total": 1, "failed": 0, "byTool": {"expenses.get_expenses": 1}},
        "workspace": {"base": 3, "version": 4, "changedFiles": 1, "bytes": 2048},
        "storedBytes": 4096,
    },
    "Failed": {"phase": "Failed", "reason": "UserError", **ENDED, "error": {"type": "KeyError", "line": 1}},
    "TimedOut": {"phase": "TimedOut", "reason": "Timeout", **ENDED, "output": {"stderr": "slow\n"}},
    "Cancelled": {"phase": "Cancelled", "reason": "Cancelled", "createdAt": CREATED, "finishedAt": FINISHED},
}
SPEC = {
    "code": "1",
    "poolRef": {"name": "big"},
    "description": "Expenses over $100",
    "session": "analysis",
    "workspace": {"name": "sales", "mode": "Write"},
    "user": "u-42",
}
LABELS = {
    "mcp-exec.dev/caller": "team-a",
    "mcp-exec.dev/conversation": "c-42",
    "mcp-exec.dev/use-case": "filtering",
    "report": "weekly",
    "app.kubernetes.io/managed-by": "mcp-exec",
}


def build(status: dict[str, Any] | None, *, spec: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    meta = {"name": "exec-a", "namespace": "agents", "creationTimestamp": "2026-11-21T20:00:00Z", **metadata}
    return {"metadata": meta, "spec": spec, **({"status": status} if status else {})}


EXECUTIONS = {
    **{name: build(status, spec=SPEC, labels=LABELS) for name, status in STATUSES.items()},
    "created by an account": build(
        None, spec={"code": "1"}, annotations={"mcp-exec.dev/created-by": "jane", "mcp-exec.dev/created-at": CREATED}
    ),
    "bare": build(None, spec={}),
}


def test_there_is_an_execution_of_every_phase() -> None:
    assert set(Phase) <= STATUSES.keys()


@pytest.mark.parametrize("execution", EXECUTIONS.values(), ids=EXECUTIONS)
def test_the_plugin_shows_an_execution_as_the_gateway_does(execution: dict[str, Any]) -> None:
    shown = cluster.build_view(execution, with_code=True)
    assert shown == views.build_view(execution, attestor=ATTESTOR, include="code")
    Execution.model_validate(shown)


@pytest.mark.parametrize("execution", EXECUTIONS.values(), ids=EXECUTIONS)
def test_the_plugin_lists_an_execution_as_the_gateway_does(execution: dict[str, Any]) -> None:
    table = build_table([execution])
    row = name_cells(table["columnDefinitions"], table["rows"][0])
    caller = ATTESTOR.read_listed_caller(row.metadata)
    entry = ExecutionEntry.from_object(read_row(row), caller=caller)
    listed = cluster.build_summary(row)
    assert listed == views.build_summary(entry, namespace="agents")
    ExecutionSummary.model_validate(listed)


def test_the_plugin_shows_labels_conversation_use_case_and_workspace() -> None:
    shown = cluster.build_view(EXECUTIONS["Succeeded"])
    assert (shown["labels"], shown["conversation"], shown["useCase"]) == ({"report": "weekly"}, "c-42", "filtering")
    assert (shown["workspace"]["name"], shown["workspace"]["version"]) == ("sales", 4)
    assert shown["caller"] == "claimed:team-a"
