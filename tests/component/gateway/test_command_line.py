"""`mcp-exec` at a gateway: run, get, logs, cancel, approvals, tools, completion."""

import asyncio
import io
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.component.gateway.commands import Command, at_terminal, call
from tests.component.gateway.conftest import BOSS, CEX, KEY, PODS, SANDBOX_KEY, SBP, Gateway, pool, serving
from tests.component.gateway.test_approvals import approval, waiting
from tests.component.gateway.test_events import POD, STDOUT, Scene
from tests.support.api_server import FakeApiServer
from tests.support.supervisor import FakeSupervisor
from tests.support.until import until

from mcp_exec_api.wire.version import RELEASE
from mcp_exec_client.transport import NO_RETRIES

ERROR = {"type": "ValueError", "message": "no\x1b[2J", "line": 2, "traceback": "Traceback\n  line 2\nValueError: no\n"}


async def test_output_goes_where_the_code_wrote_it_and_the_result_comes_last(
    gateway: Gateway, command: Command
) -> None:
    output = {"stdout": "a\x1b[2J\nb", "stderr": "warning\n", "result": {"n": [1, "ü"]}}
    gateway.finish_all(output=output)
    ended = await command("run", "-c", "print(1)")
    assert (ended.code, ended.err) == (0, "warning\n")
    assert ended.out == 'a\x1b[2J\nb\n{\n  "n": [\n    1,\n    "ü"\n  ]\n}\n'
    gateway.finish_all(output={"stdout": "", "stderr": "", "result": "text"})
    assert (await command("run", "-c", "'text'")).out == "text\n"


async def test_the_versions_of_program_and_gateway_are_shown(gateway: Gateway, command: Command) -> None:
    ended = await command("version")
    assert (ended.code, ended.out) == (0, f"client: {RELEASE}\ngateway: {RELEASE}\n")
    assert (await command("version", "--client")).out == f"client: {RELEASE}\n"
    found = json.loads((await command("version", "-o", "json")).out)
    assert found["gateway"]["apiVersions"] == ["mcp-exec.dev/v1beta1"]


async def test_all_options_become_fields_of_the_execution(gateway: Gateway, command: Command, tmp_path: Path) -> None:
    gateway.finish_all()
    program, context = tmp_path / "program.py", tmp_path / "context.json"
    program.write_text("\ufeffprint(owner)")
    context.write_text('{"owner": "nobody", "deep": {"a": [1]}}')
    options = ["--context-file", context, "--context", "owner=octo=cat", "--context", "limit:=10", "--tool", "github.*"]
    options += ["--pool", "long", "--timeout", "70", "--name", "my-run", "--description", "what it does"]
    options += ["--label", "team=a", "--conversation", "c-1", "--use-case", "polling", "--user", "u-42"]
    options += ["--output-bytes", "2048", "--tool-calls", "0", "--approval-timeout", "0", "--skill", "chart"]
    ended = await command("run", program, *options, "--priority", "High", "--ttl", "0", "-o", "name")
    assert (ended.code, ended.out) == (0, "my-run\n")
    execution = gateway.executions["my-run"]
    spec = execution["spec"]
    assert spec["code"] == "print(owner)"
    assert spec["context"] == {"owner": "octo=cat", "deep": {"a": [1]}, "limit": 10}
    assert (spec["tools"], spec["poolRef"], spec["timeoutSeconds"]) == (["github.*"], {"name": "long"}, 70)
    assert (spec["description"], spec["user"], spec["priority"]) == ("what it does", "u-42", "High")
    assert (spec["ttlSecondsAfterFinished"], spec["approvalTimeoutSeconds"]) == (0, 0)
    assert (spec["limits"], spec["skills"]) == ({"outputBytes": 2048, "toolCalls": 0}, ["chart"])
    labels = execution["metadata"]["labels"]
    assert (labels["mcp-exec.dev/conversation"], labels["mcp-exec.dev/use-case"]) == ("c-1", "polling")
    assert "a" in labels.values()


async def test_code_may_come_from_standard_input(
    gateway: Gateway, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway.finish_all()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"print(2)")))
    assert (await command("run", "-")).code == 0
    (execution,) = gateway.executions.values()
    assert execution["spec"]["code"] == "print(2)"


