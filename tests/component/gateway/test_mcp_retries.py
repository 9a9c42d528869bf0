"""MCP clients that give up and call again: they get the run that they left, once, and no code runs twice."""

import asyncio
from typing import Any

import pytest
from mcp import Client, MCPError
from tests.component.gateway.conftest import CEX, KEY, OTHER_KEY, SECRETS, key_entry, keys_secret
from tests.component.gateway.mcp_client import MODERN, REVISIONS, SESSIONS, connecting
from tests.component.gateway.test_mcp_replicas import RUN, Events, Replicas, classic, initialize, modern, replicas
from tests.component.gateway.test_mcp_runs import Scene, scene
from tests.support.pace import paced
from tests.support.until import until

from mcp_exec_gateway.features.mcp.abandoned_runs import AbandonedRuns
from mcp_exec_gateway.features.mcp.calls import ANNOTATION_UNDELIVERED

__all__ = ["replicas", "scene"]
CODE = {"code": "work()"}
OLD, NEW = b"the former key", b"the new key"
TIME_OUT = 1.0
"""Seconds until clients give up: enough for the gateway to create the execution."""


async def give_up(client: Client, scene: Scene, arguments: dict[str, Any] = CODE) -> str:
    """Call with a client that times out, and return the name of the execution that it leaves."""
    known = set(scene.gateway.executions)
    with pytest.raises(MCPError, match="timed out"):
        await client.call_tool("run_code", arguments, read_timeout_seconds=TIME_OUT)
    (name,) = set(scene.gateway.executions) - known
    await until(lambda: is_marked(scene, name))
    return name


def annotation(scene: Scene, name: str) -> str:
    found: str = scene.gateway.executions[name]["metadata"]["annotations"].get(ANNOTATION_UNDELIVERED, "")
    return found


def is_marked(scene: Scene, name: str) -> bool:
    return annotation(scene, name) != "" and not annotation(scene, name).startswith("taken")


async def call_new(client: Client, scene: Scene, arguments: dict[str, Any] = CODE) -> str:
    """Call, finish the new execution that this makes, and return its name."""
    known = set(scene.gateway.executions)
    calling = asyncio.create_task(client.call_tool("run_code", arguments))
    await until(lambda: set(scene.gateway.executions) - known)
    (name,) = set(scene.gateway.executions) - known
    scene.gateway.finish(name)
    assert (await calling).structured_content["execution"] == name
    return name


@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_client_that_timed_out_gets_its_run_by_the_same_call(scene: Scene, revision: str) -> None:
    async with connecting(scene.gateway.url, revision) as client:
        name = await give_up(client, scene)
        again = asyncio.create_task(client.call_tool("run_code", CODE))
        await until(lambda: annotation(scene, name).startswith("taken"))
        scene.finish()
        result = await again
    assert (result.is_error, list(scene.gateway.executions)) == (False, [name])
    assert (result.structured_content["execution"], result.structured_content["attached"]) == (name, True)
    assert "whose answer was not delivered; call again to run the code again" in result.content[0].text
    assert not scene.is_cancelled


@pytest.mark.parametrize("revision", REVISIONS)
async def test_an_answer_that_nobody_had_is_given_once_after_the_end(scene: Scene, revision: str) -> None:
    async with connecting(scene.gateway.url, revision) as client:
        name = await give_up(client, scene)
        scene.finish()
        async with asyncio.timeout(paced(10)):
            first = await client.call_tool("run_code", {**CODE, "description": "other words for the same"})
        assert first.structured_content["execution"] == name
        assert await call_new(client, scene) != name


@pytest.mark.parametrize("steps", [[(OLD, NEW), (NEW, OLD)], [(NEW, OLD), (OLD, NEW)]], ids=["later", "at a replica"])
async def test_a_run_is_found_when_the_sandbox_key_has_changed_since(
    scene: Scene, steps: list[tuple[bytes, bytes]]
) -> None:
    keys = scene.gateway.dependencies.supervisors.keys
    keys.replace(steps[0])
    async with connecting(scene.gateway.url, MODERN) as client:
        name = await give_up(client, scene)
        keys.replace(steps[1])
        scene.finish()
        async with asyncio.timeout(paced(10)):
            again = await client.call_tool("run_code", CODE)
    assert again.structured_content["execution"] == name


