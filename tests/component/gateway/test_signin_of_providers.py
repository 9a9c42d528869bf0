"""Bearer tokens at `/mcp` with the claims that Entra ID and Keycloak give them, signed by a loopback provider."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.component.gateway.conftest import Answer, Gateway
from tests.component.gateway.mcp_client import connecting
from tests.component.gateway.test_access_rules import write_rules
from tests.component.gateway.test_signin import signing_in
from tests.support.api_server import FakeApiServer
from tests.support.issuer import Issuer

API, OTHER, TENANT = "6f1c1f0e-2f5e-4d2f-a7a5-0c4b7a8b6a11", "f0d3a1c9-8d0c-4a52-9b0a-1d9a2f6a7d10", "3aa4a235-b6e2"
PERSON, GROUP = "00000000-1111-2222-3333-444444444444", "8d1f6a3c-57f0-4c0b-9a5d-52b5a2f7c0de"
ENTRA: dict[str, Any] = {
    "aud": API,
    "aio": "AXQAi/8XAAAA",
    "azp": OTHER,
    "azpacr": "0",
    "groups": [GROUP],
    "name": "Alice",
    "oid": PERSON,
    "preferred_username": "alice@example.com",
    "rh": "1.AXkA",
    "roles": ["CodeRunner"],
    "scp": "run tools",
    "sub": "pairwise-of-the-application",
    "tid": TENANT,
    "uti": "vBv7f0wB",
    "ver": "2.0",
}
"""Access token of version 2.0 for a person, with an application role and the claim of groups."""
KEYCLOAK: dict[str, Any] = {
    "aud": ["mcp-exec", "account"],
    "acr": "1",
    "allowed-origins": ["http://127.0.0.1"],
    "azp": "claude-code",
    "email": "alice@example.com",
    "email_verified": True,
    "groups": ["/engineering/developers", "/everyone"],
    "jti": "onrtac:7d2a",
    "preferred_username": "alice",
    "realm_access": {"roles": ["offline_access", "developer"]},
    "resource_access": {"account": {"roles": ["view-profile"]}},
    "scope": "openid email profile run",
    "sid": "f3b1",
    "sub": PERSON,
    "typ": "Bearer",
}
"""Access token of a realm with a mapper of group membership (full paths) and one of the audience."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A token, the values that its provider needs, and whom a rule lets in."""

    claims: dict[str, Any]
    values: dict[str, Any]
    rule: dict[str, Any]
    caller: str
    header: dict[str, Any] = field(default_factory=lambda: {"typ": "JWT"})


ENTRA_VALUES = {"audience": API, "userClaim": "oid"}
KEYCLOAK_VALUES = {"audience": "mcp-exec"}
ACCEPTED = {
    "Entra ID, by the object id": Case(
        claims=ENTRA, values=ENTRA_VALUES, rule={"users": [f"oidc/corp/{PERSON}"]}, caller=PERSON
    ),
    "Entra ID, by a group": Case(
        claims=ENTRA, values=ENTRA_VALUES, rule={"groups": [f"oidc/corp/{GROUP}"]}, caller=PERSON
    ),
    "Entra ID, by an application role": Case(
        claims=ENTRA,
        values=ENTRA_VALUES | {"groupsClaim": "roles"},
        rule={"groups": ["oidc/corp/CodeRunner"]},
        caller=PERSON,
    ),
    "Entra ID, version 1.0": Case(
        claims={**ENTRA, "aud": f"api://{API}", "appid": OTHER, "ver": "1.0", "unique_name": "alice@example.com"},
        values=ENTRA_VALUES | {"audience": f"api://{API}"},
        rule={"users": ["oidc/corp/*"]},
        caller=PERSON,
        header={"typ": "JWT", "x5t": "one"},
    ),
    "Entra ID, an application": Case(
        claims={name: value for name, value in ENTRA.items() if name not in ("scp", "name", "groups")}
        | {"oid": OTHER, "sub": OTHER, "idtyp": "app"},
        values=ENTRA_VALUES | {"groupsClaim": "roles"},
        rule={"groups": ["oidc/corp/CodeRunner"]},
        caller=OTHER,
    ),
    "Keycloak, by a group": Case(
        claims=KEYCLOAK,
        values=KEYCLOAK_VALUES,
        rule={"groups": ["oidc/corp//engineering/*"]},
        caller=PERSON,
    ),
    "Keycloak, by the user name": Case(
        claims=KEYCLOAK,
        values=KEYCLOAK_VALUES | {"userClaim": "preferred_username"},
        rule={"users": ["oidc/corp/alice"]},
        caller="alice",
    ),
    "Keycloak, by a role that a mapper copies": Case(
        claims={**KEYCLOAK, "roles": ["offline_access", "developer"]},
        values=KEYCLOAK_VALUES | {"groupsClaim": "roles"},
        rule={"groups": ["oidc/corp/developer"]},
        caller=PERSON,
    ),
    "Keycloak, with the type of access tokens": Case(
        claims=KEYCLOAK,
        values=KEYCLOAK_VALUES,
        rule={"users": ["oidc/corp/*"]},
        caller=PERSON,
        header={"typ": "at+jwt"},
    ),
}


