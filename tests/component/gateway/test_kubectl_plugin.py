"""`kubectl mcp-exec` at an API server, without a gateway."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.component.gateway.commands import Command, call
from tests.component.gateway.conftest import CEX, SBP
from tests.component.gateway.test_approvals import approval
from tests.support.api_server import FakeApiServer, Fault
from tests.support.processes import write_kubeconfig
from tests.support.until import until

from mcp_exec_client.cli.main import kubectl_main, main

DONE = {"phase": "Succeeded", "output": {"stdout": "1\n", "stderr": "e\n", "result": 2}, "duration": "12ms"}


@pytest.fixture
def command(
    api: FakeApiServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Command:
    path = write_kubeconfig(tmp_path / "kubeconfig", api.url)
    config = yaml.safe_load(path.read_text())
    config["contexts"][0]["context"]["namespace"] = "agents"
    config["contexts"].append({"name": "elsewhere", "context": {"cluster": "it", "user": "it", "namespace": "others"}})
    path.write_text(yaml.safe_dump(config))
    monkeypatch.setenv("KUBECONFIG", str(path))
    monkeypatch.setenv("MCP_EXEC_GATEWAY", "http://127.0.0.1:1")  # which a plugin of kubectl does not use
    return lambda *arguments: call(capsys, *arguments, entry=kubectl_main)


def at_creation(api: FakeApiServer, *statuses: dict[str, Any]) -> None:
    """Write these statuses, one after the other, to each new execution."""

    def write(collection: str, item: dict[str, Any]) -> None:
        for status in statuses if collection == CEX else ():
            api.merge(CEX, item["metadata"]["name"], {"status": status})

    api.on_create = write


def put(api: FakeApiServer, name: str, **status: Any) -> None:
    spec = {"code": "print(1)", "poolRef": {"name": "default"}, "description": f"does {name}"}
    api.put(
        CEX, {"metadata": {"name": name, "labels": {"mcp-exec.dev/caller": "team-a"}}, "spec": spec, "status": status}
    )


async def test_run_creates_an_execution_and_shows_its_output_at_the_end(api: FakeApiServer, command: Command) -> None:
    at_creation(api, DONE)
    options = ["--context", "a:=1", "--label", "team=a", "--conversation", "c-1", "--use-case", "other"]
    ended = await command("run", "-c", "print(1)", "--name", "mine", *options)
    assert (ended.code, ended.out, ended.err) == (0, "1\n2\n", "e\n")
    execution = api.collections[CEX]["mine"]
    assert execution["spec"] == {"code": "print(1)", "context": {"a": 1}}
    labels = {"team": "a", "mcp-exec.dev/conversation": "c-1", "mcp-exec.dev/use-case": "other"}
    assert execution["metadata"]["labels"] == labels
    again = await command("run", "-c", "1", "--name", "mine")
    assert (again.code, again.last) == (3, "kubectl mcp-exec: the API server refused the request: mine already exists")


async def test_a_skill_runs_in_place_of_code_and_the_execution_is_shown_with_all_that_identifies_it(
    api: FakeApiServer, command: Command
) -> None:
    at_creation(api, DONE)
    options = ["--context", "rows:=[1]", "--label", "team=a", "--conversation", "c-1", "--use-case", "other"]
    options += ["--workspace", "sales:ro", "--skill", "table", "--tool-calls", "0", "--approval-timeout", "0"]
    ended = await command("run", "--skill-ref", "chart-v2", "--name", "mine", *options, "-o", "json")
    assert api.collections[CEX]["mine"]["spec"] == {
        "skillRef": {"name": "chart", "version": 2},
        "context": {"rows": [1]},
        "workspace": {"name": "sales", "mode": "Read"},
        "skills": ["table"],
        "limits": {"toolCalls": 0},
        "approvalTimeoutSeconds": 0,
    }
    shown = json.loads(ended.out)
    assert (shown["labels"], shown["conversation"], shown["useCase"]) == ({"team": "a"}, "c-1", "other")
    assert shown["workspace"] == {"name": "sales", "mode": "Read"}
    (listed,) = json.loads((await command("get", "-o", "json")).out)["items"]
    assert (listed["labels"], listed["conversation"]) == ({"team": "a"}, "c-1")


async def test_the_status_is_followed_by_a_watch_that_may_break(api: FakeApiServer, command: Command) -> None:
    queue = {"position": 2, "of": 3}
    at_creation(api, {"phase": "Pending", "reason": "PoolAtCapacity", "queue": queue})
    running = asyncio.create_task(command("run", "-c", "1", "--name", "mine"))
    await until(lambda: api.count_watches() == 1)
    await api.expire_watches()
    await until(lambda: len(api.asked("GET", "/mine")) == 2 and api.count_watches() == 1)
    api.drop_watches()
    await until(lambda: len(api.asked("GET", "/mine")) == 3 and api.count_watches() == 1)
    api.merge(CEX, "mine", {"status": {"phase": "Running", "reason": "", "approvals": [approval("a1")]}})
    api.merge(CEX, "mine", {"status": {"phase": "Failed", "reason": "UserError", "error": {"type": "E", "line": 3}}})
    ended = await running
    assert ended.code == 1
    assert ended.err.splitlines() == [
        "mine waits: PoolAtCapacity, position 2 of 3",
        "mine waits until 2999-01-01T00:00:00.000000Z for an approval of github.merge; decide by: kubectl mcp-exec "
        "approve mine a1 (or deny)",
        "kubectl mcp-exec: mine: Failed UserError in line 3: E",
    ]


async def test_an_execution_that_is_deleted_ends_the_command(api: FakeApiServer, command: Command) -> None:
    running = asyncio.create_task(command("run", "-c", "1", "--name", "mine"))
    await until(lambda: api.count_watches() == 1)
    api.remove(CEX, "mine")
    ended = await running
    assert (ended.code, ended.last) == (5, "kubectl mcp-exec: mine was deleted before its end")


async def test_executions_are_listed_newest_first_and_shown(api: FakeApiServer, command: Command) -> None:
    put(api, "older", phase="Failed", reason="UserError", createdAt="2026-01-01T00:00:00.000000Z")
    put(api, "newer", **DONE, createdAt="2026-01-02T00:00:00.000000Z")
    assert (await command("get", "-o", "name")).lines == ["newer", "older"]
    wide = (await command("get", "-o", "wide")).lines[1].split()
    assert wide[:4] == ["newer", "Succeeded", "default", "12ms"]
    assert "claimed:team-a" in wide
    assert (await command("get", "--phase", "Failed", "--caller", "team-a", "-o", "name")).lines == ["older"]
    shown = json.loads((await command("get", "newer", "-o", "json", "--include-code")).out)
    assert (shown["code"], shown["output"]["stdout"], shown["description"]) == ("print(1)", "1\n", "does newer")
    assert (await command("get", "--kube-context", "elsewhere", "-o", "name")).out == ""
    assert (await command("get", "newer", "-n", "others")).code == 3
    assert (await command("get", "../../x")).code == 3


async def test_logs_have_output_after_the_end(api: FakeApiServer, command: Command) -> None:
    put(api, "done", **DONE)
    put(api, "busy", phase="Running")
    ended = await command("logs", "done")
    assert (ended.code, ended.out, ended.err) == (0, "1\n", "e\n")
    assert (await command("logs", "busy")).err == "busy is Running: the API server has its output after its end\n"


async def test_cancel_and_decisions_are_written_to_the_spec(api: FakeApiServer, command: Command) -> None:
    put(api, "busy", phase="Running", approvals=[approval("a1"), approval("a2"), approval("a3", state="Expired")])
    assert (await command("approvals", "-o", "name")).lines == ["busy a1", "busy a2"]
    assert len((await command("approvals", "busy", "-o", "name")).lines) == 3
    api.users["a-token"] = "jane"
    api.faults.append(Fault("PATCH", "/busy", 409))
    assert (await command("approve", "busy", "a1")).out == "Approved: github.merge {} of busy\n"
    api.unserved.add("authentication.k8s.io/v1")
    assert (await command("deny", "busy", "a2", "--comment", "no")).code == 0
    assert api.collections[CEX]["busy"]["spec"]["approvals"] == [
        {"id": "a1", "decision": "Approve", "by": "jane"},
        {"id": "a2", "decision": "Deny", "comment": "no"},
    ]
    expired = await command("approve", "busy", "a3")
    assert (expired.code, expired.last) == (3, "kubectl mcp-exec: approval a3 of busy is Expired")
    assert (await command("cancel", "busy")).out == "busy is being cancelled\n"
    assert api.collections[CEX]["busy"]["spec"]["cancelRequested"] is True


async def test_a_deletion_ends_the_time_to_live_of_what_has_ended(api: FakeApiServer, command: Command) -> None:
    put(api, "done", **DONE)
    put(api, "busy", phase="Running")
    assert (await command("delete", "done")).out == "done will be deleted by the operator\n"
    assert api.collections[CEX]["done"]["spec"]["ttlSecondsAfterFinished"] == 0
    refused = await command("delete", "busy")
    assert (refused.code, "busy is Running: cancel it" in refused.last) == (3, True)
    assert "ttlSecondsAfterFinished" not in api.collections[CEX]["busy"]["spec"]


async def test_what_only_a_gateway_can_do_says_so(command: Command) -> None:
    for arguments in (["search", "x"], ["show", "github.create_issue"]):
        ended = await command("tools", *arguments)
        assert (ended.code, ended.out) == (3, "")
        assert "use --gateway" in ended.last
    assert (await command("agent", "task")).code == 2


async def test_doctor_checks_the_namespace_of_the_context(command: Command) -> None:
    ended = await command("doctor")
    assert ended.code == 1
    checks = [words for line in ended.lines if (words := line.split()[1:3])[0] in ("kubernetes:", "pool")]
    assert checks == [["kubernetes:", "1.36"], ["pool", "default:"], ["pool", "long:"]]
    assert "skipped  gateway: checking it needs --gateway" in ended.lines


async def test_a_kubeconfig_that_can_not_be_used_is_named(
    command: Command, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = await command("get", "--kubeconfig", tmp_path / "none")
    assert (missing.code, str(tmp_path / "none") in missing.last) == (2, True)
    context = await command("get", "--kube-context", "nowhere")
    assert (context.code, "nowhere" in context.last) == (2, True)
    for content in ("{", "[]", "contexts: 3"):
        (tmp_path / "wrong").write_text(content)
        wrong = await command("get", "--kubeconfig", tmp_path / "wrong")
        assert (wrong.code, str(tmp_path / "wrong") in wrong.last, len(wrong.err.splitlines())) == (2, True, 1)
    monkeypatch.delenv("KUBECONFIG")
    monkeypatch.setenv("HOME", str(tmp_path))
    outside = await command("get")
    assert (outside.code, "no service account found" in outside.last) == (2, True)


async def test_mcp_exec_uses_an_api_server_only_by_its_option(
    api: FakeApiServer, command: Command, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(api, "done", **DONE)
    ended = await call(capsys, "get", "-o", "name", "--kubeconfig", tmp_path / "kubeconfig", entry=main)
    assert ended.lines == ["done"]


async def test_what_the_api_server_refuses_is_repeated(api: FakeApiServer, command: Command) -> None:
    api.faults.append(Fault("GET", "/mine", 403, message="you may not"))
    ended = await command("get", "mine")
    assert (ended.code, ended.last) == (3, "kubectl mcp-exec: the API server refused the request: you may not")


async def test_pools_are_listed_with_their_libraries(api: FakeApiServer, command: Command) -> None:
    libraries = [{"name": name, "version": "2.3.1", "imports": [name]} for name in ("pandas", "numpy")]
    status = {"warm": 2, "busy": 1, "python": "3.13.5", "libraries": libraries}
    api.put(SBP, {"metadata": {"name": "data"}, "spec": {"image": "i"}, "status": status})
    api.put(SBP, {"metadata": {"name": "new"}, "spec": {"image": "i", "runtimeClassName": "gvisor"}})
    listed = await command("pools")
    rows = {line.split()[0]: line.split() for line in listed.lines}
    assert rows["NAME"] == ["NAME", "LANGUAGE", "WARM", "BUSY", "QUEUED", "PYTHON", "LIBRARIES"]
    assert rows["data"] == ["data", "python", "2", "1", "0", "3.13.5", "pandas", "2.3.1,", "numpy", "2.3.1"]
    assert rows["new"] == ["new", "python", "0", "0", "0"]
    items = {item["name"]: item for item in json.loads((await command("pools", "-o", "json")).out)["items"]}
    assert items["data"] == {"name": "data", **status}
    assert items["new"] == {"name": "new", "runtime": "gvisor"}
