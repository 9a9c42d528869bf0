"""Calls of tools from TypeScript: wrappers, errors as classes, events, notes, search, and what is shown."""

import json
import threading
from typing import Any

import pytest
from tests.component.sandbox.conftest import SECONDS, ReusedSandbox, Run
from tests.support.broker_calls import Call, FakeBrokerCalls

from mcp_exec_tools.catalog import Catalog
from mcp_exec_tools.wrappers import build_files

ISSUE = {
    "name": "create_issue",
    "description": "Open an issue in a repository.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "owner": {"type": "string"},
            "repo": {"type": "string"},
            "title": {"type": "string"},
            "issue_body": {"type": "string"},
        },
        "required": ["owner", "repo", "title"],
    },
}
LIST = {"name": "list-issues", "inputSchema": {"type": "object", "properties": {"repo": {"type": "string"}}}}


@pytest.fixture
def servers(typescript: ReusedSandbox) -> ReusedSandbox:
    """A sandbox that has the wrappers of two servers."""
    catalogs = [Catalog.from_tools("github", [ISSUE, LIST]), Catalog.from_tools("my-db", [LIST])]
    files = build_files(catalogs, language="typescript")
    typescript.clean()
    answer = typescript.client.put("/v1/wrappers", json={"hash": "h", "files": files})
    assert answer.status_code < 300, answer.text
    return typescript


def tool_events(run: Run) -> list[tuple[Any, ...]]:
    calls = [event for event in run.events if event["type"] == "tool_call"]
    results = [event for event in run.events if event["type"] == "tool_result"]
    return [(each["tool"], each["ok"], each["kind"]) for each in results] if len(calls) == len(results) else []


FORMS = {
    "values": 'import { createIssue } from "servers/github";\nawait createIssue("o", "r", "t", "b")',
    "an object": 'import { create_issue } from "servers/github";\n'
    'await create_issue({ owner: "o", repo: "r", title: "t", issueBody: "b" })',
    "a namespace": 'import * as github from "servers/github";\nawait github.createIssue("o", "r", "t", "b")',
    "all servers": 'import { github, my_db } from "servers";\nawait my_db.listIssues();\n'
    'await github.createIssue("o", "r", "t", "b")',
    "a server in another spelling": 'import { listIssues } from "servers/my-db";\nawait listIssues();\n'
    'import { createIssue as open } from "servers/github";\nawait open("o", "r", "t", "b")',
    "a dynamic import": 'const { createIssue } = await import("servers/github");\n'
    'await createIssue("o", "r", "t", "b")',
    "by name": 'await callMcpTool("github.create_issue", { owner: "o", repo: "r", title: "t", issue_body: "b" })',
    "a module of the workspace": 'Deno.writeTextFileSync("open.ts", `import { createIssue } from "servers/github";'
    ' export const open = (title: string) => createIssue("o", "r", title, "b");`);\n'
    'const { open } = await import("./open.ts");\nawait open("t")',
}


@pytest.mark.parametrize("form", FORMS)
def test_each_way_to_call_a_tool_sends_the_same(servers: ReusedSandbox, broker: FakeBrokerCalls, form: str) -> None:
    expected = {"owner": "o", "repo": "r", "title": "t", "issue_body": "b"}
    run = servers.run(FORMS[form], tools=broker.job)
    assert (run.error, run.result) == (None, expected)
    assert (run.result, broker.calls[-1].tool, broker.calls[-1].arguments) == (
        expected,
        "github.create_issue",
        expected,
    )
    assert tool_events(run)[-1] == ("github.create_issue", True, None)
    assert not run.end.get("notes")


def test_only_allowed_servers_are_there(servers: ReusedSandbox, broker: FakeBrokerCalls) -> None:
    run = servers.run('import { x } from "servers/my-db";\nx()', tools={**broker.job, "allow": ["github.*"]})
    assert run.error["type"] == "ModuleNotFoundError"
    assert "there is no server my-db" in run.error["message"]
    assert "github" in run.error["message"]


ARGUMENTS = {
    'createIssue("o", "r")': "missing parameter: title",
    'createIssue({ owner: "o", repo: "r", heading: "t" })': "there is no parameter heading",
    'createIssue("o", "r", "t", "b", 5)': "5 positional arguments were given, it takes at most 4",
    'createIssue("o", "r", NaN)': "title is NaN, which JSON does not have",
    'createIssue({ owner: "o", repo: "r", title: { a: [() => 1] } })': "title.a[0] is of type a function",
    'createIssue("o", "r", Promise.resolve("t"))': "title is a promise",
}


