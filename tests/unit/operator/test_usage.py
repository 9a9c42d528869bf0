"""What an execution used is bounded by what its pod may use."""

from datetime import UTC, datetime
from typing import Any

import pytest

from mcp_exec_api.code_execution import Phase
from mcp_exec_common.supervisor.protocol import EndEvent
from mcp_exec_operator.core.pods.status import build_usage, read_pod_limits


def pod(**limits: str) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "other"}, {"name": "sandbox", "resources": {"limits": limits}}]}}


def end(**fields: Any) -> EndEvent:
    return EndEvent(seq=1, at=datetime.now(UTC), type="end", phase=Phase.SUCCEEDED, **fields)


@pytest.mark.parametrize(
    ("found", "limits"),
    [
        (pod(memory="256Mi", cpu="500m"), (256 * 2**20, 0.5)),
        (pod(memory="much"), (2**40, 64.0)),
        (pod(), (2**40, 64.0)),
        ({"spec": {"containers": []}}, (2**40, 64.0)),
        ({}, (2**40, 64.0)),
        (None, (2**40, 64.0)),
    ],
)
def test_limits_are_those_of_the_sandboxs_container(found: Any, limits: tuple[int, float]) -> None:
    assert read_pod_limits(found) == limits


def test_no_sandbox_used_more_than_its_pod_may() -> None:
    event = end(cpu_seconds=1e9, peak_memory_bytes=2**53)
    usage = build_usage(event, pod=pod(memory="1Gi", cpu="2"), sandbox_seconds=3.0, code_bytes=5)
    assert usage.to_api() == {"cpuSeconds": 8.0, "peakMemoryBytes": 2**30, "sandboxSeconds": 3.0, "codeBytes": 5}


def test_what_no_sandbox_reported_is_not_set() -> None:
    assert build_usage(None, pod=None, sandbox_seconds=-1.0, code_bytes=5).to_api() == {
        "sandboxSeconds": 0.0,
        "codeBytes": 5,
    }
    assert build_usage(end(), pod=None, sandbox_seconds=1.0, code_bytes=0).cpu_seconds is None
