import asyncio
from typing import Any

import pytest
from tests.support.constants import SANDBOX_KEY

from mcp_exec_api.code_execution import is_finished
from mcp_exec_common.broker.attestations import Attestor
from mcp_exec_common.sandbox_keys import SandboxKeys
from mcp_exec_gateway.core.executions.index import ExecutionIndex, strip_execution

KEY = ("agents", "exec-a")
ATTESTOR = Attestor(keys=SandboxKeys(SANDBOX_KEY))


def execution(phase: str | None = None, name: str = "exec-a", caller: str = "team-a", **status: Any) -> dict[str, Any]:
    made: dict[str, Any] = {
        "metadata": {
            "name": name,
            "namespace": "agents",
            "uid": "u",
            "resourceVersion": "1",
            "creationTimestamp": "2026-11-21T20:00:00Z",
            "labels": {"mcp-exec.dev/caller": caller, "other": "x"},
            "annotations": {"mcp-exec.dev/created-at": "2026-11-21T20:00:00.000001Z"},
        },
        "spec": {"code": "x" * 1000, "context": {"a": 1}},
        **({"status": {"phase": phase, **status}} if phase else {}),
    }
    made["metadata"]["annotations"]["mcp-exec.dev/caller-proof"] = ATTESTOR.sign_caller(made)
    return made


@pytest.fixture
def executions() -> ExecutionIndex:
    return ExecutionIndex(max_waits=3, attestor=ATTESTOR)


def test_the_copy_keeps_neither_code_nor_output() -> None:
    kept = strip_execution(execution("Succeeded", output={"stdout": "x"}))
    assert kept == {
        "metadata": {
            "name": "exec-a",
            "namespace": "agents",
            "uid": "u",
            "resourceVersion": "1",
        },
        "status": {"phase": "Succeeded"},
    }
    assert strip_execution(kept) == kept


def test_a_creation_counts_from_before_it_is_seen_and_not_twice() -> None:
    now = [0.0]
    executions = ExecutionIndex(max_waits=1, attestor=ATTESTOR, clock=lambda: now[0])
    executions.add_expectation(KEY, "team-a")
    assert executions.count_active("agents", "team-a") == 1
    executions.on_change(execution(), False)
    assert executions.count_active("agents", "team-a") == 1
    executions.on_change(execution("Succeeded"), False)
    assert executions.count_active("agents", "team-a") == 0
    executions.add_expectation(("agents", "exec-never-seen"), "team-a")
    executions.add_expectation(("agents", "exec-refused"), "team-a")
    executions.remove_expectation(("agents", "exec-refused"))
    assert executions.count_active("agents", "team-a") == 1
    now[0] = 31
    assert executions.count_active("agents", "team-a") == 0


async def test_a_phase_of_a_newer_version_ends_no_wait_and_still_counts(executions: ExecutionIndex) -> None:
    with executions.wait_for(KEY, is_finished) as ending:
        executions.on_change(execution("Suspended"), False)
        assert not ending.done()
    assert executions.count_active("agents", "team-a") == 1
    assert strip_execution(execution("Suspended"))["status"] == {"phase": "Suspended"}


async def test_a_wait_that_is_left_is_forgotten(executions: ExecutionIndex) -> None:
    with pytest.raises(asyncio.TimeoutError), executions.wait_for(KEY, is_finished):
        raise TimeoutError
    assert not executions.has_waits(KEY)
    executions.on_change(execution("Succeeded"), False)
