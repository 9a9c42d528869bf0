"""Decisions on pending tool calls: who may decide, and that each is decided once, also by two at the same time."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.component.gateway.conftest import (
    BOSS,
    CEX,
    KEY,
    OTHER_KEY,
    SECRETS,
    Gateway,
    key_entry,
    keys_secret,
    serving,
)
from tests.component.gateway.test_auth import BOT, allow
from tests.component.gateway.test_refusals import assert_problem
from tests.support.api_server import FakeApiServer, Fault
from tests.support.broker import FakeBroker, running_brokers
from tests.support.until import until

YES = {"decision": "Approve"}


def approval(id: str, state: str = "Pending", expires: str = "2999-01-01T00:00:00.000000Z") -> dict[str, Any]:
    at = "2026-11-21T20:00:00.000000Z"
    return {
        "id": id,
        "tool": "github.merge",
        "arguments": "{}",
        "state": state,
        "requestedAt": at,
        "expiresAt": expires,
    }


async def waiting(gateway: Gateway, *approvals: dict[str, Any], **fields: Any) -> str:
    """Create an execution whose code waits for these approvals, with BOSS as approver, and return its name."""
    entries = {"team-a": key_entry(KEY), "boss": {**key_entry(BOSS), "approver": True}, "b": key_entry(OTHER_KEY)}
    gateway.api.put(SECRETS, keys_secret(**entries))
    await until(lambda: gateway.dependencies.keys.find(BOSS) is not None)
    name = str((await gateway.post({"code": "print(1)", **fields}, query="?wait=0")).json["name"])
    status = {"phase": "Running", "podName": "p", "approvals": list(approvals or [approval("a1")])}
    gateway.api.merge(CEX, name, {"status": status})
    return name


async def decide(gateway: Gateway, name: str, id: str = "a1", body: Any = YES, key: str = BOSS) -> Any:
    return await gateway.ask("POST", f"/v1/executions/{name}/approvals/{id}", json=body, key=key)


def spec_of(gateway: Gateway, name: str) -> Any:
    return gateway.executions[name]["spec"]["approvals"]


async def test_an_approver_decides_and_all_see_it_at_once(gateway: Gateway) -> None:
    name = await waiting(gateway, approval("a1"), approval("a2"))
    answer = await decide(gateway, name, body={"decision": "Approve", "comment": "go on"})
    assert (answer.status, answer.json) == (200, {**approval("a1", "Approved"), "decidedBy": "boss"})
    assert (await decide(gateway, name, "a2", {"decision": "Deny"})).json["state"] == "Denied"
    written = spec_of(gateway, name)
    uid = gateway.executions[name]["metadata"]["uid"]
    assert [gateway.dependencies.attestor.read_approver(each, uid=uid) for each in written] == ["boss", "boss"]
    assert [{key: value for key, value in each.items() if key != "proof"} for each in written] == [
        {"id": "a1", "decision": "Approve", "comment": "go on", "by": "boss"},
        {"id": "a2", "decision": "Deny", "by": "boss"},
    ]
    listed = (await gateway.ask("GET", f"/v1/executions/{name}/approvals")).json["items"]
    assert [(each["id"], each["state"]) for each in listed] == [("a1", "Approved"), ("a2", "Denied")]
    shown = (await gateway.ask("GET", f"/v1/executions/{name}")).json["approvals"]
    assert [each["id"] for each in shown] == ["a1", "a2"]


async def test_who_is_no_approver_may_not_decide_not_even_on_their_own(gateway: Gateway) -> None:
    name = await waiting(gateway)
    detail = assert_problem(await decide(gateway, name, key=KEY), 403).detail
    assert detail.startswith("the API key team-a is not an approver's: in a pod of the gateway, `python3 -m ")
    assert "create_key NAME --namespace agents --approver` makes one" in detail
    assert_problem(await decide(gateway, name, key=OTHER_KEY), 403)
    assert not spec_of(gateway, name)


async def test_a_service_account_needs_the_right_on_the_subresource(gateway: Gateway, api: FakeApiServer) -> None:
    name = await waiting(gateway)
    weak = allow(api, "create", "get", "list", "patch", "update", user="system:serviceaccount:agents:weak")
    problem = assert_problem(await decide(gateway, name, key=weak), 403)
    assert "may not update codeexecutions.mcp-exec.dev/approval in namespace agents" in problem.detail
    bot = allow(api, "update/approval")
    assert (await decide(gateway, name, key=bot)).json["decidedBy"] == BOT


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (approval("a1", "Approved"), "it is Approved"),
        (approval("a1", "Withdrawn"), "it is Withdrawn"),
        (approval("a1", "Expired"), "it is Expired"),
        (approval("a1", expires="2026-01-01T00:00:00.000000Z"), "it expired"),
    ],
)
async def test_what_is_settled_is_409(gateway: Gateway, given: dict[str, Any], why: str) -> None:
    name = await waiting(gateway, given)
    problem = assert_problem(await decide(gateway, name), 409)
    assert (problem.type, problem.execution) == ("urn:mcp-exec:problem:decided", name)
    assert why in problem.detail
    assert not spec_of(gateway, name)


async def test_a_second_decision_is_409_and_so_is_one_after_the_end(gateway: Gateway) -> None:
    name = await waiting(gateway, approval("a1"), approval("a2"))
    assert (await decide(gateway, name)).status == 200
    assert "by boss" in assert_problem(await decide(gateway, name, body={"decision": "Deny"}), 409).detail
    gateway.finish(name)
    assert "ended" in assert_problem(await decide(gateway, name, "a2"), 409).detail
    assert len(spec_of(gateway, name)) == 1


async def test_of_many_that_decide_at_once_one_does(gateway: Gateway) -> None:
    name = await waiting(gateway)
    answers = await asyncio.gather(
        *(decide(gateway, name, body={"decision": word}) for word in ("Approve", "Deny") * 3)
    )
    # the same word by the same approver counts as said once
    assert {answer.status for answer in answers} <= {200, 409}
    assert len(spec_of(gateway, name)) == 1


async def test_decisions_on_different_calls_do_not_lose_each_other(gateway: Gateway) -> None:
    ids = [f"a{number}" for number in range(4)]
    name = await waiting(gateway, *map(approval, ids))
    answers = await asyncio.gather(*(decide(gateway, name, id) for id in ids))
    assert [answer.status for answer in answers] == [200] * 4
    assert sorted(each["id"] for each in spec_of(gateway, name)) == ids


@pytest.mark.parametrize("what", ["lost before", "lost after", "busy after", 409])
async def test_a_write_that_fails_or_whose_answer_is_lost_is_made_once(
    gateway: Gateway, api: FakeApiServer, what: Any
) -> None:
    name = await waiting(gateway)
    api.faults.append(Fault("PATCH", f"/{name}", what))
    answer = await decide(gateway, name)
    assert (answer.status, answer.json["state"]) == (200, "Approved")
    assert len(spec_of(gateway, name)) == 1


async def test_what_is_not_there_is_404(gateway: Gateway) -> None:
    name = await waiting(gateway)
    assert_problem(await decide(gateway, name, "a9"), 404)
    assert_problem(await decide(gateway, "exec-none"), 404)
    assert_problem(await decide(gateway, "NO NAME"), 404)
    assert_problem(await gateway.ask("GET", "/v1/executions/exec-none/approvals"), 404)


async def test_an_approval_of_another_execution_is_404(gateway: Gateway) -> None:
    name = await waiting(gateway, approval("a1"))
    other = await waiting(gateway, approval("a2"))
    assert_problem(await decide(gateway, other, "a1"), 404)
    assert not spec_of(gateway, name)
    assert not spec_of(gateway, other)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "decision"),
        ({"decision": "Maybe"}, "decision"),
        ({"decision": "Approve", "by": "me"}, "by"),
        ({"decision": "Approve", "comment": "x" * 1025}, "comment"),
    ],
)
async def test_a_body_that_decides_nothing_is_refused(gateway: Gateway, body: Any, field: str) -> None:
    name = await waiting(gateway)
    assert_problem(await decide(gateway, name, body=body), 422, field)


@pytest.mark.parametrize(
    ("named", "shown"), [({"by": "boss"}, "claimed:boss"), ({}, "unknown, through the Kubernetes API")]
)
async def test_a_decision_past_the_gateway_is_shown_as_claimed(
    gateway: Gateway, named: dict[str, str], shown: str
) -> None:
    name = await waiting(gateway)
    gateway.api.merge(CEX, name, {"spec": {"approvals": [{"id": "a1", "decision": "Approve", **named}]}})
    listed = (await gateway.ask("GET", f"/v1/executions/{name}/approvals")).json["items"]
    assert [(each["state"], each["decidedBy"]) for each in listed] == [("Approved", shown)]
    again = await decide(gateway, name)
    assert (again.status, shown in again.json["detail"]) == (409, True)


async def test_a_decision_waits_until_the_status_has_the_approval_that_an_event_named(
    gateway: Gateway, api: FakeApiServer
) -> None:
    name = await waiting(gateway, tools=["github.merge"])
    deciding = asyncio.create_task(decide(gateway, name, "a2"))
    await api.until_asked(lambda: any(seen.method == "GET" and seen.path == f"{CEX}/{name}" for seen in api.seen))
    api.merge(CEX, name, {"status": {"approvals": [approval("a1"), approval("a2")]}})
    answer = await deciding
    assert (answer.status, answer.json["state"]) == (200, "Approved")
    assert_problem(await decide(gateway, name, "a9"), 404)


@pytest.fixture
async def brokers(api: FakeApiServer) -> AsyncIterator[list[FakeBroker]]:
    async with running_brokers(api, "127.0.0.1", "127.0.0.2") as made:
        yield made


@pytest.fixture
async def with_brokers(api: FakeApiServer, brokers: list[FakeBroker]) -> AsyncIterator[Gateway]:
    async with serving(api, broker_service="mcp-exec-broker") as made:
        yield made


def pending(id: str, minute: int, namespace: str = "agents") -> dict[str, Any]:
    at = f"2026-11-21T20:{minute:02d}:00.000000Z"
    digest = {"argumentsDigest": "sha256:1", "argumentsBytes": 2, "argumentsComplete": True}
    return {**approval(id), **digest, "requestedAt": at, "execution": "exec-1", "namespace": namespace, "caller": "t"}


async def test_pending_approvals_of_all_replicas_are_listed_newest_first_and_of_one_namespace(
    with_brokers: Gateway, brokers: list[FakeBroker]
) -> None:
    brokers[0].pending = [pending("a4", 4), pending("a1", 1), pending("other", 9, "others")]
    brokers[1].pending = [pending("a3", 3), pending("a2", 2)]
    listed = (await with_brokers.ask("GET", "/v1/approvals?state=pending")).json
    assert ([item["id"] for item in listed["items"]], listed["complete"]) == (["a4", "a3", "a2", "a1"], True)
    assert listed["items"][0] == pending("a4", 4)
    brokers[0].honest = False
    page = (await with_brokers.ask("GET", "/v1/approvals?limit=3")).json["items"]
    assert [item["id"] for item in page] == ["a4", "a3", "a2"]
    assert (await with_brokers.ask("GET", "/v1/approvals?namespace=others")).status == 403


async def test_a_list_of_approvals_says_if_a_replica_did_not_answer(
    with_brokers: Gateway, brokers: list[FakeBroker]
) -> None:
    brokers[0].broken, brokers[1].pending = True, [pending("a1", 1)]
    listed = (await with_brokers.ask("GET", "/v1/approvals")).json
    assert ([item["id"] for item in listed["items"]], listed["complete"]) == (["a1"], False)
    brokers[1].broken = True
    assert_problem(await with_brokers.ask("GET", "/v1/approvals"), 503)


async def test_only_pending_approvals_can_be_listed_over_executions(gateway: Gateway) -> None:
    assert (await gateway.ask("GET", "/v1/approvals")).json == {"items": [], "complete": True}
    assert_problem(await gateway.ask("GET", "/v1/approvals?state=denied"), 422, "state")
