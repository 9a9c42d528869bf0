"""Executions with tools: grant, wrappers, counted calls, approvals."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from copy import deepcopy
from time import time
from typing import Any

import pytest
from aiohttp import web
from tests.component.operator.brokers import RELEASE, SERVICE, SLICES, running_broker
from tests.component.operator.conftest import run_until_killed
from tests.support.broker import FakeBroker
from tests.support.world import CEX, EVENTS, KEY, NAMESPACE, POLICIES, World

from mcp_exec_api.constants import MAX_TIMEOUT_SECONDS, TOOL_SERVERS
from mcp_exec_common.broker.grants import MAX_GRANT_SECONDS, Grant, GrantSigner
from mcp_exec_common.kube.client import custom_resource_path
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.sandbox_keys import SandboxKeys
from mcp_exec_operator.cluster import broker as discovery

Operating = Callable[..., Any]
TS = custom_resource_path(TOOL_SERVERS, namespace=NAMESPACE)
PENDING: Object = {
    "id": "a-1",
    "tool": "github.create_issue",
    "arguments": "{}",
    "argumentsDigest": "sha256:one",
    "argumentsBytes": 2,
    "argumentsComplete": True,
    "state": "Pending",
    "requestedAt": "2026-11-22T06:00:00.000000Z",
    "expiresAt": "2026-11-22T06:02:00.000000Z",
}


@pytest.fixture
async def broker(world: World) -> AsyncIterator[FakeBroker]:
    async with running_broker(world) as made:
        yield made


@pytest.fixture
def equipped(operating: Operating, broker: FakeBroker) -> Operating:
    """Run an operator with the broker."""
    return lambda **changes: operating(broker_service=SERVICE, **changes)


def address_of(world: World, execution: str) -> str:
    """Return the address of the execution's pod."""
    return str(world.pods()[world.status(execution)["podName"]]["status"]["podIP"])


def add_server(world: World, **status: Any) -> None:
    world.put(TS, {"metadata": {"name": "github", "generation": 1}, "spec": {"url": "http://x"}, "status": status})


async def job_of(world: World, name: str) -> Object:
    """Return the job of an execution that waits, after releasing it and waiting for its end."""
    await world.until(lambda: world.ran)
    job = world.supervisor_of(name).job
    world.release.set()
    await world.finished(name)
    assert job is not None
    return job


async def test_a_job_says_where_its_tools_are_and_carries_its_grant(
    world: World, broker: FakeBroker, equipped: Operating
) -> None:
    world.pool(tools={"allow": ["github.*"], "deny": []})
    async with equipped():
        await world.warm(1)
        uid = world.execution("one", "wait", caller="team-a", tools=["github.create_*"], timeoutSeconds=20)
        await world.until(lambda: world.ran)
        address = address_of(world, "one")
        job = await job_of(world, "one")
    assert (job["tools"]["url"], job["tools"]["allow"]) == ("http://127.0.0.1:1", ["github.create_*"])
    grant = GrantSigner(keys=SandboxKeys(KEY)).read(Grant, job["tools"]["token"])
    assert (grant.execution, grant.name, grant.namespace, grant.caller) == (uid, "one", NAMESPACE, "team-a")
    assert (grant.tools, grant.pool_tools.allow, grant.tool_calls) == (["github.create_*"], ["github.*"], 100)
    assert 20 < grant.expires - time() < 120
    assert (grant.pod_address, grant.replica) == (address, "pod-127.0.0.1")


async def test_a_forged_caller_is_claimed_in_the_grant(world: World, broker: FakeBroker, equipped: Operating) -> None:
    world.pool()
    async with equipped():
        await world.warm(1)
        world.execution("one", "wait", tools=["github.*"], caller="team-a", forged=True)
        job = await job_of(world, "one")
    assert GrantSigner(keys=SandboxKeys(KEY)).read(Grant, job["tools"]["token"]).caller == "claimed:team-a"


