"""Keys that are limited to executions of their own: those of others are as if they did not exist, on every route."""

import asyncio
from collections.abc import AsyncIterator
from copy import deepcopy
from typing import Any

import pytest
from tests.component.gateway.conftest import CEX, KEY, SECRETS, Gateway, key_entry, keys_secret, listing, serving
from tests.component.gateway.test_approvals import approval
from tests.component.gateway.test_artifacts import PNG, add_artifacts
from tests.component.gateway.test_tenants import ABSENT, ROWS, cleaned, fill
from tests.support.api_server import FakeApiServer
from tests.support.broker import FakeBroker
from tests.support.until import until

from mcp_exec_api.constants import LABEL_CALLER

BOB = "mcpx_" + "b" * 43
MARK = "secret-of-alice"
PATH = "/v1/executions/{name}"
ROUTES = [route for route in ROWS if route.partition(" ")[2].startswith(PATH)]
TIME = "2026-11-21T20:00:00.000000Z"


def change_keys(api: FakeApiServer, **limits: Any) -> None:
    """Give bob's key these limits. It is an approver's, so that only the limits stand between it and a decision."""
    api.put(SECRETS, keys_secret(**{"team-a": key_entry(KEY), "bob": key_entry(BOB, **limits) | {"approver": True}}))


async def limit_bob(gateway: Gateway, **limits: Any) -> None:
    change_keys(gateway.api, **limits)

    def is_known() -> bool:
        found = gateway.dependencies.keys.find(BOB)
        return found is not None and found.limits.to_api() == limits

    await until(is_known)


@pytest.fixture
async def gateway(api: FakeApiServer, broker: FakeBroker) -> AsyncIterator[Gateway]:
    """A gateway where bob's key, of one person, may name no user."""
    change_keys(api, users=[])
    async with serving(api, broker_service="mcp-exec-broker") as made:
        yield made


async def run(gateway: Gateway, key: str = KEY, **fields: Any) -> str:
    """Create an execution that runs and waits for an approval, and return its name."""
    name = str((await gateway.post({"code": f"print('{MARK}')", **fields}, "?wait=0", key=key)).json["name"])
    status = {"phase": "Running", "podName": MARK, "approvals": [approval("a1") | {"arguments": MARK}]}
    gateway.api.merge(CEX, name, {"status": status})
    return name


@pytest.fixture
async def alices(gateway: Gateway, broker: FakeBroker) -> str:
    """Name of an execution of team-a for alice, with an artifact."""
    name = await run(gateway, user="alice")
    add_artifacts(gateway, broker, name, ("plot.png", "image/png", PNG), user="alice")
    gateway.api.merge(CEX, name, {"status": {"phase": "Running"}})
    return name


@pytest.mark.parametrize("route", ROUTES)
async def test_a_key_of_one_person_finds_nothing_of_others(gateway: Gateway, alices: str, route: str) -> None:
    before = deepcopy(gateway.executions[alices])
    for row in (row for row in ROWS[route] if row.status == 404):
        answers = []
        for name in (alices, ABSENT):
            body = {"json": fill(row.body, name, "agents")} if row.body else {}
            path = fill(row.path, name, "agents")
            answer = await gateway.ask(
                route.partition(" ")[0], path.replace("/a1", "/a0") if "artifacts" in path else path, key=BOB,
                headers=dict(row.headers), **body,
            )  # fmt: skip
            assert answer.status == 404, f"{path}: {answer.text}"
            answers.append(cleaned(answer.text, name, "agents"))
        assert answers[0] == answers[1], "the answer shows that the execution exists"
    assert gateway.executions[alices] == before


async def test_its_owner_finds_all_of_it(gateway: Gateway, alices: str) -> None:
    """What makes the test above mean something."""
    for path in ("", "/artifacts", "/artifacts/a0", "/approvals"):
        async with gateway.request("GET", f"/v1/executions/{alices}{path}") as answer:
            assert answer.status == 200, path
    assert (await gateway.ask("DELETE", f"/v1/executions/{alices}")).status == 202


async def test_a_wait_does_not_begin_for_an_execution_of_others(gateway: Gateway, alices: str) -> None:
    asking = asyncio.ensure_future(gateway.ask("GET", f"/v1/executions/{alices}?wait=60", key=BOB))
    assert (await asking).status == 404
    assert not gateway.dependencies.index.has_waits(("agents", alices))