@pytest.mark.parametrize("call", ARGUMENTS)
def test_wrong_arguments_are_refused_before_anything_is_sent(
    servers: ReusedSandbox, broker: FakeBrokerCalls, call: str
) -> None:
    run = servers.run(f'import {{ createIssue }} from "servers/github";\n\nawait {call};', tools=broker.job)
    assert (run.error["type"], run.error["line"]) == ("ToolError", 3)
    assert ARGUMENTS[call] in run.error["message"]
    assert "InvalidArguments" in run.error["message"]
    assert broker.calls == []


def test_values_have_the_json_of_results(typescript: ReusedSandbox, broker: FakeBrokerCalls) -> None:
    code = (
        'const row = { at: new Date(0), tags: new Set(["a"]), by: new Map([["k", 1n]]), big: 2n ** 70n };\n'
        'await callMcpTool("s.echo", row)'
    )
    assert typescript.run(code, tools=broker.job).error is None
    sent = {"at": "1970-01-01T00:00:00.000Z", "tags": ["a"], "by": {"k": 1}, "big": 2**70}
    assert broker.calls[0].arguments == sent


def test_integers_of_results_are_exact(typescript: ReusedSandbox, broker: FakeBrokerCalls) -> None:
    broker.tools["s.id"] = lambda call: call.value({"id": 725653563933458433, "n": 5})
    run = typescript.run('const { id, n } = await callMcpTool("s.id");\n[`${id}`, typeof n, id]', tools=broker.job)
    assert run.result == ["725653563933458433", "number", 725653563933458433]


KINDS = {
    "ToolError": {"reason": None},
    "ToolDenied": {"reason": "NotApproved"},
    "ToolTimeout": {"reason": None},
    "ToolProtocolError": {"code": -32000},
}


@pytest.mark.parametrize("kind", KINDS)
def test_errors_of_tools_are_classes(typescript: ReusedSandbox, broker: FakeBrokerCalls, kind: str) -> None:
    broker.tools["s.fail"] = lambda call: call.error(kind, "it failed", **KINDS[kind])
    code = (
        f'import {{ ToolError, {kind} as Kind }} from "client";\n'
        'try { await callMcpTool("s.fail") } catch (error) {\n'
        "  console.log(error instanceof ToolError, error instanceof Kind, error.name, error.tool, error.reason);\n}\n"
        'await callMcpTool("s.fail")'
    )
    run = typescript.run(code, tools=broker.job)
    reason = KINDS[kind].get("reason")
    assert run.stdout == f"true true {kind} s.fail {reason or 'null'}\n"
    assert (run.error["type"], run.error["line"]) == (kind, 5)
    assert [event["kind"] for event in run.events if event["type"] == "tool_result"] == [kind, kind]


def test_without_tools_each_call_is_denied(typescript: ReusedSandbox) -> None:
    run = typescript.run('await callMcpTool("s.x")')
    assert run.error["type"] == "ToolDenied"
    assert "spec.tools is empty" in run.error["message"]


def test_a_broken_connection_is_an_error_of_its_own(typescript: ReusedSandbox, broker: FakeBrokerCalls) -> None:
    broker.tools["s.broken"] = lambda call: call.break_off()
    run = typescript.run('await callMcpTool("s.broken")', tools=broker.job)
    assert (run.error["type"], "the tool may have done its work" in run.error["message"]) == ("ToolProtocolError", True)
    job = {**broker.job, "url": "http://127.0.0.1:1"}
    assert "the tool was not called" in typescript.run('await callMcpTool("s.x")', tools=job).error["message"]
    unknown = typescript.run('await callMcpTool("s.x")', tools={**broker.job, "token": "other"})
    assert (unknown.error["type"], "no such grant" in unknown.error["message"]) == ("ToolDenied", True)


def test_many_calls_share_few_connections(typescript: ReusedSandbox, broker: FakeBrokerCalls) -> None:
    code = "(await Promise.all(Array.from({ length: 50 }, (_, n) => callMcpTool('s.echo', { n })))).map((row) => row.n)"
    assert typescript.run(code, tools=broker.job).result == list(range(50))
    assert broker.most_at_a_time <= 10
    assert broker.connections <= 10


def test_a_call_that_nobody_awaits_is_made_and_noted(typescript: ReusedSandbox, broker: FakeBrokerCalls) -> None:
    run = typescript.run('\ncallMcpTool("s.echo", { n: 1 });\n5', tools=broker.job)
    assert (run.phase, run.result, len(broker.calls)) == ("Succeeded", 5, 1)
    (note,) = run.end["notes"]
    assert (note["kind"], "s.echo was called without `await` at line 2" in note["message"]) == ("NotAwaited", True)


def test_a_failed_call_that_nobody_awaits_fails_the_run(typescript: ReusedSandbox, broker: FakeBrokerCalls) -> None:
    broker.tools["s.fail"] = lambda call: call.error("ToolError", "it failed")
    run = typescript.run('\ncallMcpTool("s.fail");\n5', tools=broker.job)
    assert (run.phase, run.error["type"], run.error["line"]) == ("Failed", "ToolError", 2)