@pytest.mark.parametrize(
    ("status", "code", "said"),
    [
        (
            {"phase": "Failed", "reason": "UserError", "error": ERROR},
            1,
            "UserError in line 2: ValueError: no\\x1b",
        ),
        ({"phase": "Failed", "reason": "PoolAtCapacity"}, 5, "-> raise the pool's `maxPods`"),
        ({"phase": "Failed", "reason": "Rejected", "error": {"type": "Rejected", "message": "m"}}, 3, "Rejected: m ->"),
        ({"phase": "TimedOut", "reason": "Timeout"}, 124, "TimedOut Timeout -> raise `timeoutSeconds`"),
        ({"phase": "Cancelled", "reason": "Cancelled"}, 130, "Cancelled Cancelled"),
    ],
)
async def test_each_end_has_an_exit_code_and_one_line_that_says_what_to_do(
    gateway: Gateway, command: Command, status: dict[str, Any], code: int, said: str
) -> None:
    gateway.finish_all(**status)
    ended = await command("run", "-c", "x")
    assert (ended.code, ended.out) == (code, "1\n")
    assert said in ended.last
    assert ended.last.startswith("mcp-exec: exec-")
    assert "\x1b" not in ended.last
    assert ("Traceback\n" in ended.err) is (code == 1)
    (name,) = gateway.executions
    assert (await command("logs", "-f", name)).code == code


async def test_with_json_there_is_nothing_but_the_execution_on_standard_output(
    gateway: Gateway, command: Command
) -> None:
    gateway.finish_all(phase="Failed", reason="UserError", error=ERROR)
    ended = await command("run", "-c", "x", "-o", "json")
    assert ended.code == 1
    assert json.loads(ended.out)["error"]["line"] == 2
    assert yaml.safe_load((await command("run", "-c", "x", "-o", "yaml")).out)["phase"] == "Failed"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--pool", "nowhere"], 3, "there is no pool nowhere"),
        (["--description", "x" * 201], 3, "description: "),
        (["--api-key", "wrong"], 3, "401"),
        (["--gateway", "http://127.0.0.1:1"], 4, "127.0.0.1:1"),
        (["-n", "others"], 3, "403"),
    ],
)
async def test_what_is_refused_has_its_exit_code_and_the_reason(
    gateway: Gateway,
    command: Command,
    arguments: list[str],
    code: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mcp_exec_client.transport.RetryPolicy", lambda: NO_RETRIES)
    ended = await command("run", "-c", "1", *arguments)
    assert (ended.code, ended.out, len(ended.err.splitlines())) == (code, "", 1)
    assert said in ended.err
    assert gateway.executions == {}


async def test_without_gateway_or_key_it_is_said_what_is_needed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await call(capsys, "get")).err == "mcp-exec: get needs --gateway, $MCP_EXEC_GATEWAY or a profile\n"
    monkeypatch.setenv("MCP_EXEC_GATEWAY", "http://127.0.0.1:1")
    ended = await call(capsys, "tools", "search")
    assert (ended.code, ended.err) == (2, "mcp-exec: tools needs --api-key, $MCP_EXEC_API_KEY or a profile\n")


async def test_executions_are_listed_newest_first_and_one_is_shown_with_its_code(
    gateway: Gateway, command: Command
) -> None:
    gateway.finish_all(duration="12ms")
    for name in ("one", "two"):
        await gateway.post({"code": f"print('{name}')", "name": name, "description": f"does {name}"})
    assert (await command("get", "-o", "name")).lines == ["two", "one"]
    title, first, _ = (await command("get", "-o", "wide")).lines
    assert title.split() == [
        "NAME",
        "PHASE",
        "REASON",
        "POOL",
        "START",
        "DURATION",
        "CALLER",
        "DESCRIPTION",
        "POD",
        "AGE",
    ]
    assert first.split()[:6] == ["two", "Succeeded", "default", "Warm", "12ms", "team-a"]
    assert "does two" in first
    assert (await command("get", "--phase", "Failed", "-o", "json")).out == '{\n  "items": []\n}\n'
    assert (await command("get", "--limit", "1", "-o", "name")).lines == ["two"]
    assert (await command("get", "one")).lines[1].startswith("one ")
    shown = json.loads((await command("get", "one", "-o", "json", "--include-code")).out)
    assert (shown["code"], shown["description"], shown["output"]["stdout"]) == ("print('one')", "does one", "1\n")
    missing = await command("get", "none")
    assert missing.code == 3
    assert "none" in missing.last


