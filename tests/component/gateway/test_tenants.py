"""Two tenants at one gateway: every route, by key and by ServiceAccount, shows and changes what is the caller's alone.

B's objects are full of MARK. For each route A asks for B's object and for one that does not exist: the answers must be
the same but for the name, nothing of B's may change, and MARK may be in no answer. A route without a row fails.
"""

import itertools
import json
from collections.abc import AsyncIterator
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.component.gateway.conftest import (
    KEY,
    OTHER_KEY,
    SANDBOX_KEY,
    SECRETS,
    Gateway,
    key_entry,
    keys_secret,
    pool,
    serving,
)
from tests.component.gateway.test_auth import allow
from tests.support.api_server import FakeApiServer
from tests.support.broker import SLICES, FakeBroker, tool
from tests.support.broker_files import FakeWorkspace

from mcp_exec_api.constants import EXECUTIONS, LABEL_CALLER, POOLS, ROLLOUTS, SESSIONS
from mcp_exec_api.files import Owner
from mcp_exec_common.kube.client import custom_resource_path

MARK = "belongs-to-b"
THEIRS, ABSENT = "exec-of-b", "exec-of-0"
B_EXECUTIONS = custom_resource_path(EXECUTIONS, namespace="others")
B_SESSIONS = custom_resource_path(SESSIONS, namespace="others")
B_POOLS = custom_resource_path(POOLS, namespace="others")
B_ROLLOUTS = custom_resource_path(ROLLOUTS, namespace="others")
ACCOUNT = "system:serviceaccount:agents:a"
EVERYTHING = ("create", "get", "list", "watch", "patch", "update", "delete", "update/approval")


@dataclass(frozen=True, kw_only=True)
class Row:
    """How A tries a route: `{name}` is B's object, then one that does not exist."""

    path: str
    """The path with its parameters filled in."""
    body: Any = None
    status: int = 404
    headers: dict[str, str] = field(default_factory=dict)