async def test_a_proof_of_a_caller_serves_no_second_execution(
    world: World, broker: FakeBroker, equipped: Operating
) -> None:
    world.pool()
    async with equipped():
        await world.warm(1)
        world.execution("one", "wait", tools=["github.*"], caller="team-a")
        copied = deepcopy(world.collections[CEX]["one"])
        first = await job_of(world, "one")
        world.release.clear()
        world.remove(CEX, "one")
        for name in ("uid", "creationTimestamp"):
            del copied["metadata"][name]
        world.put(CEX, copied)
        await world.until(lambda: len(world.ran) == 2 and world.status("one").get("podName"))
        second = world.supervisor_of("one").job
        world.release.set()
        await world.finished("one")
    assert second is not None
    callers = [GrantSigner(keys=SandboxKeys(KEY)).read(Grant, job["tools"]["token"]).caller for job in (first, second)]
    assert callers == ["team-a", "claimed:team-a"]


async def test_an_execution_without_tools_asks_the_broker_nothing(
    world: World, broker: FakeBroker, equipped: Operating
) -> None:
    world.pool()
    async with equipped():
        await world.warm(1)
        world.execution("plain")
        status = await world.finished("plain")
        assert broker.asked == []
    assert "toolCalls" not in status


async def test_tools_without_a_broker_are_refused(world: World, operating: Operating) -> None:
    world.pool()
    async with operating():
        world.execution("one", tools=["github.*"])
        status = await world.finished("one")
    assert (status["phase"], status["reason"]) == ("Failed", "Rejected")
    assert "no broker" in status["error"]["message"]


async def test_an_execution_of_a_longer_time_has_a_grant_that_the_broker_accepts(
    world: World, broker: FakeBroker, equipped: Operating
) -> None:
    world.pool(maxTimeoutSeconds=MAX_TIMEOUT_SECONDS)
    async with equipped():
        await world.warm(1)
        world.execution("one", "wait", tools=["github.*"], timeoutSeconds=MAX_TIMEOUT_SECONDS)
        job = await job_of(world, "one")
    grant = GrantSigner(keys=SandboxKeys(KEY)).read(Grant, job["tools"]["token"])
    assert MAX_TIMEOUT_SECONDS < grant.expires - time() < MAX_GRANT_SECONDS


async def test_a_job_names_one_replica_and_a_ready_one_if_there_is_one(
    world: World, broker: FakeBroker, equipped: Operating
) -> None:
    world.pool()
    world.put(SLICES, broker.slice("127.0.0.1", "127.0.0.2"))
    world.put(SLICES, broker.slice("127.0.0.3", suffix="x2", ready=False))
    async with equipped():
        await world.warm(1)
        world.execution("one", "wait", tools=["github.*"])
        job = await job_of(world, "one")
    grant = GrantSigner(keys=SandboxKeys(KEY)).read(Grant, job["tools"]["token"])
    assert grant.replica in ("pod-127.0.0.1", "pod-127.0.0.2")
    assert job["tools"]["url"] == f"http://{grant.replica.removeprefix('pod-')}:1"


async def test_a_broker_without_pods_fails_executions_with_tools_alone(
    world: World, broker: FakeBroker, equipped: Operating, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery, "_CHECK_SECONDS", 0.002)
    world.pool()
    world.remove(SLICES, f"{SERVICE}-x1")
    async with equipped():
        world.execution("one", tools=["github.*"])
        world.execution("plain")
        assert (await world.finished("plain"))["phase"] == "Succeeded"
        assert (await world.finished("one"))["reason"] == "BrokerUnavailable"


@pytest.mark.parametrize("needs", [{"tools": ["github.*"]}, {"workspace": {"name": "notes"}}])
async def test_an_execution_waits_while_the_only_pod_of_the_broker_is_replaced(
    world: World, broker: FakeBroker, equipped: Operating, needs: dict[str, Any]
) -> None:
    world.pool()
    world.remove(SLICES, f"{SERVICE}-x1")
    async with equipped():
        await world.warm(1)
        world.execution("one", **needs)
        world.execution("later")
        assert (await world.finished("later"))["phase"] == "Succeeded"
        assert world.status("one").get("phase") in (None, "Pending")
        world.put(SLICES, broker.slice("127.0.0.2"))
        assert (await world.finished("one"))["phase"] == "Succeeded"