@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_call_that_was_answered_runs_again(scene: Scene, revision: str) -> None:
    async with connecting(scene.gateway.url, revision) as client:
        first = await call_new(client, scene)
        second = await call_new(client, scene)
    assert first != second
    assert not is_marked(scene, first)


@pytest.mark.parametrize("revision", REVISIONS)
async def test_of_two_calls_at_once_one_gets_the_run(scene: Scene, revision: str) -> None:
    async with connecting(scene.gateway.url, revision) as client:
        name = await give_up(client, scene)
        again = [asyncio.create_task(client.call_tool("run_code", CODE)) for _ in range(2)]
        await until(lambda: len(scene.gateway.executions) == 2)
        for each in scene.gateway.executions:
            scene.gateway.finish(each)
        results = await asyncio.gather(*again)
    assert sorted(name == result.structured_content["execution"] for result in results) == [False, True]


OTHER_CALLS: list[tuple[str, str, dict[str, Any]]] = [
    (KEY, "", {"code": "work( )"}),
    (KEY, "", {"code": "work()", "context": {"a": 1}}),
    (KEY, "", {"code": "work()", "session": "s"}),
    (KEY, "?user=somebody", CODE),
    (KEY, "?conversation=another", CODE),
    (KEY, "?pool=long", CODE),
    (KEY, "?tools=github.*", CODE),
    (OTHER_KEY, "", CODE),
]


async def test_another_caller_user_or_argument_is_another_call(scene: Scene) -> None:
    scene.gateway.api.put(SECRETS, keys_secret(**{"team-a": key_entry(KEY), "team-c": key_entry(OTHER_KEY)}))
    await until(lambda: (found := scene.gateway.dependencies.keys.find(OTHER_KEY)) and found.name == "team-c")
    async with connecting(scene.gateway.url, MODERN) as client:
        name = await give_up(client, scene)
    for key, query, arguments in OTHER_CALLS:
        async with connecting(scene.gateway.url, MODERN, key=key, query=query) as other:
            assert await call_new(other, scene, arguments) != name
    assert is_marked(scene, name)


@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_run_that_its_caller_cancelled_is_not_given(scene: Scene, revision: str) -> None:
    async with connecting(scene.gateway.url, revision) as client:
        name = await give_up(client, scene)
        await scene.gateway.ask("DELETE", f"/v1/executions/{name}")
        assert await call_new(client, scene) != name


async def test_a_cancellation_without_a_time_out_ends_the_run_at_once(scene: Scene) -> None:
    scene.gateway.dependencies.get(AbandonedRuns).grace_seconds = 1000
    async with connecting(scene.gateway.url, SESSIONS) as client:
        running = asyncio.create_task(client.call_tool("run_code", CODE))
        await scene.bind()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await until(lambda: scene.is_cancelled)
        name = scene.name
        assert await call_new(client, scene) != name


@pytest.mark.parametrize("goes_on", [True, False])
async def test_after_five_minutes_the_call_is_a_new_one_unless_the_run_goes_on(scene: Scene, goes_on: bool) -> None:
    abandoned = scene.gateway.dependencies.get(AbandonedRuns)
    async with connecting(scene.gateway.url, MODERN, query="?onDisconnect=continue") as client:
        name = await give_up(client, scene)
        now = abandoned.clock
        abandoned.clock = lambda: now() + 301
        if goes_on:
            again = asyncio.create_task(client.call_tool("run_code", CODE))
            await until(lambda: not is_marked(scene, name))
            scene.finish()
            async with asyncio.timeout(paced(10)):
                assert (await again).structured_content["execution"] == name
        else:
            scene.finish()
            assert await call_new(client, scene) != name


