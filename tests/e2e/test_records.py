"""Records on a cluster: an execution and its tool calls outlive the execution, and are exported."""

import json
import os
import subprocess
import sys
from typing import Any

import httpx
import pytest

from tests.e2e.support import Cluster, Gateway
from tests.e2e.toolservers import running, stdio, tool_server
from tests.support.pace import paced
from tests.support.until import eventually

pytestmark = pytest.mark.timeout(300)


def export(url: str, api_key: str, table: str) -> list[dict[str, object]]:
    """Return the rows of a table, as the command line exports them."""
    command = [sys.executable, "-m", "mcp_exec_client", "records", "export", table]
    env = os.environ | {"MCP_EXEC_GATEWAY": url, "MCP_EXEC_API_KEY": api_key}
    ended = subprocess.run(command, env=env, capture_output=True, text=True, check=True, timeout=paced(60))
    return [json.loads(line) for line in ended.stdout.splitlines()]


def test_the_records_of_a_run_outlive_it(installed: Cluster, gateway: Gateway, url: str, api_key: str) -> None:
    files = tool_server("kept", stdio=stdio("mcp-server-filesystem", "/data", dataSize="16Mi"))
    code = "from servers.kept import list_allowed_directories\nprint(await list_allowed_directories())"
    with running(installed, files):
        ran = gateway.run(
            code, poolRef={"name": "runc"}, tools=["kept.*"], ttlSecondsAfterFinished=0, useCase="workflow"
        )
    assert ran["phase"] == "Succeeded", ran
    headers = {"Authorization": f"Bearer {api_key}"}
    eventually(lambda: httpx.get(f"{url}/v1/executions/{ran['name']}", headers=headers).status_code == 404)
    [execution] = [row for row in export(url, api_key, "executions") if row["name"] == ran["name"]]
    shown = ("phase", "use_case", "mode", "pool", "language", "tool_calls", "code")
    assert [execution[name] for name in shown] == ["Succeeded", "workflow", "code", "runc", "python", 1, None]
    assert str(execution["code_digest"]).startswith("sha256:")

    def find_calls() -> list[dict[str, object]]:
        return [row for row in export(url, api_key, "calls") if row["execution_uid"] == execution["uid"]]

    [call] = eventually(find_calls)
    assert (call["server"], call["tool"], call["outcome"]) == ("kept", "list_allowed_directories", "ok")


def test_usage_shows_what_a_model_and_its_code_used(
    installed: Cluster, gateway: Gateway, url: str, api_key: str
) -> None:
    files = tool_server("counted", stdio=stdio("mcp-server-filesystem", "/data", dataSize="16Mi"))
    code = "from servers.counted import list_allowed_directories\nprint(await list_allowed_directories())"
    with running(installed, files):
        ran = gateway.run(code, poolRef={"name": "runc"}, tools=["counted.*"], ttlSecondsAfterFinished=0)
    tokens = ran["usage"]["tokens"]
    assert (tokens["code"] > 0, tokens["returned"] > 0, tokens["kept"] >= 0) == (True, True, True)
    report = {
        "id": f"task-{ran['name']}",
        "model": f"model-{ran['name']}",
        "mode": "code",
        "turns": 2,
        "inputTokens": 5200,
        "outputTokens": 640,
        "counted": "provider",
    }
    headers = {"Authorization": f"Bearer {api_key}"}
    path = f"{url}/v1/conversations/usage-{ran['name']}/usage"
    for _ in range(2):
        assert httpx.post(path, headers=headers, json=report).status_code == 204

    def read(by: str) -> dict[str, dict[str, Any]]:
        command = [sys.executable, "-m", "mcp_exec_client", "usage", "--by", by, "-o", "json"]
        env = os.environ | {"MCP_EXEC_GATEWAY": url, "MCP_EXEC_API_KEY": api_key}
        ended = subprocess.run(command, env=env, capture_output=True, text=True, check=True, timeout=paced(60))
        return {group["key"]: group for group in json.loads(ended.stdout)["groups"]}

    [used] = read("model")[report["model"]]["models"]
    assert (used["tasks"], used["inputTokens"], used["outputTokens"], used["counted"]) == (1, 5200, 640, "provider")
    [calls] = eventually(lambda: read("tool").get("counted.list_allowed_directories", {}).get("calls"))
    assert (calls["mode"], calls["calls"], calls["failed"], calls["resultTokens"] > 0) == ("code", 1, 0, True)
    days = list(read("day").values())
    assert sum(group["sandboxes"]["executions"] for group in days) >= 1