async def test_idle_pods_are_given_the_wrappers_and_the_job_names_them(
    world: World, broker: FakeBroker, equipped: Operating
) -> None:
    world.pool(warm={"min": 2})
    add_server(world)
    async with equipped():
        await world.until(lambda: [each.wrappers for each in world.supervisors.values()] == ["one", "one"])
        broker.wrappers = {"hash": "two", "files": {}}
        add_server(world, catalogHash="another")
        await world.until(lambda: [each.wrappers for each in world.supervisors.values()] == ["two", "two"])
        world.execution("one", "wait", tools=["github.*"])
        job = await job_of(world, "one")
    assert job["tools"]["wrappers"] == "two"


async def test_an_execution_waits_for_the_wrappers_of_a_server_that_has_just_changed(
    world: World, broker: FakeBroker, equipped: Operating
) -> None:
    world.pool(warm={"min": 1})
    add_server(world)

    def create(request: web.Request) -> None:
        # now the operator has the change and no wrappers for it: watches of two kinds have no common order
        if request.path.endswith("/wrappers") and "one" not in world.collections.get(CEX, {}):
            world.execution("one", "wait", tools=["github.*"])

    async with equipped():
        await world.until(lambda: [each.wrappers for each in world.supervisors.values()] == ["one"])
        broker.wrappers, broker.attack = {"hash": "two", "files": {}}, create
        add_server(world, catalogHash="another")
        job = await job_of(world, "one")
    assert job["tools"]["wrappers"] == "two"


async def test_an_execution_gets_its_wrappers_however_often_the_broker_failed_before(
    world: World, broker: FakeBroker, equipped: Operating
) -> None:
    world.pool(warm={"min": 1})
    add_server(world)
    broker.broken = True
    async with equipped():
        await world.warm(1)
        await world.until(lambda: sum(path.endswith("/wrappers") for path in broker.paths) > 2)
        broker.broken = False
        world.execution("one", "wait", tools=["github.*"])
        job = await job_of(world, "one")
    assert job["tools"]["wrappers"] == "one"


async def test_an_execution_that_precedes_the_change_of_its_server_gets_the_wrappers_that_the_broker_has_by_then(
    world: World, broker: FakeBroker, equipped: Operating
) -> None:
    complete, broker.wrappers = broker.wrappers, {"hash": "none", "files": {}}
    world.pool(warm={"min": 1})
    add_server(world)
    async with equipped():
        await world.until(lambda: [each.wrappers for each in world.supervisors.values()] == ["none"])
        broker.wrappers = complete  # the server is available, and the operator's watch brings it later
        world.execution("one", "wait", tools=["github.*"])
        job = await job_of(world, "one")
    assert job["tools"]["wrappers"] == "one"


async def test_an_execution_waits_until_the_operator_has_listed_the_servers(
    world: World, broker: FakeBroker, equipped: Operating
) -> None:
    world.pool(warm={"min": 2})
    add_server(world, available=True)
    world.held[TOOL_SERVERS] = asyncio.Event()
    async with equipped():
        await world.warm(2)
        world.execution("one", "wait", tools=["*.*"])
        world.execution("later")
        assert (await world.finished("later"))["phase"] == "Succeeded"
        assert not any("wrappers" in path for path in broker.paths)
        assert world.status("one").get("phase") in (None, "Pending")
        world.held.pop(TOOL_SERVERS).set()
        await world.until(lambda: len(world.ran) == 2)
        job = await job_of(world, "one")
    assert job["tools"]["wrappers"] == "one"