@pytest.mark.parametrize(
    ("revision", "query", "cancels"),
    [(MODERN, "", True), (SESSIONS, "", True), (MODERN, "?onDisconnect=continue", False)],
)
async def test_a_run_that_nobody_asks_for_is_cancelled_after_a_time(
    scene: Scene, revision: str, query: str, cancels: bool
) -> None:
    scene.gateway.dependencies.get(AbandonedRuns).grace_seconds = 0
    async with connecting(scene.gateway.url, revision, query=query) as client:
        name = await give_up(client, scene)
        if cancels:
            await until(lambda: scene.is_cancelled)
            assert annotation(scene, name).endswith(".cancelled")
    assert scene.is_cancelled == cancels


@pytest.mark.parametrize(("calls", "is_new"), [({"total": 1, "byTool": {"github.merge": 1}}, False), ({}, True)])
async def test_a_run_that_was_cancelled_so_is_reported_once_if_it_called_tools(
    scene: Scene, calls: dict[str, Any], is_new: bool
) -> None:
    async with connecting(scene.gateway.url, MODERN, query="?onDisconnect=cancel") as client:
        name = await give_up(client, scene)
        assert scene.is_cancelled
        scene.gateway.finish(name, phase="Cancelled", reason="Cancelled", toolCalls=calls)
        if not is_new:
            result = await client.call_tool("run_code", CODE)
            assert (result.is_error, result.structured_content["execution"]) == (True, name)
            assert "Tools that were called before: github.merge 1 times" in result.content[0].text
        assert await call_new(client, scene) != name


async def test_a_run_of_somebody_else_with_a_copied_mark_is_not_given(scene: Scene) -> None:
    async with connecting(scene.gateway.url, MODERN) as client:
        name = await give_up(client, scene)
        whole = scene.gateway.executions[name]
        forged = {**whole["metadata"], "name": "forged", "uid": "u"}
        forged["labels"] = {**forged["labels"], "mcp-exec.dev/caller": "team-b"}
        scene.gateway.api.remove(CEX, name)
        scene.gateway.api.put(CEX, {"metadata": forged, "spec": {"code": "evil()"}, "status": {"phase": "Succeeded"}})
        await until(lambda: scene.gateway.dependencies.get(AbandonedRuns).cache.get(("agents", "forged")))
        assert await call_new(client, scene) != "forged"


async def test_a_session_that_asks_again_without_ending_its_first_request_gets_the_run(replicas: Replicas) -> None:
    first, session = replicas.first, await initialize(replicas.gateway)
    for gateway in (replicas.gateway, replicas.second):
        now = gateway.dependencies.get(AbandonedRuns).clock
        gateway.dependencies.get(AbandonedRuns).clock = lambda now=now: now() + 5  # type: ignore[misc]
    call = {"id": 7, "method": "tools/call", "params": RUN}
    async with replicas.gateway.request("POST", "/mcp", **classic(call, session)):
        name = await first.bind()
        again = asyncio.create_task(replicas.second.ask("POST", "/mcp", **classic({**call, "id": 8}, session)))
        await until(lambda: annotation(first, name).startswith("taken"))
        late = {"method": "notifications/cancelled", "params": {"requestId": 7, "reason": "timed out after 60s"}}
        assert (await replicas.second.ask("POST", "/mcp", **classic(late, session))).status == 202
        assert not is_marked(first, name)
        other = await initialize(replicas.second)
        new = asyncio.create_task(replicas.second.ask("POST", "/mcp", **classic({**call, "id": 9}, other)))
        await until(lambda: len(first.gateway.executions) == 2)
        for each in first.gateway.executions:
            first.gateway.finish(each)
        assert name in (await again).text
        assert name not in (await new).text


async def test_the_same_call_at_another_replica_gets_the_run(replicas: Replicas) -> None:
    first = replicas.first
    async with connecting(replicas.gateway.url, MODERN) as client:
        name = await give_up(client, first)
    async with connecting(replicas.second.url, MODERN) as client:
        await until(lambda: replicas.second.dependencies.get(AbandonedRuns).cache.get(("agents", name)))
        again = asyncio.create_task(client.call_tool("run_code", CODE))
        await until(lambda: annotation(first, name).startswith("taken"))
        first.finish()
        assert (await again).structured_content["execution"] == name
    async with connecting(replicas.gateway.url, MODERN) as client:
        assert await call_new(client, first) != name