OUTCOME = {"id": "1", "unit": "u", "success": True}
USAGE = {
    "id": "1", "model": "m", "mode": "code", "turns": 1, "inputTokens": 1, "outputTokens": 1, "counted": "provider",
}  # fmt: skip
SIGNED = "GET /v1/artifacts/{namespace}/{name}/{id}"
"""Route whose signature is the credential."""
ROWS: dict[str, list[Row]] = {
    "POST /v1/executions": [
        Row(path="/v1/executions?namespace={namespace}", body={"code": "1"}, status=403),
        Row(path="/v1/executions?wait=0", body={"code": "1", "poolRef": {"name": "pool-{name}"}}, status=422),
    ],
    "GET /v1/executions": [
        Row(path="/v1/executions?namespace={namespace}", status=403),
        Row(path="/v1/executions", status=200),
    ],
    "GET /v1/executions/{name}": [
        Row(path="/v1/executions/{name}"),
        Row(path="/v1/executions/{name}?wait=1"),
        Row(path="/v1/executions/{name}?namespace={namespace}", status=403),
    ],
    "DELETE /v1/executions/{name}": [
        Row(path="/v1/executions/{name}"),
        Row(path="/v1/executions/{name}?purge=true"),
        Row(path="/v1/executions/{name}?namespace={namespace}", status=403),
        Row(path="/v1/executions/{name}?purge=true&namespace={namespace}", status=403),
    ],
    "GET /v1/executions/{name}/events": [
        Row(path="/v1/executions/{name}/events"),
        Row(path="/v1/executions/{name}/events", headers={"Last-Event-ID": "1.0.0.1"}),
        Row(path="/v1/executions/{name}/events?namespace={namespace}", status=403),
    ],
    "GET /v1/executions/{name}/approvals": [
        Row(path="/v1/executions/{name}/approvals"),
        Row(path="/v1/executions/{name}/approvals?namespace={namespace}", status=403),
    ],
    "POST /v1/executions/{name}/approvals/{id}": [
        Row(path="/v1/executions/{name}/approvals/a1", body={"decision": "Approve"}),
        Row(path="/v1/executions/{name}/approvals/a1?namespace={namespace}", body={"decision": "Deny"}, status=403),
    ],
    "GET /api/v1/mcp/tools/search": [
        Row(path="/api/v1/mcp/tools/search?query=tool-of-b&detail_level=full", status=200),
        Row(path="/api/v1/mcp/tools/search?namespace={namespace}", status=403),
    ],
    "GET /api/v1/mcp/servers/{name}/tools": [
        Row(path="/api/v1/mcp/servers/server-{name}/tools"),
        Row(path="/api/v1/mcp/servers/server-{name}/tools?namespace={namespace}", status=403),
    ],
    "GET /v1/audit": [
        Row(path="/v1/audit?execution={name}", status=200),
        Row(path="/v1/audit?namespace={namespace}", status=403),
    ],
    "GET /v1/approvals": [
        Row(path="/v1/approvals", status=200),
        Row(path="/v1/approvals?namespace={namespace}", status=403),
    ],
    "GET /v1/stats": [
        Row(path="/v1/stats", status=200),
        Row(path="/v1/stats?namespace={namespace}", status=403),
    ],
    "POST /v1/sessions": [
        Row(path="/v1/sessions?namespace={namespace}", body={"name": "s"}, status=403),
        Row(path="/v1/sessions", body={"name": "s", "poolRef": {"name": "pool-{name}"}}, status=422),
    ],
    "GET /v1/sessions": [
        Row(path="/v1/sessions", status=200),
        Row(path="/v1/sessions?namespace={namespace}", status=403),
    ],
    "GET /v1/sessions/{name}": [
        Row(path="/v1/sessions/{name}"),
        Row(path="/v1/sessions/{name}?namespace={namespace}", status=403),
    ],
    "DELETE /v1/sessions/{name}": [
        Row(path="/v1/sessions/{name}"),
        Row(path="/v1/sessions/{name}?namespace={namespace}", status=403),
    ],
    "POST /v1/sessions/{name}/reset": [
        Row(path="/v1/sessions/{name}/reset"),
        Row(path="/v1/sessions/{name}/reset?namespace={namespace}", status=403),
    ],
    "GET /v1/workspaces": [
        Row(path="/v1/workspaces", status=200),
        Row(path="/v1/workspaces?namespace={namespace}", status=403),
    ],
    "PUT /v1/workspaces/{name}": [
        Row(path="/v1/workspaces/{name}?namespace={namespace}", body={}, status=403),
        Row(path="/v1/workspaces/{name}", body={"description": "a's"}, status=200),
    ],
    **{
        f"{method} /v1/workspaces/{{name}}{template}": [
            Row(path=f"/v1/workspaces/{{name}}{path}", body=body),
            Row(path=f"/v1/workspaces/{{name}}{path}?namespace={{namespace}}", body=body, status=403),
        ]
        for method, template, path, body in (
            ("GET", "", "", None),
            ("DELETE", "", "", None),
            ("GET", "/versions", "/versions", None),
            ("POST", "/restore", "/restore", {"version": 1}),
            ("GET", "/files", "/files", None),
            ("GET", "/files/{path}", "/files/secret", None),
            ("DELETE", "/files/{path}", "/files/secret", None),
            ("GET", "/archive", "/archive", None),
        )
    },
    "PUT /v1/workspaces/{name}/files/{path}": [
        Row(path="/v1/workspaces/{name}/files/secret?namespace={namespace}", body={}, status=403),
        Row(path="/v1/workspaces/{name}/files/secret", body={}, status=200),
    ],
    "POST /v1/workspaces/{name}/changes": [
        Row(path="/v1/workspaces/{name}/changes?namespace={namespace}", body={}, status=403),
    ],
    "PUT /v1/workspaces/{name}/archive": [
        Row(path="/v1/workspaces/{name}/archive?namespace={namespace}", body={}, status=403),
    ],
    "GET /v1/executions/{name}/artifacts": [
        Row(path="/v1/executions/{name}/artifacts"),
        Row(path="/v1/executions/{name}/artifacts?namespace={namespace}", status=403),
    ],
    "GET /v1/executions/{name}/artifacts/{id}": [
        Row(path="/v1/executions/{name}/artifacts/a1"),
        Row(path="/v1/executions/{name}/artifacts/a1?namespace={namespace}", status=403),
    ],
    "POST /v1/skills": [
        Row(path="/v1/skills?namespace={namespace}", body={"name": "s", "code": "def run(): pass"}, status=403)
    ],
    "GET /v1/skills": [
        Row(path="/v1/skills", status=200),
        Row(path="/v1/skills?namespace={namespace}", status=403),
    ],
    "GET /v1/skills/{name}/versions": [
        Row(path="/v1/skills/skill-of-{name}/versions?namespace={namespace}", status=403),
        Row(path="/v1/skills/skill-of-{name}/versions"),
    ],
    **{
        f"{method} /v1/skills/{{name}}/versions/{{version}}{path}": [
            Row(path=f"/v1/skills/skill-of-{{name}}/versions/1{path}?namespace={{namespace}}", body=body, status=403),
            *([] if body else [Row(path=f"/v1/skills/skill-of-{{name}}/versions/1{path}")]),
        ]
        for method, path, body in (
            ("GET", "", None),
            ("DELETE", "", None),
            ("GET", "/archive", None),
            ("POST", "/approve", {"digest": "sha256:0"}),
            ("POST", "/deprecate", {"digest": "sha256:0"}),
        )
    },
    "GET /v1/rollouts": [
        Row(path="/v1/rollouts", status=200),
        Row(path="/v1/rollouts?namespace={namespace}", status=403),
    ],
    "GET /v1/rollouts/{name}": [
        Row(path="/v1/rollouts/{name}"),
        Row(path="/v1/rollouts/{name}?namespace={namespace}", status=403),
    ],
    "POST /v1/rollouts/{name}/assignments": [
        Row(path="/v1/rollouts/{name}/assignments", body={"unit": "u"}),
        Row(path="/v1/rollouts/{name}/assignments?namespace={namespace}", body={"unit": "u"}, status=403),
    ],
    **{
        f"POST /v1/rollouts/{{name}}/{action}": [
            Row(path=f"/v1/rollouts/{{name}}/{action}?namespace={{namespace}}", body=body, status=403),
        ]
        for action, body in (("promote", {"to": "all"}), ("pause", None), ("resume", None), ("abort", None))
    },
    "POST /v1/rollouts/{name}/outcomes": [
        Row(path="/v1/rollouts/{name}/outcomes", body=OUTCOME),
        Row(path="/v1/rollouts/{name}/outcomes?namespace={namespace}", body=OUTCOME, status=403),
    ],
    "GET /v1/rollouts/{name}/report": [
        Row(path="/v1/rollouts/{name}/report"),
        Row(path="/v1/rollouts/{name}/report?namespace={namespace}", status=403),
    ],
    "GET /v1/records/{table}": [
        Row(path="/v1/records/executions", status=200),
        Row(path="/v1/records/executions?namespace={namespace}", status=403),
    ],
    "GET /v1/key-uses": [
        Row(path="/v1/key-uses", status=200),
        Row(path="/v1/key-uses?namespace={namespace}", status=403),
    ],
    "GET /v1/usage": [
        Row(path="/v1/usage?since=2026-01-01T00:00:00Z&until=2026-01-02T00:00:00Z", status=200),
        Row(path="/v1/usage?namespace={namespace}", status=403),
    ],
    "POST /v1/conversations/{conversation}/usage": [
        Row(path="/v1/conversations/c-1/usage", body=USAGE | {"rollout": "{name}", "unit": "u"}),
        Row(path="/v1/conversations/c-1/usage?namespace={namespace}", body=USAGE, status=403),
    ],
    "POST /v1/conversations/{conversation}/feedback": [
        Row(path="/v1/conversations/c-1/feedback", body={"id": "1", "rating": 1, "rollout": "{name}", "unit": "u"}),
        Row(path="/v1/conversations/c-1/feedback?namespace={namespace}", body={"id": "1", "rating": 1}, status=403),
    ],
    SIGNED: [Row(path="/v1/artifacts/{namespace}/{name}/a1?uid=u&expires=9999999999&signature=0", status=403)],
    "GET /v1/version": [
        Row(path="/v1/version", status=200),
        Row(path="/v1/version?namespace={namespace}", status=403),
    ],
    "GET /healthz": [Row(path="/healthz", status=200)],
    "GET /readyz": [Row(path="/readyz", status=200)],
}
"""By method and path of the OpenAPI document: how A tries to reach what is B's."""