def test_the_end_of_the_time_cancels_calls_and_lets_code_clean_up(
    typescript: ReusedSandbox, broker: FakeBrokerCalls
) -> None:
    closed = threading.Event()

    def hang(call: Call) -> None:
        call.wait_until_closed()
        closed.set()

    broker.tools["s.hang"] = hang
    code = "try {\n  await callMcpTool('s.hang');\n} finally {\n  console.log('cleaned up');\n}"
    run = typescript.run(code, tools=broker.job, timeoutSeconds=0.5)
    assert (run.phase, run.reason, run.stdout) == ("TimedOut", "Timeout", "cleaned up\n")
    assert run.error["line"] == 2
    assert closed.wait(SECONDS)


def test_an_approval_is_an_event(typescript: ReusedSandbox, broker: FakeBrokerCalls) -> None:
    def approve(call: Call) -> None:
        call.send(type="approval", id="approval-0123456789abcdef", tool=call.tool, expiresAt="2030-01-01T00:00:00Z")
        call.value("done")

    broker.tools["s.ask"] = approve
    run = typescript.run('await callMcpTool("s.ask")', tools=broker.job)
    assert run.result == "done"
    assert [event["id"] for event in run.events if event["type"] == "approval"] == ["approval-0123456789abcdef"]


def test_files_of_results_lie_in_the_workspace(typescript: ReusedSandbox, broker: FakeBrokerCalls) -> None:
    image = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
    broker.tools["s.draw"] = lambda call: call.content(
        {"type": "text", "text": "drawn"}, image, structured={"i": "aGk="}
    )
    code = (
        'const drawn = await callMcpTool("s.draw");\n'
        "[drawn.text, drawn.images[0].mimeType, new TextDecoder().decode(drawn.images[0].read()), drawn.structured]"
    )
    path = str(typescript.workspace / "tool_results" / "1.png")
    assert typescript.run(code, tools=broker.job).result == ["drawn", "image/png", "hi", {"i": path}]


def test_tools_are_found_and_described(servers: ReusedSandbox, broker: FakeBrokerCalls) -> None:
    code = """
import { describeTools, searchTools } from "tool_discovery";
const [found] = await searchTools("open an issue", { limit: 1 });
const [tool] = await describeTools("github.create_issue");
const names = (await searchTools()).map((each) => each.name);
console.log(await searchTools("x", { detailLevel: "wrong" as any }).catch((error) => error.message));
console.log(await describeTools(["github.nothing"]).catch((error) => error.message));
[found.import, tool.signature, names]
"""
    catalog = {"servers": [{"server": "github", "tools": [ISSUE, LIST]}]}
    files = build_files([Catalog.from_tools("github", [ISSUE, LIST])], language="typescript")
    files["catalog.json"] = json.dumps(catalog)
    assert servers.client.put("/v1/wrappers", json={"hash": "h2", "files": files}).status_code < 300
    run = servers.run(code, tools=broker.job)
    assert run.error is None
    found, signature, names = run.result
    assert found == 'import { createIssue } from "servers/github"'
    assert signature.startswith("createIssue(owner: string")
    assert set(names) == {"createIssue", "listIssues"}
    assert run.stdout == (
        "detail_level must be one of name_only, with_description, full, not 'wrong'\n"
        "there is no tool github.nothing that this execution may call\n"
    )


def test_values_are_shown_as_artifacts(typescript: ReusedSandbox) -> None:
    code = """
show([{ name: "a", n: 1 }, { name: "b" }], { name: "rows", title: "Rows" });
show("# hi", { name: "note.md", mediaType: "text/markdown" });
show({ plain: [1, 2] });
show(new TextEncoder().encode("%PDF-1.4"));
Deno.writeTextFileSync("data.csv", "a,b");
show("data.csv");
[...Deno.readDirSync("artifacts")].map((entry) => entry.name).sort()
"""
    run = typescript.run(code)
    assert run.result == ["data-1.json", "data.csv", "file-1.pdf", "note.md", "rows.html"]
    assert "<td>a</td>" in (typescript.workspace / "artifacts" / "rows.html").read_text()
    assert "without a folder" in typescript.run('show("x", "a/b")').error["message"]


def test_progress_is_reported(typescript: ReusedSandbox) -> None:
    run = typescript.run("for (let n = 1; n <= 100; n++) progress(n, 100, `row ${n}`);\nawait 0")
    events = [event for event in run.events if event["type"] == "progress"]
    assert (events[0]["done"], events[-1]["done"], events[-1]["text"]) == (1, 100, "row 100")
    assert "must be a number" in typescript.run('progress("1" as any)').error["message"]
