"""Executions by HTTP: created, waited for, listed, cancelled."""

import asyncio
import json
import re

import aiohttp
import pytest
import yarl
from tests.component.gateway.conftest import (
    CEX,
    DEADLINE,
    KEY,
    SECRETS,
    Gateway,
    key_entry,
    keys_secret,
    listing,
    serving,
)
from tests.support.api_server import FakeApiServer, Fault
from tests.support.until import until

from mcp_exec_api.code_execution import CodeExecutionSpec
from mcp_exec_api.wire.executions import Execution


async def test_a_request_that_waits_gets_the_output_when_the_execution_ends(gateway: Gateway) -> None:
    gateway.finish_all()
    answer = await gateway.post({"code": "print(1)"})
    assert answer.status == 200
    assert answer.json["phase"] == "Succeeded"
    assert answer.json["output"]["stdout"] == "1\n"
    assert answer.json["namespace"] == "agents"
    Execution.model_validate_json(answer.text)


async def test_what_is_written_is_whole_and_named_by_time(gateway: Gateway) -> None:
    body = {
        "code": "print(a)",
        "context": {"a": None, "b": [1, {"c": "ü"}]},
        "poolRef": {"name": "long"},
        "timeoutSeconds": 120,
        "limits": {"outputBytes": 2048, "toolCalls": 20},
        "tools": ["github.create_issue", "filesystem.*"],
        "user": "u-42",
        "priority": "Low",
        "ttlSecondsAfterFinished": 5,
    }
    answer = await gateway.post(body, "?wait=0")
    assert answer.status == 202
    name = answer.json["name"]
    assert re.fullmatch(r"exec-[0-9a-hjkmnp-tv-z]{12}", name)
    assert answer.headers["Location"] == f"/v1/executions/{name}"
    made = gateway.executions[name]
    defaults = {"cancelRequested": False, "approvals": [], "approvalTimeoutSeconds": 600, "skills": []}
    assert made["spec"] == {**body, **defaults}
    CodeExecutionSpec.model_validate_json(json.dumps(made["spec"]), strict=True)
    assert made["metadata"]["labels"] == {"app.kubernetes.io/managed-by": "mcp-exec", "mcp-exec.dev/caller": "team-a"}
    created = made["metadata"]["annotations"]["mcp-exec.dev/created-at"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", created)
    assert answer.json == {
        "name": name,
        "namespace": "agents",
        "pool": "long",
        "caller": "team-a",
        "phase": "Pending",
        "reason": "",
        "createdAt": created,
    }


@pytest.mark.parametrize(("limits", "is_limited"), [({}, False), ({"tools": ["github.*"]}, True)])
async def test_an_execution_says_whether_its_caller_may_use_some_tools_only(
    api: FakeApiServer, limits: dict[str, list[str]], is_limited: bool
) -> None:
    api.put(SECRETS, keys_secret(**{"team-a": key_entry(KEY, **limits)}))
    async with serving(api) as gateway:
        answer = await gateway.post({"code": "1", "tools": ["github.*"]}, "?wait=0")
        annotations = gateway.executions[answer.json["name"]]["metadata"]["annotations"]
    assert ("mcp-exec.dev/limited-tools" in annotations) is is_limited


@pytest.mark.parametrize(
    ("phase", "reason"), [("Failed", "UserError"), ("TimedOut", "Timeout"), ("Cancelled", "Cancelled")]
)
async def test_an_execution_that_did_not_succeed_is_an_answer_all_the_same(
    gateway: Gateway, phase: str, reason: str
) -> None:
    gateway.finish_all(phase=phase, reason=reason, error={"type": "E", "message": "m", "line": 1})
    answer = await gateway.post()
    assert answer.status == 200
    assert (answer.json["phase"], answer.json["reason"]) == (phase, reason)
    assert answer.json["error"]["line"] == 1


async def test_a_wait_that_ends_first_gets_202_and_where_to_look(gateway: Gateway) -> None:
    answer = await gateway.post(query="?wait=0.01")
    assert answer.status == 202
    later = await gateway.ask("GET", answer.headers["Location"])
    assert later.status == 200
    assert later.json["phase"] == "Pending"


async def test_an_end_before_the_create_has_returned_is_not_lost(gateway: Gateway, api: FakeApiServer) -> None:
    gateway.finish_all()
    api.faults.append(Fault("POST", "/codeexecutions", "lost after"))
    answer = await gateway.post()
    assert (answer.status, answer.json["phase"]) == (200, "Succeeded")
    assert len(gateway.executions) == 1


async def test_an_end_while_the_watch_is_broken_is_seen_after_it(gateway: Gateway, api: FakeApiServer) -> None:
    api.watches_allowed.clear()
    asking = asyncio.create_task(gateway.post())
    await until(lambda: len(gateway.executions) == 1)
    gateway.finish(next(iter(gateway.executions)))
    api.drop_watches()
    api.watches_allowed.set()
    assert (await asking).json["phase"] == "Succeeded"


async def test_an_execution_that_is_deleted_ends_the_wait(gateway: Gateway, api: FakeApiServer) -> None:
    asking = asyncio.create_task(gateway.post())
    await until(lambda: gateway.dependencies.index.count_active("agents", "team-a") == 1)
    await until(lambda: len(gateway.executions) == 1)
    api.remove(CEX, next(iter(gateway.executions)))
    answer = await asking
    assert answer.status == 410
    assert answer.json["type"] == "urn:mcp-exec:problem:deleted"


async def test_a_client_that_goes_away_cancels_its_execution(gateway: Gateway) -> None:
    name = await _go_away(gateway, "?wait=30")
    await until(lambda: gateway.executions[name]["spec"]["cancelRequested"])
    await until(lambda: gateway.dependencies.index.wait_count == 0)


async def test_a_client_that_said_so_leaves_its_execution_running(gateway: Gateway, api: FakeApiServer) -> None:
    name = await _go_away(gateway, "?wait=30&onDisconnect=continue")
    await until(lambda: gateway.dependencies.index.wait_count == 0)
    assert not gateway.executions[name]["spec"]["cancelRequested"]
    assert not api.asked("PATCH", name)


async def test_a_client_that_goes_away_does_not_cancel_what_another_waits_for(gateway: Gateway) -> None:
    staying = asyncio.create_task(gateway.post(headers={"Idempotency-Key": "k"}))
    await until(lambda: gateway.dependencies.index.wait_count == 1)
    name = await _go_away(gateway, "?wait=30", waits=2, **{"Idempotency-Key": "k"})
    await until(lambda: gateway.dependencies.index.wait_count == 1)
    assert not gateway.executions[name]["spec"]["cancelRequested"]
    gateway.finish(name)
    assert (await staying).status == 200


async def _go_away(gateway: Gateway, query: str, waits: int = 1, **headers: str) -> str:
    asking = asyncio.create_task(gateway.post(query=query, headers=headers))
    await until(lambda: gateway.dependencies.index.wait_count == waits and len(gateway.executions) == 1)
    asking.cancel()
    await asyncio.wait({asking})
    return next(iter(gateway.executions))


async def test_a_get_can_wait_for_the_end(gateway: Gateway) -> None:
    name = (await gateway.post(query="?wait=0")).json["name"]
    asking = asyncio.create_task(gateway.ask("GET", f"/v1/executions/{name}?wait=30"))
    await until(lambda: gateway.dependencies.index.wait_count == 1)
    gateway.finish(name)
    assert (await asking).json["phase"] == "Succeeded"
    assert (await gateway.ask("GET", f"/v1/executions/{name}?wait=30")).json["phase"] == "Succeeded"


async def test_a_get_that_waited_in_vain_shows_how_it_is(gateway: Gateway) -> None:
    name = (await gateway.post(query="?wait=0")).json["name"]
    answer = await gateway.ask("GET", f"/v1/executions/{name}?wait=0.01")
    assert (answer.status, answer.json["phase"]) == (200, "Pending")


async def test_a_delete_asks_for_the_end_and_leaves_what_ended(gateway: Gateway) -> None:
    name = (await gateway.post(query="?wait=0")).json["name"]
    answer = await gateway.ask("DELETE", f"/v1/executions/{name}")
    assert answer.status == 202
    assert answer.json["name"] == name
    assert gateway.executions[name]["spec"]["cancelRequested"]
    gateway.finish(name, phase="Cancelled")
    before = gateway.executions[name]["metadata"]["resourceVersion"]
    answer = await gateway.ask("DELETE", f"/v1/executions/{name}")
    assert (answer.status, answer.json["phase"]) == (200, "Cancelled")
    assert gateway.executions[name]["metadata"]["resourceVersion"] == before


async def test_a_phase_of_a_newer_version_is_shown_and_stops_nothing(gateway: Gateway, api: FakeApiServer) -> None:
    name = (await gateway.post(query="?wait=0")).json["name"]
    gateway.finish(name, phase="Suspended", startedAt=None, finishedAt=None)
    assert (await gateway.ask("GET", f"/v1/executions/{name}?wait=0.01")).json["phase"] == "Suspended"
    await listing(gateway, "phase", "Suspended")
    assert (await gateway.ask("GET", f"/v1/executions/{name}/approvals")).json == {"items": []}
    asking = asyncio.create_task(gateway.ask("GET", f"/v1/executions/{name}?wait=30"))
    await until(lambda: gateway.dependencies.index.wait_count == 1)
    gateway.finish(name)
    assert (await asking).json["phase"] == "Succeeded"
    gateway.finish_all()
    assert (await gateway.post()).status == 200


@pytest.mark.parametrize(
    "name", ["..", "%2e%2e", "a%2fb", "..%2f..%2fsecrets", "A", "a%3fwatch=1", "-a", "a" * 254, "a%00"]
)
async def test_a_name_that_is_none_never_reaches_the_api_server(
    gateway: Gateway, api: FakeApiServer, name: str
) -> None:
    asked = len(api.seen)
    for method, path in [("GET", ""), ("DELETE", ""), ("GET", "/events")]:
        url = yarl.URL(f"{gateway.url}/v1/executions/{name}{path}", encoded=True)
        async with gateway.session.request(method, url, headers={"Authorization": f"Bearer {KEY}"}) as response:
            assert response.status in (404, 405)
    assert [seen for seen in api.seen[asked:] if "watch" not in seen.query] == []


async def test_a_pool_that_allows_less_than_the_default_lowers_it(api: FakeApiServer, gateway: Gateway) -> None:
    api.merge(
        "/apis/mcp-exec.dev/v1beta1/namespaces/agents/sandboxpools", "default", {"spec": {"maxTimeoutSeconds": 7}}
    )
    pools = gateway.dependencies.pools
    await until(lambda: (found := pools.find("agents", "default")) is not None and found.max_timeout_seconds == 7)
    answer = await gateway.post(query="?wait=0")
    assert gateway.executions[answer.json["name"]]["spec"]["timeoutSeconds"] == 7


async def test_names_are_free_of_meetings_and_in_order(gateway: Gateway) -> None:
    answers = await asyncio.gather(*(gateway.post(query="?wait=0") for _ in range(50)))
    assert {answer.status for answer in answers} == {202}
    assert len(gateway.executions) == 50


async def test_a_name_that_is_taken_is_replaced_by_another(gateway: Gateway, api: FakeApiServer) -> None:
    names = iter(["exec-000000000001", "exec-000000000001", "exec-000000000002"])
    object.__setattr__(
        gateway.dependencies.executions.submitter,
        "namer",
        type("Names", (), {"create_name": lambda self: next(names)})(),
    )
    assert (await gateway.post(query="?wait=0")).json["name"] == "exec-000000000001"
    assert (await gateway.post(query="?wait=0")).json["name"] == "exec-000000000002"


async def test_too_many_waits_are_refused(api: FakeApiServer) -> None:
    async with serving(api, max_waits=1) as gateway:
        waiting = asyncio.create_task(gateway.post())
        await until(lambda: gateway.dependencies.index.wait_count == 1)
        refused = await gateway.post()
        assert (refused.status, refused.headers["Retry-After"]) == (429, "1")
        assert len(gateway.executions) == 1
        name = next(iter(gateway.executions))
        assert (await gateway.ask("GET", f"/v1/executions/{name}")).status == 200
        assert (await gateway.post(query="?wait=0")).status == 202
        gateway.finish(name)
        assert (await waiting).status == 200


async def test_stopping_answers_all_that_wait(gateway: Gateway) -> None:
    waiting = [asyncio.create_task(gateway.post()) for _ in range(3)]
    await until(lambda: gateway.dependencies.index.wait_count == 3 and len(gateway.executions) == 3)
    gateway.dependencies.index.shut_down()
    for asking in waiting:
        answer = await asking
        assert answer.status == 202
        assert answer.headers["Location"].endswith(answer.json["name"])


async def test_a_key_bounds_what_is_under_way(gateway: Gateway, api: FakeApiServer) -> None:
    api.put("/api/v1/namespaces/mcp-exec-system/secrets", keys_secret(**{"team-a": key_entry(KEY, maxConcurrent=2)}))
    limits = gateway.dependencies.keys
    await until(lambda: (found := limits.find(KEY)) is not None and found.entry.limits.max_concurrent == 2)
    answers = await asyncio.gather(*(gateway.post(query="?wait=0") for _ in range(6)))
    assert sorted(answer.status for answer in answers) == [202, 202, 429, 429, 429, 429]
    refused = next(answer for answer in answers if answer.status == 429)
    assert refused.headers["Retry-After"] == "1"
    assert len(gateway.executions) == 2
    gateway.finish(next(iter(gateway.executions)))
    await until(lambda: gateway.dependencies.index.count_active("agents", "team-a") == 1)
    assert (await gateway.post(query="?wait=0")).status == 202


async def test_a_connection_serves_many_requests(gateway: Gateway) -> None:
    gateway.finish_all()
    connector = aiohttp.TCPConnector(limit=1)
    async with aiohttp.ClientSession(connector=connector) as session, asyncio.timeout(DEADLINE):
        for _ in range(3):
            async with session.post(
                gateway.url + "/v1/executions", json={"code": "1"}, headers={"Authorization": f"Bearer {KEY}"}
            ) as response:
                assert response.status == 200
                await response.read()


async def test_a_forged_caller_is_shown_as_claimed_and_uses_nobodys_limit(gateway: Gateway, api: FakeApiServer) -> None:
    api.put(SECRETS, keys_secret(**{"team-a": key_entry(KEY, maxConcurrent=1)}))
    await until(lambda: (found := gateway.dependencies.keys.find(KEY)) is not None and found.limits.max_concurrent == 1)
    for number in range(3):
        forged = {"name": f"forged-{number}", "labels": {"mcp-exec.dev/caller": "team-a"}}
        api.put(CEX, {"metadata": forged, "spec": {"code": "1"}})
    seen = gateway.dependencies.index
    await until(lambda: seen.count_active("agents", "claimed:team-a") == 3)
    assert seen.count_active("agents", "team-a") == 0
    assert (await gateway.ask("GET", "/v1/executions/forged-1")).json["caller"] == "claimed:team-a"
    await listing(gateway, "caller", *["claimed:team-a"] * 3)
    own = await gateway.post(query="?wait=0")
    assert (own.status, own.json["caller"]) == (202, "team-a")
    await until(lambda: seen.count_active("agents", "team-a") == 1)
    # another label moves no execution from the count of its caller, and its end ends it
    api.merge(CEX, own.json["name"], {"metadata": {"labels": {"mcp-exec.dev/caller": "team-b"}}})
    assert (await gateway.post(query="?wait=0")).status == 429
    gateway.finish(own.json["name"])
    await until(lambda: seen.count_active("agents", "team-a") == 0)
    assert (await gateway.post(query="?wait=0")).status == 202