PUBLIC = ("GET /healthz", "GET /readyz")
"""Routes without authentication. Their answers contain no names."""


def audit_record() -> dict[str, Any]:
    return {"id": "1", "at": "2026-11-21T20:00:00.000000Z", "namespace": "others", "execution": THEIRS, "tool": MARK}


def execution_of_b() -> dict[str, Any]:
    approval = {"id": "a1", "tool": MARK, "arguments": MARK, "state": "Pending"}
    times = {"requestedAt": "2026-11-21T20:00:00.000000Z", "expiresAt": "2999-01-01T00:00:00.000000Z"}
    return {
        "metadata": {"name": THEIRS, "labels": {LABEL_CALLER: MARK}, "annotations": {"note": MARK}},
        "spec": {"code": f"print('{MARK}')", "context": {"secret": MARK}, "poolRef": {"name": f"pool-{THEIRS}"}},
        "status": {"phase": "Running", "podName": MARK, "message": MARK, "approvals": [approval | times]},
    }


def rollout_of_b() -> dict[str, Any]:
    arms = [{"name": "direct", "mode": "direct"}, {"name": MARK, "mode": "code"}]
    stages = [{"name": "all", "percent": 100, "arm": MARK, "users": ["u"], "manual": True}]
    spec = {"arms": arms, "control": "direct", "stages": stages}
    return {"metadata": {"name": THEIRS}, "spec": spec, "status": {"phase": "Progressing", "stage": "all"}}


