"""`mcp-exec agent --offline` on the cluster: a scripted model, real sandboxes and a real MCP server."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mcp_exec_client.__main__ import main as mcp_exec
from tests.e2e.support import Cluster, Gateway
from tests.e2e.toolservers import running, stdio, tool_server

pytestmark = pytest.mark.timeout(300)
TASK = "get the current time timezone=UTC"

Trace = dict[str, Any]


@pytest.fixture(scope="module")
def clock(installed: Cluster) -> Iterator[str]:
    """A server with the time."""
    command = stdio("python3", "-m", "mcp_server_time", "--local-timezone", "UTC")
    policy = {"rules": [{"tools": ["*"], "action": "Allow"}]}
    with running(installed, tool_server("clock", stdio=command, policy=policy)):
        yield "clock.*"


@pytest.fixture
def ask(clock: str, url: str, api_key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Give the task to the scripted model; return the answer and the trace."""

    def run(*options: str) -> tuple[str, Trace]:
        trace = tmp_path / "trace.json"
        given = ["--gateway", url, "--api-key", api_key, "--tool", clock, "--pool", "runc", "--trace", str(trace)]
        mcp_exec(["agent", "--offline", TASK, *given, *options])
        return capsys.readouterr().out, json.loads(trace.read_text())

    return run


def test_a_task_is_done_by_code_by_a_direct_call_and_by_rule(
    ask: Callable[..., tuple[str, Trace]], gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, trace = ask("--conversation", "by-code", "--user", "u-1")
    assert "clock.get_current_time returned" in answer
    assert '"timezone": "UTC"' in answer.replace("\\", "")
    assert [step["kind"] for step in trace["steps"]] == ["mode", "describe", "code", "execute", "results", "answer"]
    (name,) = (step["text"].partition(":")[0] for step in trace["steps"] if step["kind"] == "execute")
    execution = gateway.client.get(f"/v1/executions/{name}").json()
    assert (execution["phase"], execution["conversation"]) == ("Succeeded", "by-code")
    for mode, reason in (("direct", "the application's choice"), ("hybrid", "one small call is expected")):
        answer, trace = ask("--mode", mode, "--conversation", f"by-{mode}")
        assert "UTC" in answer
        assert [step["kind"] for step in trace["steps"]] == ["mode", "call", "results", "answer"]
        assert (trace["mode"], trace["reason"], trace["counted"]) == ("direct", reason, "estimate")
    records = gateway.client.get("/v1/audit", params={"source": "direct", "limit": 50}).json()["items"]
    calls = [each["tool"] for each in records if each["conversation"] in ("by-direct", "by-hybrid")]
    assert calls == ["get_current_time"] * 2
    monkeypatch.setenv("MCP_EXEC_FORCE_DIRECT", "1")
    assert ask()[1]["reason"] == "kill switch: $MCP_EXEC_FORCE_DIRECT"