async def test_an_execution_waits_until_a_broker_that_starts_has_listed_its_available_server(
    world: World, broker: FakeBroker, equipped: Operating
) -> None:
    complete, broker.wrappers = broker.wrappers, {"hash": "none", "files": {}}
    world.pool(warm={"min": 1})
    add_server(world, available=True)

    asked_since: list[str] = []

    def list_later(request: web.Request) -> None:
        asked_since.extend([request.path] if "one" in world.collections.get(CEX, {}) else [])
        if len(asked_since) == 4:
            broker.wrappers = complete

    async with equipped():
        await world.until(lambda: [each.wrappers for each in world.supervisors.values()] == ["none"])
        broker.attack = list_later
        world.execution("one", "wait", tools=["github.list_issues"])
        job = await job_of(world, "one")
    assert job["tools"]["wrappers"] == "one"


async def test_pods_keep_the_wrappers_of_an_available_server_while_a_new_broker_has_not_listed_it(
    world: World, broker: FakeBroker, equipped: Operating
) -> None:
    complete = broker.wrappers
    world.pool(warm={"min": 1})
    add_server(world, available=True)
    async with equipped():
        await world.until(lambda: [each.wrappers for each in world.supervisors.values()] == ["one"])
        broker.wrappers = {"hash": "none", "files": {}}
        asked = len(broker.paths)
        add_server(world, available=True, catalogHash="another")
        await world.until(lambda: len(broker.paths) > asked)
        world.execution("one", "wait", tools=["github.*"])
        assert (await job_of(world, "one"))["tools"]["wrappers"] == "one"
        broker.wrappers = {**complete, "hash": "two"}
        await world.until(lambda: [each.wrappers for each in world.supervisors.values()] == ["two"])
        broker.wrappers = {"hash": "three", "files": {}}
        add_server(world, available=False)
        await world.until(lambda: [each.wrappers for each in world.supervisors.values()] == ["three"])


async def test_an_execution_of_a_server_that_nobody_has_waits_for_one_answer_only(
    world: World, broker: FakeBroker, equipped: Operating
) -> None:
    world.pool(warm={"min": 1})
    add_server(world, available=True)
    async with equipped():
        await world.until(lambda: [each.wrappers for each in world.supervisors.values()] == ["one"])
        asked = len(broker.paths)
        world.execution("one", "wait", tools=["jira.*"])
        job = await job_of(world, "one")
        assert [path for path in broker.paths[asked:] if "wrappers" in path] == [f"/v1/namespaces/{NAMESPACE}/wrappers"]
    assert job["tools"]["wrappers"] == "one"


@pytest.mark.parametrize(
    ("tools", "said"),
    [
        (["gihtub.*"], ["no tool matches gihtub.* of spec.tools; did you mean github?"]),
        (["jira.*"], ["no tool matches jira.* of spec.tools; the server here is github"]),
        (["github.creat_issue", "*.*"], []),
        (["github.*", "jira.*"], []),
    ],
)
async def test_patterns_that_match_no_tool_are_a_note(
    world: World, broker: FakeBroker, equipped: Operating, tools: list[str], said: list[str]
) -> None:
    world.pool()
    add_server(world, available=True)
    async with equipped():
        world.execution("one", tools=tools)
        status = await world.finished("one")
    assert status["phase"] == "Succeeded"
    assert status.get("notes", []) == [{"kind": "NoToolMatches", "message": text} for text in said]


async def test_a_namespace_without_servers_is_named_as_the_cause(
    world: World, broker: FakeBroker, equipped: Operating
) -> None:
    broker.wrappers = {"hash": "none", "files": {}}
    world.pool()
    async with equipped():
        world.execution("one", tools=["github.*"])
        status = await world.finished("one")
    said = "no tool matches github.* of spec.tools; this namespace has no ToolServer"
    assert status["notes"] == [{"kind": "NoToolMatches", "message": said}]