@asynccontextmanager
async def serving_case(
    api: FakeApiServer, issuer: Issuer, folder: Path, case: Case, **changes: Any
) -> AsyncIterator[Gateway]:
    write_rules(folder, {"namespaces": ["agents"], **case.rule})
    async with signing_in(api, folder, issuer.configure(**case.values), **changes) as gateway:
        gateway.finish_all()
        yield gateway


async def connect(gateway: Gateway, token: str) -> Answer:
    """Return the answer to the first message of a client."""
    asked = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": asked}
    return await gateway.ask("POST", "/mcp", key=token, json=message)


@pytest.mark.parametrize("case", ACCEPTED.values(), ids=ACCEPTED)
async def test_a_token_of_a_provider_runs_code_by_the_configured_claims(
    api: FakeApiServer, issuer: Issuer, tmp_path: Path, case: Case
) -> None:
    async with serving_case(api, issuer, tmp_path, case) as gateway:
        token = issuer.sign(header=case.header, **case.claims)
        async with connecting(gateway.url, "2026-07-28", key=token) as client:
            result = await client.call_tool("run_code", {"code": "1"})
        assert result.structured_content is not None
        assert result.structured_content["phase"] == "Succeeded"
        (execution,) = gateway.executions.values()
        assert execution["metadata"]["labels"]["mcp-exec.dev/caller"].startswith(f"oidc.corp.{case.caller[:10]}")


KEYCLOAK_CASE, ENTRA_CASE = ACCEPTED["Keycloak, by a group"], ACCEPTED["Entra ID, by the object id"]


@pytest.mark.parametrize(
    ("case", "claims"),
    [
        (ENTRA_CASE, {"aud": "00000003-0000-0000-c000-000000000000"}),  # of Microsoft Graph
        (ENTRA_CASE, {"aud": OTHER, "nonce": "n"}),  # the ID token of the client
        (ENTRA_CASE, {"oid": None}),
        (ENTRA_CASE, {"iss": f"https://login.microsoftonline.com/{OTHER}/v2.0"}),  # another tenant
        (KEYCLOAK_CASE, {"aud": "account"}),  # without a mapper of the audience
        (KEYCLOAK_CASE, {"aud": "claude-code", "typ": "ID"}),
        (KEYCLOAK_CASE, {"exp": 1}),
    ],
)
async def test_another_token_of_a_provider_leads_to_the_metadata(
    api: FakeApiServer, issuer: Issuer, tmp_path: Path, case: Case, claims: dict[str, Any]
) -> None:
    async with serving_case(api, issuer, tmp_path, case) as gateway:
        refused = await connect(gateway, issuer.sign(header=case.header, **(case.claims | claims)))
        assert refused.status == 401
        assert f'resource_metadata="{gateway.url}/.well-known/' in refused.headers["WWW-Authenticate"]


@pytest.mark.parametrize(
    ("case", "groups_claim", "claims"),
    [
        (ENTRA_CASE, "groups", {"groups": None, "hasgroups": True}),
        (ENTRA_CASE, "groups", {"groups": None, "_claim_names": {"groups": "src1"}, "_claim_sources": {"src1": {}}}),
        (KEYCLOAK_CASE, "realm_access", {}),
        (KEYCLOAK_CASE, "realm_access.roles", {}),
    ],
)
async def test_groups_that_a_token_only_refers_to_or_nests_are_none(
    api: FakeApiServer, issuer: Issuer, tmp_path: Path, case: Case, groups_claim: str, claims: dict[str, Any]
) -> None:
    changed = Case(
        claims=case.claims | claims,
        values=case.values | {"groupsClaim": groups_claim},
        rule={"groups": ["oidc/corp/*"]},
        caller="",
    )
    async with serving_case(api, issuer, tmp_path, changed) as gateway:
        refused = await connect(gateway, issuer.sign(**changed.claims))
        assert (refused.status, "no access rule lets oidc/corp/" in refused.json["detail"]) == (403, True)


@pytest.mark.parametrize(("case", "missing"), [(ENTRA_CASE, "approve"), (KEYCLOAK_CASE, "tools")])
async def test_scopes_of_a_provider_narrow_by_the_claim_that_has_them(
    api: FakeApiServer, issuer: Issuer, tmp_path: Path, case: Case, missing: str
) -> None:
    async with serving_case(api, issuer, tmp_path, case, oidc_narrow_by_scopes=True) as gateway:
        token = issuer.sign(**case.claims)
        assert (await connect(gateway, token)).status == 200
        tools = await gateway.post({"code": "1", "tools": ["a.b"]}, "?wait=0", key=token)
        assert (tools.status == 403) == (missing == "tools")


@pytest.fixture
async def issuer() -> AsyncIterator[Issuer]:
    async with Issuer().running() as made:
        yield made