async def test_cancel_ends_what_runs_and_says_what_has_ended(gateway: Gateway, command: Command) -> None:
    name = (await command("run", "-c", "x", "-d")).out.strip()
    assert (await command("cancel", name)).out == f"{name} is being cancelled\n"
    assert gateway.executions[name]["spec"]["cancelRequested"] is True
    gateway.finish(name)
    assert (await command("cancel", name)).out == f"{name} has already ended: Succeeded\n"
    assert (await command("cancel", "none")).code == 3


async def test_approvals_are_listed_and_decided_with_the_arguments_that_were_read(
    gateway: Gateway, command: Command
) -> None:
    name = await waiting(gateway, {**approval("a1"), "argumentsDigest": "sha256:" + "0" * 64}, approval("a2"))
    title, first, _ = (await command("approvals", name)).lines
    assert title.split() == ["EXECUTION", "ID", "STATE", "TOOL", "EXPIRES", "ARGUMENTS"]
    assert first.split()[:4] == [name, "a1", "Pending", "github.merge"]
    assert (await command("approvals", name, "-o", "name")).lines == [f"{name} a1", f"{name} a2"]
    assert (await command("approve", name, "a1")).code == 3  # the key is no approver's
    approved = await command("approve", name, "a1", "--api-key", BOSS)
    assert approved.out == f"Approved: github.merge {{}} of {name}\n"
    denied = await command("deny", name, "a2", "--comment", "no", "--api-key", BOSS)
    assert denied.out.startswith("Denied: ")
    written = gateway.executions[name]["spec"]["approvals"]
    assert [(each["id"], each["decision"], each.get("comment")) for each in written] == [
        ("a1", "Approve", None),
        ("a2", "Deny", "no"),
    ]
    assert written[0]["argumentsDigest"] == "sha256:" + "0" * 64
    missing = await command("approve", name, "a3")
    assert (missing.code, missing.last) == (3, f"mcp-exec: {name} has no approval a3; pending are: none")


class TestTools:
    """Searches, with a broker."""

    @pytest.fixture
    def gateway(self, gateway_with_broker: Gateway) -> Gateway:
        return gateway_with_broker

    async def test_tools_are_searched_and_shown_with_their_schemas(self, command: Command) -> None:
        found = await command("tools", "search", "pull", "request")
        assert found.lines[0].split() == ["TOOL", "DESCRIPTION"]
        assert found.lines[1].split(maxsplit=1) == ["github.create_pull_request", "Create a new pull request"]
        assert (await command("tools", "search", "--limit", "1", "issue", "-o", "name")).out == "github.create_issue\n"
        shown = await command("tools", "show", "my-docs.get_page")
        assert shown.lines[:3] == ["my-docs.get_page", "Reads a page", "from servers.my_docs import get_page"]
        for spelling in ("my-docs.get-page", "my-docs.getPage"):
            assert (await command("tools", "show", spelling)).out == shown.out
        data = json.loads((await command("tools", "show", "github.create_issue", "-o", "json")).out)
        assert (data["server"], data["output_schema"]) == ("github", {"type": "object", "properties": {}})
        missing = await command("tools", "show", "github.creat")
        assert missing.code == 3
        assert missing.last.endswith("it has: create_issue, create_pull_request, get_file_contents")

    async def test_there_are_no_pending_approvals_at_a_broker_without_any(self, command: Command) -> None:
        ended = await command("approvals")
        assert (ended.code, ended.out, ended.err) == (0, "", "no tool calls that wait for an approval\n")


@pytest.fixture
async def scene(api: FakeApiServer) -> AsyncIterator[Scene]:
    async with (
        FakeSupervisor(key=SANDBOX_KEY, namespace="agents", pod=POD).running() as supervisor,
        serving(api, sandbox_port=supervisor.port) as gateway,
    ):
        api.put(PODS, {"metadata": {"name": POD}, "status": {"podIP": "127.0.0.1"}})
        yield Scene(gateway, supervisor, (await gateway.post(query="?wait=0")).json["name"])