@pytest.mark.parametrize(
    "unknown", [{"broken": True}, {"wrappers": {"hash": "none", "files": {}}}], ids=["broker fails", "not listed yet"]
)
async def test_no_pattern_is_called_wrong_while_the_tools_of_its_server_are_unknown(
    world: World, broker: FakeBroker, equipped: Operating, unknown: dict[str, Any]
) -> None:
    for name, value in unknown.items():
        setattr(broker, name, value)
    world.pool()
    add_server(world)
    async with equipped():
        world.execution("one", tools=["github.create_issue"])
        status = await world.finished("one")
    assert "notes" not in status


async def test_a_caller_with_limited_tools_learns_of_no_other_server(
    world: World, broker: FakeBroker, equipped: Operating
) -> None:
    world.pool()
    add_server(world, available=True)
    async with equipped():
        world.execution("one", caller="team-a", tools=["gihtub.*"], has_limited_tools=True)
        status = await world.finished("one")
    assert [note["message"] for note in status["notes"]] == ["no tool matches gihtub.* of spec.tools"]


async def test_the_note_survives_the_operator_that_granted_the_tools(
    world: World, broker: FakeBroker, equipped: Operating
) -> None:
    world.pool()
    add_server(world, available=True)
    async with equipped():
        world.execution("one", "wait", tools=["gihtub.*"])
        await world.until(lambda: world.ran)
    broker.wrappers = {**broker.wrappers, "hash": "two"}
    async with equipped():
        # an operator that gives pods their wrappers knows the tools
        await world.until(lambda: "two" in [each.wrappers for each in world.supervisors.values()])
        world.release.set()
        status = await world.finished("one")
    assert [note["kind"] for note in status["notes"]] == ["NoToolMatches"]


async def test_a_cold_pod_is_given_the_wrappers_before_its_job(
    world: World, broker: FakeBroker, equipped: Operating
) -> None:
    world.pool(warm={"min": 0})
    add_server(world)
    async with equipped():
        world.execution("one", "wait", tools=["github.*"])
        await world.until(lambda: world.ran)
        supervisor = world.supervisor_of("one")
        job = await job_of(world, "one")
    assert (job["tools"]["wrappers"], supervisor.puts) == ("one", 1)


async def test_a_pod_that_takes_no_wrappers_is_warm_and_runs_none_the_less(
    world: World, broker: FakeBroker, equipped: Operating
) -> None:
    world.pool()
    add_server(world)
    world.refuse_wrappers = True
    async with equipped():
        await world.warm(1)
        await world.until(lambda: world.given)
        world.execution("one", "wait", tools=["github.*"])
        job = await job_of(world, "one")
    assert world.status("one")["phase"] == "Succeeded"
    assert job["tools"]["wrappers"] is None


async def test_all_that_the_status_shows_of_a_run_counts_as_read(
    world: World, broker: FakeBroker, equipped: Operating
) -> None:
    """Errors and standard error reach the model as the output does; bytes that were cut do not."""
    shown = {"type": "ValueError", "message": "m" * 50, "traceback": "t" * 300, "line": 1}
    events = [
        {"kind": "stdout", "text": "o" * 20},
        {"kind": "stderr", "text": "é" * 30},
        {"kind": "end", "phase": "Failed", "reason": "UserError", "error": shown, "stdoutBytes": 10**6, "runMs": 1},
    ]
    world.pool()
    async with equipped():
        await world.warm(1)
        uid = world.execution("one", f"say {json.dumps(events)}", tools=["github.*"])
        broker.calls[uid] = {"toolCalls": {"total": 1, "bytesIn": 1000}, "approvals": []}
        status = await world.finished("one")
    assert status["toolCalls"]["bytesKept"] == 1000 - 20 - 2 * 30 - len("ValueError") - 50 - 300


