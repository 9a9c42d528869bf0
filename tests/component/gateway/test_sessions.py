"""Sessions over REST: a caller's own alone, with limits, by proof of the caller; quotas of sessions."""

import asyncio
from typing import Any

from tests.component.gateway.conftest import (
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
from tests.support.until import until

from mcp_exec_api.constants import LABEL_CALLER, SESSIONS
from mcp_exec_api.files import Owner
from mcp_exec_api.sandbox_session import SandboxSessionSpec
from mcp_exec_api.wire.sessions import Session, SessionList
from mcp_exec_common.kube.client import custom_resource_path
from mcp_exec_gateway.features.sessions.service import SessionService

SBS = custom_resource_path(SESSIONS, namespace="agents")
OWNER = Owner(namespace="agents", caller="team-a")


async def create(gateway: Gateway, name: str = "analysis", *, key: str = KEY, **fields: Any) -> Any:
    answer = await gateway.ask("POST", "/v1/sessions", json={"name": name, **fields}, key=key)
    if answer.status == 201:
        namespace = answer.json["namespace"]
        caller, user = answer.json["caller"], answer.json.get("user", "")
        path = (namespace, Owner(namespace=namespace, caller=caller, user=user).qualify(name))
        await until(lambda: gateway.dependencies.get(SessionService).cache.find(path) is not None)
    return answer


async def two_callers(gateway: Gateway, **limits: Any) -> None:
    """Let both keys work in the namespace agents."""
    entries = {"team-a": key_entry(KEY, **limits), "team-b": key_entry(OTHER_KEY)}
    gateway.api.put(SECRETS, keys_secret(**entries))
    await until(lambda: (found := gateway.dependencies.keys.find(OTHER_KEY)) and found.entry.namespace == "agents")


async def test_a_session_is_created_with_limits_and_the_caller_s_proof(gateway: Gateway, api: FakeApiServer) -> None:
    answer = await create(gateway, idleTimeoutSeconds=60, maxQueued=2, description="Sales", poolRef={"name": "long"})
    assert answer.status == 201
    Session.model_validate_json(answer.text)
    view = answer.json
    assert (view["name"], view["pool"], view["caller"], view["phase"]) == ("analysis", "long", "team-a", "Pending")
    assert (view["idleTimeoutSeconds"], view["maxAgeSeconds"], view["maxQueued"]) == (60, 8 * 3600, 2)
    stored = api.collections[SBS][OWNER.qualify("analysis")]
    SandboxSessionSpec.model_validate(stored["spec"])
    assert stored["metadata"]["labels"][LABEL_CALLER] == "team-a"
    assert gateway.dependencies.attestor.read_caller(stored) == "team-a"
    assert_problem(await create(gateway), 409, "name")


async def test_a_caller_sees_its_own_sessions_alone(gateway: Gateway) -> None:
    await two_callers(gateway)
    await create(gateway, "mine")
    await create(gateway, "for-ann", user="ann")
    await create(gateway, "mine", key=OTHER_KEY)
    listed = (await gateway.ask("GET", "/v1/sessions")).json
    SessionList.model_validate(listed)
    assert {(each["name"], each["caller"]) for each in listed["items"]} == {("for-ann", "team-a"), ("mine", "team-a")}
    assert [each["user"] for each in (await gateway.ask("GET", "/v1/sessions?user=ann")).json["items"]] == ["ann"]
    assert_problem(await gateway.ask("GET", "/v1/sessions/for-ann"), 404)
    assert (await gateway.ask("GET", "/v1/sessions/for-ann?user=ann")).status == 200
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/reset")):
        assert_problem(await gateway.ask(method, f"/v1/sessions/for-ann{path}", key=OTHER_KEY), 404)


async def test_a_session_whose_caller_is_only_claimed_belongs_to_nobody_who_claims_it(
    gateway: Gateway, api: FakeApiServer
) -> None:
    forged = {"metadata": {"name": OWNER.qualify("trap"), "labels": {LABEL_CALLER: "team-a"}}, "spec": {"name": "trap"}}
    api.put(SBS, forged)
    api.put(SBS, {"metadata": {"name": "plain"}, "spec": {}})
    cache = gateway.dependencies.get(SessionService).cache
    await until(lambda: cache.find(("agents", "plain")) is not None)
    assert (await gateway.ask("GET", "/v1/sessions")).json == {"items": []}
    assert_problem(await gateway.ask("GET", "/v1/sessions/trap"), 404)
    assert_problem(await create(gateway, "trap"), 409, "name")


async def test_the_operator_s_status_names_the_owner_and_is_shown(gateway: Gateway, api: FakeApiServer) -> None:
    status = {
        "phase": "Busy",
        "caller": "team-a",
        "ownerDigest": OWNER.digest,
        "executions": 3,
        "memoryBytes": 4096,
        "lostReportedTo": "x",
    }
    api.put(SBS, {"metadata": {"name": OWNER.qualify("auto")}, "spec": {"name": "auto"}, "status": status})
    view = (await gateway.ask("GET", "/v1/sessions/auto")).json
    Session.model_validate_json((await gateway.ask("GET", "/v1/sessions/auto")).text)
    assert (view["phase"], view["executions"], view["memoryBytes"]) == ("Busy", 3, 4096)
    assert not {"ownerDigest", "lostReportedTo"} & view.keys()


async def test_a_reset_raises_the_number_also_beside_another_and_a_delete_ends_it(
    gateway: Gateway, api: FakeApiServer
) -> None:
    await create(gateway)
    api.faults.append(Fault("PATCH", OWNER.qualify("analysis"), 409))
    answer = await gateway.ask("POST", "/v1/sessions/analysis/reset")
    assert (answer.status, answer.json["resets"]) == (202, 1)
    assert (await gateway.ask("POST", "/v1/sessions/analysis/reset")).json["resets"] == 2
    assert (await gateway.ask("DELETE", "/v1/sessions/analysis")).status == 204
    assert_problem(await gateway.ask("DELETE", "/v1/sessions/analysis"), 404)


async def test_what_a_session_cannot_be_is_refused_by_its_field(gateway: Gateway) -> None:
    for body, field in (
        ({"name": "Not-A-Label"}, "name"),
        ({"name": "x" * 51}, "name"),
        ({}, "name"),
        ({"name": "a", "resets": 3}, "resets"),
        ({"name": "a", "poolRef": {"name": "gone"}}, "poolRef.name"),
        ({"name": "a", "idleTimeoutSeconds": 0}, "idleTimeoutSeconds"),
        ({"name": "a", "owner": "b"}, "owner"),
    ):
        assert_problem(await gateway.ask("POST", "/v1/sessions", json=body), 422, field)


async def test_paths_that_are_no_names_reach_no_object(gateway: Gateway, api: FakeApiServer) -> None:
    asked = len(api.seen)
    for name in ("..%2f..%2fsecrets", "A", "a%00", "x" * 60, "-a"):
        assert_problem(await gateway.ask("GET", f"/v1/sessions/{name}"), 404)
    assert [seen.path for seen in api.seen[asked:] if "watch" not in seen.query] == []


async def test_a_caller_has_so_many_sessions_as_its_limit_whoever_creates_them(gateway: Gateway) -> None:
    await two_callers(gateway, maxSessions=2, users=["ann"])
    await create(gateway, "one")
    body = {"code": "1", "session": "two", "user": "ann"}
    assert (await gateway.post(body, "?wait=0")).status == 202
    assert (await gateway.post(body, "?wait=0")).status == 202, "a session that is expected counts once"
    problem = assert_problem(await gateway.post({"code": "1", "session": "three"}, "?wait=0"), 429)
    assert "team-a has 2 sessions" in problem.detail
    assert (await gateway.ask("GET", "/v1/stats")).json["sessions"] == {"own": 2, "limit": 2}
    assert_problem(await create(gateway, "three"), 429)
    assert_problem(await create(gateway, "four", user="bob"), 403, "user")
    assert (await create(gateway, "three", key=OTHER_KEY)).status == 201
    assert (await gateway.post({"code": "1", "session": "one"}, "?wait=0")).status == 202


async def test_a_keys_limit_of_sessions_holds_for_requests_at_the_same_time(
    gateway: Gateway, api: FakeApiServer
) -> None:
    await two_callers(gateway, maxSessions=2)
    requests = [gateway.ask("POST", "/v1/sessions", json={"name": f"s-{number}"}) for number in range(16)]
    requests += [gateway.post({"code": "1", "session": f"x-{number}"}, "?wait=0") for number in range(16)]
    statuses = [answer.status for answer in await asyncio.gather(*requests)]
    assert sum(status in (201, 202) for status in statuses) == 2
    assert set(statuses) <= {201, 202, 429}


async def test_an_ended_session_does_not_count_until_it_is_used_again(gateway: Gateway, api: FakeApiServer) -> None:
    await two_callers(gateway, maxSessions=1)
    await create(gateway, "one")
    sessions = gateway.dependencies.get(SessionService)
    api.merge(
        SBS, OWNER.qualify("one"), {"status": {"phase": "Ended", "ownerDigest": OWNER.digest, "caller": "team-a"}}
    )
    await until(lambda: sessions.cache.count("agents", "team-a") == 0)
    assert (await gateway.post({"code": "1", "session": "two"}, "?wait=0")).status == 202
    assert_problem(await gateway.post({"code": "1", "session": "one"}, "?wait=0"), 429)


async def test_a_service_account_has_the_default_limit_and_needs_the_rights_of_executions(api: FakeApiServer) -> None:
    async with serving(api, max_sessions_per_caller=1) as gateway:
        reader = allow(api, "get", "list", user="system:serviceaccount:agents:reader")
        assert_problem(await create(gateway, key=reader), 403)
        bot = allow(api, "create", "get", "list")
        answer = await create(gateway, key=bot)
        assert (answer.status, answer.json["caller"]) == (201, BOT.replace(":", "."))
        assert_problem(await create(gateway, "second", key=bot), 429)
        assert (await gateway.ask("GET", "/v1/sessions/analysis", key=bot)).status == 200


async def test_an_execution_shows_its_session(gateway: Gateway) -> None:
    answer = await gateway.post({"code": "1", "session": "analysis"}, "?wait=0")
    assert answer.json["session"] == "analysis"
    (stored,) = gateway.executions.values()
    assert stored["spec"]["session"] == "analysis"