async def test_logs_shows_what_there_is_and_follows_to_the_end(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    access = ("--gateway", scene.gateway.url, "--api-key", KEY)
    scene.bind()
    scene.say_all()
    so_far = await call(capsys, "logs", scene.name, *access)
    assert (so_far.code, so_far.out, so_far.err) == (0, "".join(STDOUT), "careful\nagain")
    following = asyncio.create_task(call(capsys, "logs", "-f", scene.name, *access))
    await until(lambda: scene.supervisor.readers == 1)
    scene.end()
    ended = await following
    assert (ended.code, ended.out) == (0, "".join(STDOUT))
    assert (await call(capsys, "logs", "none", *access)).code == 3


async def test_at_a_terminal_output_is_escaped_and_an_interrupt_cancels_the_execution(
    api: FakeApiServer, no_profile: Path
) -> None:
    stage = FakeSupervisor(key=SANDBOX_KEY, namespace="agents", pod=POD)
    async with stage.running() as supervisor, serving(api, sandbox_port=supervisor.port) as gateway:
        api.put(PODS, {"metadata": {"name": POD}, "status": {"podIP": "127.0.0.1"}})

        def bind(collection: str, item: dict[str, Any]) -> None:
            if collection == CEX:
                Scene(gateway, supervisor, item["metadata"]["name"]).bind()

        api.on_create = bind
        environment = {"MCP_EXEC_GATEWAY": gateway.url, "MCP_EXEC_API_KEY": KEY}
        async with at_terminal("run", "-c", "x", environment=environment) as session:
            await until(lambda: supervisor.readers == 1)
            supervisor.say("status", phase="Running")
            supervisor.say("stdout", text="\x1b]0;owned\x07 done\n")
            await session.shows("\\x1b]0;owned\\x07 done")
            session.type("\x03")
            await session.shows("cancelling exec-")
            (name,) = gateway.executions
            await until(lambda: gateway.executions[name]["spec"].get("cancelRequested"))
            gateway.finish(name, phase="Cancelled", reason="Cancelled", output={"stdout": "\x1b]0;owned\x07 done\n"})
            assert await session.ended() == 130
            assert "\x1b]0;" not in session.shown


async def test_at_a_terminal_a_person_is_asked_for_approvals(api: FakeApiServer, no_profile: Path) -> None:
    stage = FakeSupervisor(key=SANDBOX_KEY, namespace="agents", pod=POD)
    async with stage.running() as supervisor, serving(api, sandbox_port=supervisor.port) as gateway:
        api.put(PODS, {"metadata": {"name": POD}, "status": {"podIP": "127.0.0.1"}})
        await waiting(gateway)  # which makes BOSS an approver

        def bind(collection: str, item: dict[str, Any]) -> None:
            if collection == CEX:
                Scene(gateway, supervisor, item["metadata"]["name"]).bind()
                api.merge(
                    CEX, item["metadata"]["name"], {"status": {"approvals": [approval("approval-0123456789abcdef")]}}
                )

        api.on_create = bind
        environment = {"MCP_EXEC_GATEWAY": gateway.url, "MCP_EXEC_API_KEY": BOSS}
        async with at_terminal("run", "-c", "x", "--name", "asks", environment=environment) as session:
            await until(lambda: supervisor.readers == 1)
            supervisor.say("status", phase="Running")
            supervisor.say("approval", id="approval-0123456789abcdef", tool="github.merge")
            await session.shows("mcp-exec approve asks approval-0123456789abcdef")
            await session.shows("Type yes or no:")
            session.type("yes\n")
            await session.shows("Approved")
            (decision,) = gateway.executions["asks"]["spec"]["approvals"]
            assert (decision["decision"], decision["by"]) == ("Approve", "boss")
            gateway.finish("asks")
            assert await session.ended() == 0


async def test_notes_of_a_run_follow_its_output_on_standard_error(gateway: Gateway, command: Command) -> None:
    notes = [
        {"kind": "ValueChanged", "path": "result.a", "message": "It is\x1b text."},
        {"kind": "OutputCut", "message": "Cut."},
    ]
    gateway.finish_all(notes=notes)
    ended = await command("run", "-c", "x")
    assert (ended.code, ended.out) == (0, "1\n")
    assert ended.err.splitlines() == ["note: result.a: It is\\x1b text.", "note: Cut."]


async def test_pools_are_listed_as_the_caller_may_use_them(
    gateway: Gateway, api: FakeApiServer, command: Command
) -> None:
    pandas = {"name": "pandas", "version": "2.3.1", "imports": ["pandas"]}
    api.put(SBP, pool("data") | {"status": {"warm": 2, "python": "3.13.5", "libraries": [pandas]}})
    await until(lambda: gateway.dependencies.pools.find("agents", "data") is not None)
    assert (await command("pools", "-o", "name")).out == "data\ndefault\nlong\n"
    assert (await command("pools")).lines[1].split() == ["data", "python", "2", "0", "0", "3.13.5", "pandas", "2.3.1"]