async def test_calls_are_counted_at_the_end(world: World, broker: FakeBroker, equipped: Operating) -> None:
    world.pool()
    async with equipped():
        await world.warm(1)
        uid = world.execution("one", "wait", tools=["github.*"])
        broker.calls[uid] = {
            "toolCalls": {"total": 3, "failed": 1, "byTool": {"github.list_issues": 3}, "bytesIn": 1000},
            "approvals": [],
        }
        world.release.set()
        status = await world.finished("one")
    assert broker.closed == [uid]
    assert broker.grant_seconds == [30 + 15 + 60]  # the run, its end, and what the grant has beyond both
    assert status["toolCalls"] == {
        "total": 3,
        "failed": 1,
        "byTool": {"github.list_issues": 3},
        "bytesIn": 1000,
        "bytesKept": 1000 - len("waiting\n"),
        "complete": True,
    }


async def test_a_broker_that_does_not_answer_costs_the_counts_and_not_the_execution(
    world: World, broker: FakeBroker, equipped: Operating
) -> None:
    world.pool()
    broker.broken = True
    async with equipped():
        world.execution("one", tools=["github.*"])
        status = await world.finished("one")
    assert status["phase"] == "Succeeded"
    assert (status["toolCalls"]["complete"], status["toolCalls"]["total"]) == (False, 0)


async def test_a_call_that_waits_for_an_approval_shows_in_the_status_and_as_an_event(
    world: World, broker: FakeBroker, equipped: Operating
) -> None:
    world.pool()
    async with equipped():
        await world.warm(1)
        uid = world.execution("one", "ask", tools=["github.*"])
        broker.calls[uid] = {"toolCalls": {"total": 1}, "approvals": [PENDING]}
        await world.until(lambda: world.status("one").get("approvals"))
        await world.until(lambda: world.collections.get(EVENTS))
        assert (world.status("one")["approvals"], world.status("one")["reason"]) == ([PENDING], "AwaitingApproval")
        decided = {**PENDING, "state": "Approved", "decidedBy": "ann"}
        broker.calls[uid] = {"toolCalls": {"total": 1}, "approvals": [decided]}
        await world.until(lambda: world.status("one")["approvals"] == [decided])
        assert not world.status("one").get("reason")
        world.release.set()
        status = await world.finished("one")
    assert status["approvals"] == [decided]
    reasons = [event["reason"] for event in world.collections[EVENTS].values()]
    assert reasons == ["ApprovalNeeded"]


async def test_a_hint_without_an_approval_changes_nothing(
    world: World, broker: FakeBroker, equipped: Operating
) -> None:
    world.pool()
    async with equipped():
        await world.warm(1)
        uid = world.execution("one", "ask", tools=["github.*"])
        await world.until(lambda: f"/v1/executions/{uid}" in broker.paths)
        await world.until(lambda: world.supervisor_of("one").extensions == [0])
        world.release.set()
        status = await world.finished("one")
    assert "approvals" not in status


@pytest.mark.parametrize("step", range(1, 60, 7))
async def test_an_operator_that_is_killed_loses_no_counts(
    world: World, broker: FakeBroker, equipped: Operating, step: int
) -> None:
    world.pool()
    async with equipped():
        await world.warm(1)
    uid = world.execution("one", tools=["github.*"])
    broker.calls[uid] = {"toolCalls": {"total": 2}, "approvals": []}
    await run_until_killed(world, step, lambda: world.status("one").get("finishedAt"), broker_service=SERVICE)
    async with equipped():
        status = await world.finished("one")
    assert status["phase"] == "Succeeded"
    assert world.ran == [uid]
    assert status["toolCalls"]["total"] == 2


async def test_sandboxes_reach_the_broker_and_nothing_else(
    world: World, broker: FakeBroker, equipped: Operating
) -> None:
    world.pool()
    async with equipped():
        await world.warm(1)
    policy = world.collections[POLICIES]["mcp-exec-pool-default"]
    (rule,) = policy["spec"]["egress"]
    assert rule["ports"] == [{"protocol": "TCP", "port": 8082}]
    (peer,) = rule["to"]
    assert peer["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": RELEASE}
    assert peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "broker"
