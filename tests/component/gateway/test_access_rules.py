"""Rules of what people and accounts may do, from the ConfigMap that the chart writes."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.component.gateway.conftest import Gateway, pool, serving
from tests.component.gateway.test_auth import allow
from tests.support.api_server import FakeApiServer
from tests.support.mounts import write_version
from tests.support.until import until, until_answered

from mcp_exec_common.process.mounts import MountedFolder

Object = dict[str, Any]
ALICE = {"users": ["k8s/alice"], "namespaces": ["agents"]}


def write_rules(folder: Path, *rules: Object) -> None:
    write_version(folder, {"rules.json": json.dumps(rules).encode()})


@pytest.fixture
async def gateway(api: FakeApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Gateway]:
    monkeypatch.setattr(MountedFolder, "CHECK_SECONDS", 0.01)
    write_rules(tmp_path, ALICE)
    async with serving(api, rules_folder=tmp_path) as made:
        yield made


async def wait_for(gateway: Gateway, path: str, *, key: str, status: int) -> None:
    async def ask() -> bool | None:
        return (await gateway.ask("GET", path, key=key)).status == status or None

    await until_answered(ask, every=0.02)


async def test_a_rule_lets_in_whom_kubernetes_gives_no_right(gateway: Gateway, api: FakeApiServer) -> None:
    alice, bob = allow(api, user="alice"), allow(api, user="bob")
    made = await gateway.post(query="?wait=0", key=alice)
    assert (made.status, made.json["namespace"]) == (202, "agents")
    assert (await gateway.ask("GET", f"/v1/executions/{made.json['name']}", key=alice)).status == 200
    assert (await gateway.post(query="?wait=0&namespace=others", key=alice)).status == 403
    for query in ("", "?namespace=agents"):
        refused = await gateway.ask("GET", f"/v1/executions{query}", key=bob)
        assert refused.status == 403
        assert "k8s/bob" in refused.json["detail"]


async def test_a_caller_with_a_rule_names_only_itself_and_sees_only_its_own(
    gateway: Gateway, api: FakeApiServer
) -> None:
    alice = allow(api, user="alice")
    others = await gateway.post(query="?wait=0")
    assert (await gateway.post({"code": "1", "user": "alice"}, "?wait=0", key=alice)).status == 202
    refused = await gateway.post({"code": "1", "user": "bob"}, "?wait=0", key=alice)
    assert (refused.status, refused.json["errors"][0]["field"]) == (403, "user")
    assert refused.json["detail"] == "user: k8s/alice may name only alice"
    assert (await gateway.ask("GET", f"/v1/executions/{others.json['name']}", key=alice)).status == 404


async def test_a_name_that_would_be_a_pattern_of_others_names_nobody(
    gateway: Gateway, api: FakeApiServer, tmp_path: Path
) -> None:
    star = allow(api, user="a*")
    write_rules(tmp_path, {"users": ["k8s/a*"], "namespaces": ["agents"]})
    await wait_for(gateway, "/v1/executions", key=star, status=200)
    for user in ("alice", "a*"):
        assert (await gateway.post({"code": "1", "user": user}, "?wait=0", key=star)).status == 403


@pytest.mark.parametrize(
    ("limits", "body"),
    [
        ({"pools": ["long"]}, {"code": "1"}),
        ({"tools": ["github.*"]}, {"code": "1", "tools": ["slack.post"]}),
        ({"maxPriority": "Low"}, {"code": "1", "priority": "High"}),
        ({"maxTimeoutSeconds": 5}, {"code": "1", "timeoutSeconds": 6}),
    ],
)
async def test_limits_of_a_rule_hold_and_name_the_caller(
    gateway: Gateway, api: FakeApiServer, tmp_path: Path, limits: Object, body: Object
) -> None:
    erin = allow(api, user="erin")
    write_rules(tmp_path, {"users": ["k8s/erin"], "namespaces": ["agents"], "limits": limits})
    await wait_for(gateway, "/v1/executions", key=erin, status=200)
    refused = await gateway.post(body, "?wait=0", key=erin)
    assert refused.status in (403, 422)
    assert "k8s/erin" in refused.json["detail"]
    assert "API key" not in refused.json["detail"]


async def test_the_rate_of_a_rule_is_that_of_each_caller(gateway: Gateway, api: FakeApiServer, tmp_path: Path) -> None:
    gateway.stop_refills()
    people = [allow(api, user=name) for name in ("gil", "gus")]
    write_rules(tmp_path, {"users": ["k8s/g*"], "namespaces": ["agents"], "limits": {"requestsPerMinute": 2}})
    await wait_for(gateway, "/v1/executions", key=people[0], status=200)
    assert (await gateway.ask("GET", "/v1/executions", key=people[0])).status == 200
    refused = await gateway.ask("GET", "/v1/executions", key=people[0])
    assert (refused.status, refused.json["detail"].startswith("k8s/gil may send 2")) == (429, True)
    assert (await gateway.ask("GET", "/v1/executions", key=people[1])).status == 200


async def test_the_first_rule_that_fits_counts_for_each_namespace(
    gateway: Gateway, api: FakeApiServer, tmp_path: Path
) -> None:
    ann = allow(api, user="ann")
    api.put("/apis/mcp-exec.dev/v1beta1/namespaces/others/sandboxpools", pool("default"))
    await until(lambda: gateway.dependencies.pools.list_names("others") == ["default"])
    write_rules(
        tmp_path,
        {"users": ["k8s/zoe"], "namespaces": ["agents"]},
        {"users": ["k8s/ann"], "namespaces": ["unserved", "others"], "limits": {"pools": ["long"]}},
        {"groups": ["k8s/system:*"], "namespaces": ["agents", "others"], "approver": True},
    )
    await wait_for(gateway, "/v1/executions", key=ann, status=200)
    first = await gateway.post(query="?wait=0", key=ann)
    assert (first.status, "may use only long" in first.json["detail"]) == (403, True)
    assert (await gateway.post(query="?wait=0&namespace=agents", key=ann)).status == 202
    assert (await gateway.ask("GET", "/v1/executions?namespace=unserved", key=ann)).status == 403


async def test_only_a_rule_that_makes_approvers_lets_a_caller_decide(
    gateway: Gateway, api: FakeApiServer, tmp_path: Path
) -> None:
    write_rules(tmp_path, ALICE, {"users": ["k8s/boss"], "namespaces": ["agents"], "approver": True})
    alice, boss = allow(api, user="alice"), allow(api, user="boss")
    await wait_for(gateway, "/v1/executions", key=boss, status=200)
    path, body = "/v1/executions/exec-a/approvals/a1", {"decision": "Approve"}
    refused = await gateway.ask("POST", path, key=alice, json=body)
    assert (refused.status, "approver: true" in refused.json["detail"]) == (403, True)
    assert (await gateway.ask("POST", path, key=boss, json=body)).status == 404


async def test_a_service_account_without_a_rule_keeps_its_rights_in_kubernetes(
    gateway: Gateway, api: FakeApiServer, tmp_path: Path
) -> None:
    bot = allow(api, "create")
    assert (await gateway.post({"code": "1", "user": "anybody"}, "?wait=0", key=bot)).status == 202
    write_rules(tmp_path, {"users": ["k8s/system:serviceaccount:agents:*"], "namespaces": ["agents"]})
    await wait_for(gateway, "/v1/executions", key=bot, status=200)
    assert (await gateway.post({"code": "1", "user": "anybody"}, "?wait=0", key=bot)).status == 403


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b"[" * 100_000,
        b'[{"users": ["k8s/alice"], "namespaces": []}]',
        b'[{"namespaces": ["agents"]}]',
        b'[{"users": ["alice"], "namespaces": ["agents"]}]',
        b'[{"users": ["*"], "namespaces": ["agents"]}]',
        b'[{"users": ["k8s/a*b"], "namespaces": ["agents"]}]',
        b'[{"users": ["k8s/alice"], "namespaces": ["agents"], "approve": true}]',
    ],
)
async def test_rules_that_are_not_valid_change_nothing_and_are_logged(
    gateway: Gateway, api: FakeApiServer, tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes
) -> None:
    alice = allow(api, user="alice")
    write_version(tmp_path, {"rules.json": content})
    await until(lambda: "its last content stays in use: rules.json" in caplog.text)
    assert (await gateway.ask("GET", "/v1/executions", key=alice)).status == 200
    write_rules(tmp_path)
    await wait_for(gateway, "/v1/executions", key=alice, status=403)