@pytest.fixture
async def gateway(api: FakeApiServer) -> AsyncIterator[Gateway]:
    """A gateway for both tenants; B has one of everything."""
    entries = {"team-a": {**key_entry(KEY), "approver": True}, "team-b": key_entry(OTHER_KEY, "others")}
    api.put(SECRETS, keys_secret(**entries))
    api.put(B_EXECUTIONS, execution_of_b())
    api.put(B_POOLS, pool(f"pool-{THEIRS}"))
    owner = Owner(namespace="others", caller="team-b")
    status = {"ownerDigest": owner.digest, "caller": "team-b", "phase": "Ready", "podName": MARK}
    session = {"metadata": {"name": owner.qualify(THEIRS)}, "spec": {"name": THEIRS, "description": MARK}}
    api.put(B_SESSIONS, {**session, "status": status})
    api.put(B_ROLLOUTS, rollout_of_b())
    async with FakeBroker(key=SANDBOX_KEY).running() as broker:
        tools = [tool("tool-of-b", MARK)]
        broker.catalogs["others"] = {"hash": "b", "servers": [{"server": f"server-{THEIRS}", "tools": tools}]}
        broker.records = [audit_record()]
        broker.rows = {"executions": [{"uid": MARK, "namespace": "others"}]}
        broker.files.workspaces[owner.digest, THEIRS] = FakeWorkspace(versions=[{"secret": MARK.encode()}])
        api.put(SLICES, broker.slice())
        async with serving(api, broker_service="mcp-exec-broker") as made:
            yield made


def fill(value: Any, name: str, namespace: str) -> Any:
    return json.loads(json.dumps(value).replace("{name}", name).replace("{namespace}", namespace))


def cleaned(text: str, name: str, namespace: str) -> str:
    """Return an answer without what must differ: the names that were asked for, and the new execution's."""
    return text.replace(name, "NAME").replace(namespace, "NAMESPACE")


def routes(gateway: Gateway, document: dict[str, Any]) -> set[str]:
    methods = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
    return {f"{method.upper()} {path}" for path, of in document["paths"].items() for method in of if method in methods}


async def test_every_route_has_a_row(gateway: Gateway) -> None:
    document = (await gateway.ask("GET", "/openapi.json", key=None)).json
    assert routes(gateway, document) == set(ROWS), "add a row for a new route: what may another tenant do with it?"


