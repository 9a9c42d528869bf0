"""`mcp-exec rollout` at a gateway, and as a plugin of kubectl at an API server."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.component.gateway.commands import Command, call
from tests.component.gateway.conftest import BOSS, Gateway
from tests.component.gateway.test_rollouts import XRO, put
from tests.support.api_server import Fault
from tests.support.processes import write_kubeconfig

from mcp_exec_client.cli.main import kubectl_main, main


@pytest.fixture
def gateway(gateway_with_approver: Gateway) -> Gateway:
    return gateway_with_approver


@pytest.fixture(params=["gateway", "kubectl"])
def command(
    request: pytest.FixtureRequest,
    gateway: Gateway,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Command:
    if request.param == "kubectl":
        monkeypatch.setenv("KUBECONFIG", str(write_kubeconfig(tmp_path / "kubeconfig", gateway.api.url)))
        return lambda *arguments: call(capsys, *arguments, "-n", "agents", entry=kubectl_main)
    monkeypatch.setenv("MCP_EXEC_GATEWAY", gateway.url)
    monkeypatch.setenv("MCP_EXEC_API_KEY", BOSS)
    return lambda *arguments: call(capsys, *arguments, entry=main)


def spec_of(gateway: Gateway) -> Any:
    return gateway.api.collections[XRO]["code-mode"]["spec"]


async def test_rollouts_are_listed_and_shown(gateway: Gateway, command: Command) -> None:
    await put(gateway, stage="team", name="other")
    await put(gateway, stage="all")
    measured = {"name": "code", "exposed": 7, "outcomes": 5, "failures": 1, "errorRate": 0.2}
    found = {"name": "errors", "metric": "errorRate", "state": "Violated", "arm": "code", "samples": 5}
    status = {"exposure": "1 user, 100 %", "message": "in stage all", "arms": [measured], "guards": [found]}
    gateway.api.merge(XRO, "code-mode", {"status": status})
    listed = await command("rollout", "list")
    assert listed.lines[0].split() == ["NAME", "PHASE", "STAGE", "ARMS", "EXPOSURE", "GUARD", "SINCE"]
    assert [line.split()[:3] for line in listed.lines[1:]] == [
        ["code-mode", "Progressing", "all"],
        ["other", "Progressing", "team"],
    ]
    assert (await command("rollout", "list", "-o", "name")).lines == ["code-mode", "other"]
    shown = await command("rollout", "status", "code-mode")
    assert "1 user, 100 %   errorRate Violated" in shown.lines[1]
    cells = [line.split() for line in shown.lines[2:]]
    assert cells[0] == ["in", "stage", "all"]
    assert ["team", "1", "0", "until", "promoted"] in cells
    assert ["all", "yes", "100", "600"] in cells
    assert ["code", "code", "long", "7", "5", "0.2"] in cells
    assert ["errors", "errorRate", "Violated", "code", "5"] in cells
    data = json.loads((await command("rollout", "status", "code-mode", "-o", "json")).out)
    assert (data["name"], data["namespace"], data["control"]) == ("code-mode", "agents", "direct")
    assert data["measures"] == [measured]
    assert [(stage["name"], stage["users"]) for stage in data["stages"]] == [("team", 1), ("all", 0)]


async def test_a_rollout_is_steered(gateway: Gateway, command: Command) -> None:
    await put(gateway, stage="team")
    assert (await command("rollout", "pause", "code-mode")).out == "code-mode is paused\n"
    assert spec_of(gateway)["paused"] is True
    assert (await command("rollout", "resume", "code-mode")).out == "code-mode continues\n"
    assert spec_of(gateway)["paused"] is False
    assert (await command("rollout", "promote", "code-mode")).out == "code-mode is promoted\n"
    assert spec_of(gateway)["promotedTo"] == "all"
    assert (await command("rollout", "promote", "code-mode", "--to", "Completed")).code == 0
    assert spec_of(gateway)["promotedTo"] == "Completed"
    gateway.api.faults.append(Fault("PATCH", "/code-mode", 409))
    assert (await command("rollout", "abort", "code-mode")).out == "code-mode is aborted\n"
    assert spec_of(gateway)["killSwitch"] is True


async def test_what_cannot_be_done_is_refused_with_the_reason(gateway: Gateway, command: Command) -> None:
    await put(gateway, stage="all")
    refused = await command("rollout", "promote", "code-mode", "--to", "team")
    assert (refused.code, "'team' is no later stage; allowed: Completed" in refused.last) == (3, True)
    assert (await command("rollout", "status", "other")).code == 3
    await put(gateway, stage="all", phase="RolledBack")
    for action in ("promote", "pause", "resume", "abort"):
        ended = await command("rollout", action, "code-mode")
        assert ended.code == 3
        assert "rollout code-mode has ended: it is RolledBack; create another one" in ended.last