async def test_a_run_that_its_client_resumed_is_not_given_again(replicas: Replicas) -> None:
    first, session = replicas.first, await initialize(replicas.gateway)
    call = {"id": 7, "method": "tools/call", "params": RUN}
    async with replicas.gateway.request("POST", "/mcp", **classic(call, session)) as response:
        name = await first.bind()
        events = Events(response.content)
        await until(lambda: replicas.gateway.dependencies.index.has_waits(("agents", name)))
        async for line in response.content:
            if line.startswith(b"id: "):
                events.last_id = line[4:].decode().strip()
                break
    await until(lambda: is_marked(first, name))
    headers = {"Accept": "text/event-stream", "Mcp-Session-Id": session, "Last-Event-ID": events.last_id}
    resumed = asyncio.create_task(replicas.second.ask("GET", "/mcp", headers=headers))
    await until(lambda: annotation(first, name).startswith("taken"))
    first.finish()
    assert name in (await resumed).text
    async with connecting(replicas.gateway.url, SESSIONS) as client:
        assert await call_new(client, first) != name


async def test_a_client_that_leaves_before_the_end_of_its_answer_gets_it_again(replicas: Replicas) -> None:
    first = replicas.first
    large = {"stdout": "x" * 20_000, "stderr": "y" * 20_000, "result": "z" * 4_000_000, "truncated": False}
    async with replicas.gateway.request("POST", "/mcp", **modern("tools/call", **RUN)) as response:
        name = await first.bind()
        await until(lambda: replicas.gateway.dependencies.index.has_waits(("agents", name)))
        first.finish(output=large)
        await until(lambda: not replicas.gateway.dependencies.index.has_waits(("agents", name)))
        response.close()
    await until(lambda: is_marked(first, name))


async def test_calls_with_a_key_are_repeated_by_it(scene: Scene) -> None:
    meta: Any = {"mcp-exec.dev/idempotency-key": "k"}
    async with connecting(scene.gateway.url, MODERN) as client:
        with pytest.raises(MCPError, match="timed out"):
            await client.call_tool("run_code", CODE, read_timeout_seconds=TIME_OUT, meta=meta)
        name = scene.name
        await until(lambda: is_marked(scene, name))
        again = asyncio.create_task(client.call_tool("run_code", CODE, meta=meta))
        await until(lambda: annotation(scene, name).startswith("taken"))
        scene.finish()
        assert (await again).structured_content["execution"] == name
        assert await call_new(client, scene) != name


async def test_a_first_request_that_ends_late_leaves_the_run_to_the_second(scene: Scene) -> None:
    scene.gateway.dependencies.get(AbandonedRuns).grace_seconds = 0
    meta: Any = {"mcp-exec.dev/idempotency-key": "k"}
    index = scene.gateway.dependencies.index
    async with connecting(scene.gateway.url, MODERN) as one, connecting(scene.gateway.url, MODERN) as two:
        first = asyncio.create_task(one.call_tool("run_code", CODE, meta=meta))
        await until(lambda: scene.gateway.executions)
        second = asyncio.create_task(two.call_tool("run_code", CODE, meta=meta))
        await until(lambda: annotation(scene, scene.name).startswith("taken"))
        first.cancel()
        await until(lambda: index.wait_count == 1)
        scene.finish()
        assert (await second).structured_content["phase"] == "Succeeded"
        assert not scene.is_cancelled
        assert not is_marked(scene, scene.name)


@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_client_that_stays_costs_no_write(scene: Scene, revision: str) -> None:
    async with connecting(scene.gateway.url, revision) as client:
        name = await call_new(client, scene)
    assert annotation(scene, name) == ""
    assert not scene.gateway.api.asked("PATCH", name)
