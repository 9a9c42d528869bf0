"""The whole name of a caller, at what it creates: labels have only a part of it, or its digest."""

from pathlib import Path

import pytest
from tests.component.gateway.conftest import CEX, KEY, Object
from tests.component.gateway.test_access_rules import write_rules
from tests.component.gateway.test_auth import BOT, allow
from tests.component.gateway.test_signin import signing_in
from tests.support.api_server import FakeApiServer
from tests.support.broker import running_broker
from tests.support.issuer import Issuer

from mcp_exec_api.constants import ANNOTATION_CALLER, SESSIONS, SKILLS
from mcp_exec_common.kube.client import custom_resource_path

CALLERS = {
    "API key": "team-a",
    "ServiceAccount": BOT,
    "person of the cluster": "k8s/alice@example.com",
    "person of a provider": "oidc/corp/Zoë Alice|" + "0" * 180,
}


def sign_in(kind: str, api: FakeApiServer, issuer: Issuer) -> str:
    """Return the token of a caller, who may do everything in the namespace."""
    verbs = ("create", "get", "list", "patch")
    match kind:
        case "API key":
            return KEY
        case "ServiceAccount":
            return allow(api, *verbs)
        case "person of the cluster":
            return allow(api, *verbs, user="alice@example.com")
        case _:
            return issuer.sign(sub=CALLERS[kind].removeprefix("oidc/corp/"))


@pytest.mark.parametrize("kind", CALLERS)
async def test_what_a_caller_creates_has_its_whole_name_with_its_kind(
    api: FakeApiServer, tmp_path: Path, kind: str
) -> None:
    write_rules(tmp_path, {"users": ["oidc/corp/*"], "namespaces": ["agents"]})
    async with Issuer().running() as issuer, signing_in(api, tmp_path, issuer.configure()) as gateway:
        token, query = sign_in(kind, api, issuer), "?namespace=agents"
        assert (await gateway.post(query=f"{query}&wait=0", key=token)).status == 202
        bodies: dict[str, Object] = {
            "sessions": {"name": "mine"},
            "skills": {"name": "report", "description": "Make a report.", "code": "def run():\n    return 1\n"},
        }
        for route, body in bodies.items():
            answer = await gateway.ask("POST", f"/v1/{route}{query}", json=body, key=token)
            assert answer.status == 201, answer.text
        page = await gateway.dependencies.kube.get_table(CEX, limit=10)
    assert [row.cells["Caller"] for row in page.rows] == [CALLERS[kind]]
    for resource in (SESSIONS, SKILLS):
        (created,) = api.collections[custom_resource_path(resource, namespace="agents")].values()
        assert created["metadata"]["annotations"][ANNOTATION_CALLER] == CALLERS[kind]


async def test_a_person_that_sees_only_its_own_sees_what_it_has_reported(api: FakeApiServer, tmp_path: Path) -> None:
    write_rules(tmp_path, {"users": ["oidc/corp/*"], "namespaces": ["agents"], "limits": {"own": True}})
    usage = {
        "id": "1", "model": "m", "mode": "code", "turns": 1, "inputTokens": 1, "outputTokens": 1, "counted": "provider",
    }  # fmt: skip
    async with (
        Issuer().running() as issuer,
        running_broker(api) as broker,
        signing_in(api, tmp_path, issuer.configure(), broker_service="mcp-exec-broker") as gateway,
    ):
        broker.rows = {}
        alice, bob = issuer.sign(), issuer.sign(sub="bob")
        for kind, body in (("usage", usage), ("feedback", {"id": "1", "rating": 5})):
            answer = await gateway.ask("POST", f"/v1/conversations/c-1/{kind}", json=body, key=alice)
            assert answer.status == 204, answer.text
        for table in ("model_usage", "feedback"):
            seen = [
                len((await gateway.ask("GET", f"/v1/records/{table}", key=key)).json["items"]) for key in (alice, bob)
            ]
            assert seen == [1, 0], table