@pytest.mark.parametrize("route", list(ROWS))
async def test_what_is_of_another_tenant_is_as_if_it_were_not(gateway: Gateway, route: str) -> None:
    account = allow(gateway.api, *EVERYTHING, user=ACCOUNT)
    before = deepcopy(gateway.api.collections[B_EXECUTIONS]), deepcopy(gateway.api.collections[B_POOLS])
    method = route.partition(" ")[0]
    for row, credential in itertools.product(ROWS[route], (KEY, account)):
        answers = []
        for name, namespace in ((THEIRS, "others"), (ABSENT, "nobody")):
            body = {"json": fill(row.body, name, namespace)} if row.body else {}
            path = fill(row.path, name, namespace)
            answer = await gateway.ask(method, path, key=credential, headers=dict(row.headers), **body)
            assert answer.status == row.status, f"{path}: {answer.text}"
            assert MARK not in answer.text + str(answer.headers)
            answers.append(cleaned(answer.text, name, namespace))
        if route not in PUBLIC:
            assert answers[0] == answers[1], "the answer shows whether B has such an object"
    assert (gateway.api.collections[B_EXECUTIONS], gateway.api.collections[B_POOLS]) == before


async def test_every_route_but_the_public_ones_needs_a_credential(gateway: Gateway) -> None:
    for route in set(ROWS) - {*PUBLIC, SIGNED}:
        row = ROWS[route][0]
        body = {"json": fill(row.body, THEIRS, "others")} if row.body else {}
        answer = await gateway.ask(route.partition(" ")[0], fill(row.path, THEIRS, "others"), key=None, **body)
        assert answer.status == 401, route
        assert THEIRS not in answer.text


async def test_public_routes_name_no_tenant(gateway: Gateway) -> None:
    await gateway.ask("GET", f"/v1/executions/{THEIRS}", key=OTHER_KEY)
    for route in PUBLIC:
        text = (await gateway.ask("GET", route.partition(" ")[2], key=None)).text
        assert not [word for word in (MARK, THEIRS, "others", "team-b", "pool-") if word in text], route


async def test_the_owner_sees_all_of_it(gateway: Gateway) -> None:
    """What makes the rows mean something."""
    for path in (f"/v1/executions/{THEIRS}", f"/v1/executions/{THEIRS}/approvals", "/v1/executions"):
        answer = await gateway.ask("GET", path, key=OTHER_KEY)
        assert (answer.status, THEIRS in answer.text or MARK in answer.text) == (200, True)
    files = (f"/v1/sessions/{THEIRS}", f"/v1/workspaces/{THEIRS}/files/secret")
    for path in (
        "/v1/audit",
        "/v1/records/executions",
        "/api/v1/mcp/tools/search?detail_level=full",
        "/v1/sessions",
        "/v1/rollouts",
        *files,
    ):
        assert MARK in (await gateway.ask("GET", path, key=OTHER_KEY)).text
    assert (await gateway.ask("GET", f"/api/v1/mcp/servers/server-{THEIRS}/tools", key=OTHER_KEY)).status == 200


async def test_an_idempotency_key_of_another_tenant_means_nothing(gateway: Gateway) -> None:
    headers = {"Idempotency-Key": "the-same"}
    first = await gateway.post(query="?wait=0", key=KEY, headers=headers)
    body = {"code": "2", "poolRef": {"name": f"pool-{THEIRS}"}}
    second = await gateway.post(body, query="?wait=0", key=OTHER_KEY, headers=headers)
    assert (first.status, second.status) == (202, 202)
    assert first.json["name"] != second.json["name"]


async def test_a_tenants_executions_do_not_count_against_another(gateway: Gateway, api: FakeApiServer) -> None:
    for number in range(5):
        api.put(
            B_EXECUTIONS, execution_of_b() | {"metadata": {"name": f"b-{number}", "labels": {LABEL_CALLER: "team-a"}}}
        )
    listed = await gateway.ask("GET", "/v1/executions")
    assert listed.json["items"] == []
    assert gateway.dependencies.index.count_active("agents", "team-a") == 0