async def test_lists_and_counts_are_of_what_is_ones_own(gateway: Gateway, alices: str, broker: FakeBroker) -> None:
    bobs = await run(gateway, BOB)
    await listing(gateway, "name", bobs, alices)
    entries = {"team-a": alices, "bob": bobs}
    broker.records = [
        {"id": caller, "at": TIME, "namespace": "agents", "execution": name, "caller": caller}
        for caller, name in entries.items()
    ]
    broker.pending = [
        {**approval("a1"), "execution": name, "namespace": "agents", "caller": caller}
        for caller, name in entries.items()
    ]
    rows = [{"uid": caller, "namespace": "agents", "caller": caller} for caller in entries]
    broker.rows = {"executions": rows, "calls": rows, "model_usage": rows, "feedback": rows, "exposures": []}
    shown = {}
    for path in ("/v1/executions", "/v1/audit", "/v1/approvals", *(f"/v1/records/{table}" for table in broker.rows)):
        answer = await gateway.ask("GET", path, key=BOB)
        shown[path] = [(item.get("caller")) for item in answer.json["items"]] if answer.status == 200 else answer.status
    assert shown.pop("/v1/records/exposures") == 403
    assert set(map(tuple, shown.values())) == {("bob",)}, shown
    await gateway.ask("GET", "/v1/usage", key=BOB)
    assert broker.usage_queries[-1]["caller"] == "bob"
    assert (await gateway.ask("GET", "/v1/stats", key=BOB)).json["executions"] == {"active": 1, "own": 1}
    assert (await gateway.ask("GET", "/v1/stats")).json["executions"] == {"active": 2, "own": 1}
    assert len((await gateway.ask("GET", "/v1/audit")).json["items"]) == 2
    await gateway.ask("GET", "/v1/usage")
    assert "caller" not in broker.usage_queries[-1]


async def test_a_key_finds_its_own_by_the_same_routes(gateway: Gateway) -> None:
    bobs = await run(gateway, BOB)
    decided = await gateway.ask("POST", f"/v1/executions/{bobs}/approvals/a1", json={"decision": "Deny"}, key=BOB)
    assert (decided.status, decided.json["state"]) == (200, "Denied")
    assert (await gateway.ask("GET", f"/v1/executions/{bobs}/approvals", key=BOB)).status == 200
    assert (await gateway.ask("DELETE", f"/v1/executions/{bobs}", key=BOB)).status == 202
    gateway.finish(bobs, "Cancelled")
    ended = await gateway.ask("GET", f"/v1/executions/{bobs}?wait=5", key=BOB)
    assert (ended.status, ended.json["phase"]) == (200, "Cancelled")
    followed = await gateway.ask(
        "GET", f"/v1/executions/{bobs}/events", key=BOB, headers={"Accept": "application/x-ndjson"}
    )
    assert '"type":"end"' in followed.text.replace(" ", "")


async def test_the_limit_can_be_set_and_lifted(gateway: Gateway, alices: str) -> None:
    statuses = []
    for limits in ({}, {"users": [], "own": False}, {"own": True}, {"users": ["alice"]}, {"users": [], "own": True}):
        await limit_bob(gateway, **limits)
        statuses.append((await gateway.ask("GET", f"/v1/executions/{alices}", key=BOB)).status)
    assert statuses == [200, 200, 404, 404, 404]


async def test_an_execution_for_a_user_that_a_key_may_not_name_any_more_is_gone(gateway: Gateway) -> None:
    await limit_bob(gateway, users=["carl", "dora"])
    for_carl, for_dora = await run(gateway, BOB, user="carl"), await run(gateway, BOB, user="dora")
    for_nobody = await run(gateway, BOB)
    await limit_bob(gateway, users=["dora"])
    statuses = [
        (await gateway.ask("GET", f"/v1/executions/{name}", key=BOB)).status
        for name in (for_carl, for_dora, for_nobody)
    ]
    assert statuses == [404, 200, 200]
    listed = (await gateway.ask("GET", "/v1/executions", key=BOB)).json["items"]
    assert sorted(item["name"] for item in listed) == sorted([for_dora, for_nobody])


async def test_a_caller_that_is_only_claimed_is_not_the_key(gateway: Gateway) -> None:
    claimed = {"metadata": {"name": "forged", "labels": {LABEL_CALLER: "bob"}}, "spec": {"code": MARK}}
    gateway.api.put(CEX, claimed)
    await listing(gateway, "name", "forged")
    assert (await gateway.ask("GET", "/v1/executions/forged", key=BOB)).status == 404
    assert (await gateway.ask("GET", "/v1/executions", key=BOB)).json["items"] == []


async def test_a_gateway_that_starts_again_lists_the_same(api: FakeApiServer, gateway: Gateway, alices: str) -> None:
    """The first list is a table, which has other fields than the objects of a watch."""
    await limit_bob(gateway, users=["carl"])
    for_carl = await run(gateway, BOB, user="carl")
    async with serving(api, broker_service="mcp-exec-broker") as restarted:
        listed = (await restarted.ask("GET", "/v1/executions", key=BOB)).json["items"]
        assert [item["name"] for item in listed] == [for_carl]
        await limit_bob(restarted, users=[])
        assert (await restarted.ask("GET", "/v1/executions", key=BOB)).json["items"] == []
