"""Sign-in: tokens of identity providers at a gateway, which reads the keys of loopback providers by TLS."""

import asyncio
import base64
import gzip
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import jwt
import pytest
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from multidict import CIMultiDict
from tests.component.gateway.conftest import KEY, Gateway, serving
from tests.component.gateway.test_access_rules import write_rules
from tests.support.api_server import FakeApiServer
from tests.support.certificates import certificates_for
from tests.support.issuer import AUDIENCE, DISCOVERY, KEYS, Handler, Issuer, publish, rsa_key
from tests.support.mounts import write_version
from tests.support.pace import paced
from tests.support.until import until, until_answered

from mcp_exec_common.process.mounts import MountedFolder
from mcp_exec_gateway.features.mcp.transport.tokens import ApprovalToken
from mcp_exec_gateway.features.signin import key_sets
from mcp_exec_gateway.features.signin.key_sets import KeySet

PEOPLE = {"users": ["oidc/corp/*"], "namespaces": ["agents"]}
LOOPBACK = "127.0.0.0/8,::1/128"


@asynccontextmanager
async def signing_in(
    api: FakeApiServer, folder: Path, *issuers: dict[str, Any], **changes: Any
) -> AsyncIterator[Gateway]:
    given = {"oidc_issuers": issuers, "oidc_allowed_addresses": LOOPBACK, "rules_folder": folder} | changes
    async with serving(api, **given) as made:
        yield made


@pytest.fixture
async def issuer() -> AsyncIterator[Issuer]:
    async with Issuer().running() as made:
        yield made


@pytest.fixture
async def gateway(api: FakeApiServer, issuer: Issuer, tmp_path: Path) -> AsyncIterator[Gateway]:
    write_rules(tmp_path, PEOPLE)
    async with signing_in(api, tmp_path, issuer.configure()) as made:
        yield made


async def ask(gateway: Gateway, token: str) -> int:
    return int((await gateway.ask("GET", "/v1/executions", key=token)).status)


def encode(part: Any) -> str:
    content = part if isinstance(part, bytes) else json.dumps(part).encode()
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def forge(issuer: Issuer, header: Any, claims: Any = None, signature: bytes = b"") -> str:
    return f"{encode(header)}.{encode(issuer.claims() if claims is None else claims)}.{encode(signature)}"


def sign_by_public_key(issuer: Issuer) -> str:
    pem = issuer.keys["one"].public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    text = f"{encode({'alg': 'HS256', 'kid': 'one'})}.{encode(issuer.claims())}"
    return f"{text}.{encode(hmac.new(pem, text.encode(), hashlib.sha256).digest())}"


def sign_text(issuer: Issuer, text: str) -> str:
    """Return a token that the issuer signed, with this text as its claims."""
    return jwt.api_jws.encode(text.encode(), issuer.keys["one"], algorithm="RS256", headers={"kid": "one"})


def add_text(issuer: Issuer, text: str) -> str:
    """Return a token that the issuer signed, with a text at the end of its claims."""
    return sign_text(issuer, json.dumps(issuer.claims())[:-1] + text + "}")


async def send_for_ever(request: web.Request) -> web.StreamResponse:
    """Send the beginning of an answer, and the rest never."""
    response = web.StreamResponse()
    await response.prepare(request)
    await response.write(b'{"keys": [')
    await asyncio.Event().wait()
    return response


async def test_a_person_runs_code_as_a_caller_of_its_own(gateway: Gateway, issuer: Issuer, api: FakeApiServer) -> None:
    made = await gateway.post(query="?wait=0", key=issuer.sign())
    assert made.status == 202
    stored = gateway.executions[made.json["name"]]
    assert stored["metadata"]["labels"]["mcp-exec.dev/caller"].startswith("oidc.corp.alice-")
    assert (await gateway.ask("GET", f"/v1/executions/{made.json['name']}", key=issuer.sign(sub="bob"))).status == 404
    assert api.asked("POST", "/tokenreviews") == []


@pytest.mark.parametrize(
    ("alg", "key"),
    [
        ("RS512", rsa_key()),
        ("PS256", rsa_key()),
        ("ES256", ec.generate_private_key(ec.SECP256R1())),
        ("ES384", ec.generate_private_key(ec.SECP384R1())),
        ("EdDSA", ed25519.Ed25519PrivateKey.generate()),
    ],
)
async def test_signatures_of_public_keys_are_accepted(
    api: FakeApiServer, issuer: Issuer, tmp_path: Path, alg: str, key: Any
) -> None:
    issuer.keys["one"] = key
    write_rules(tmp_path, PEOPLE)
    async with signing_in(api, tmp_path, issuer.configure()) as gateway:
        assert await ask(gateway, issuer.sign(alg=alg)) == 200


@pytest.mark.parametrize(
    "attack",
    [
        lambda it: forge(it, {"alg": "none"}),
        lambda it: forge(it, {"alg": "none", "kid": "one"}),
        lambda it: forge(it, {"alg": "NONE", "kid": "one"}),
        lambda it: forge(it, {"alg": ["RS256"], "kid": "one"}, signature=b"x"),
        lambda it: forge(it, {"alg": "RS256", "kid": {"one": 1}}, signature=b"x"),
        lambda it: forge(it, {"alg": "RS256", "kid": "one"}, signature=b"x" * 256),
        lambda it: forge(it, b'{"alg": "RS256", "kid": "one", "alg": "none"}', signature=b"x"),
        lambda it: forge(it, [], signature=b"x"),
        lambda it: forge(it, b"[" * 9000, signature=b"x"),
        sign_by_public_key,
        lambda it: add_text(it, ', "sub": "root"'),
        lambda it: add_text(it, ', "a": {"b": 1, "b": 2}'),
        lambda it: add_text(it, ', "iat": 1e400'),
        lambda it: add_text(it, ', "iat": NaN'),
        lambda it: add_text(it, f', "iat": {"9" * 5000}'),
        lambda it: it.sign(key=rsa_key()),
        lambda it: it.sign(kid=None),
        lambda it: it.sign(kid="two", key=it.keys["one"]),
        lambda it: it.sign(alg="ES256", key=ec.generate_private_key(ec.SECP256R1())),
        lambda it: it.sign(kid=""),
        lambda it: it.sign(kid="../one", key=it.keys["one"]),
        lambda it: it.sign(kid="one\0", key=it.keys["one"]),
        lambda it: it.sign(kid="https://localhost/keys#one", key=it.keys["one"]),
        lambda it: it.sign(kid="k" * 8000, key=it.keys["one"]),
        lambda it: it.sign(header={"crit": ["x"], "x": 1}),
        lambda it: it.sign(header={"crit": []}),
        lambda it: it.sign(header={"crit": "x"}),
        lambda it: it.sign(header={"crit": ["b64"], "b64": False}),
        lambda it: it.sign(header={"b64": False}),
        # of the same issuer and audience, and no access token
        lambda it: it.sign(header={"typ": "logout+jwt"}),
        lambda it: it.sign(header={"typ": "dpop+jwt"}),
        lambda it: it.sign(header={"typ": ["JWT"]}),
        lambda it: it.sign(events={"http://schemas.openid.net/event/backchannel-logout": {}}),
        lambda it: it.sign(cnf={"jkt": "a key of the client"}),
        lambda it: it.sign(aud="another"),
        lambda it: it.sign(aud=["another", "third"]),
        lambda it: it.sign(aud=None),
        lambda it: it.sign(aud={AUDIENCE: 1}),
        lambda it: it.sign(aud=[AUDIENCE, 1]),
        lambda it: it.sign(aud=AUDIENCE + "/more"),
        lambda it: sign_text(it, json.dumps(it.claims(iss=[it.url]))),
        lambda it: it.sign(iss=None),
        lambda it: it.sign(sub=None),
        lambda it: it.sign(sub=""),
        lambda it: it.sign(sub="a\nb"),
        lambda it: it.sign(sub="a" * 201),
        lambda it: it.sign(exp=None),
        lambda it: it.sign(exp=int(time.time()) - 31),
        lambda it: it.sign(exp=-1),
        lambda it: it.sign(exp=-(10**30)),
        lambda it: it.sign(exp=10**400),
        lambda it: it.sign(exp=True),
        lambda it: it.sign(exp="never"),
        lambda it: it.sign(exp=[int(time.time()) + 60]),
        lambda it: it.sign(iat=10**30),
        lambda it: it.sign(nbf="never"),
        lambda it: it.sign(nbf=int(time.time()) + 60),
        lambda it: it.sign(padding="x" * 16_384),
        lambda it: it.sign() + ".x",
        lambda it: it.sign()[:-8],
    ],
)
async def test_a_token_that_proves_nobody_is_refused(
    gateway: Gateway, issuer: Issuer, attack: Callable[[Issuer], str]
) -> None:
    assert await ask(gateway, issuer.sign()) == 200
    assert await ask(gateway, attack(issuer)) == 401
    assert set(issuer.requests) == {DISCOVERY, KEYS}


@pytest.mark.parametrize("name", ["jwk", "jku", "x5u", "x5c"])
async def test_a_token_never_names_the_key_that_verifies_it(gateway: Gateway, issuer: Issuer, name: str) -> None:
    others = {"jwk": publish(rsa_key(), "one"), "x5c": ["MIIB"]}.get(name, f"{issuer.url}/others")
    assert await ask(gateway, issuer.sign(key=rsa_key(), header={name: others})) == 401
    assert set(issuer.requests) == {DISCOVERY, KEYS}


@pytest.mark.parametrize("typ", ["JWT", "jwt", "at+jwt", "application/at+jwt", None])
async def test_an_access_token_has_one_of_the_types_that_providers_give_it(
    gateway: Gateway, issuer: Issuer, typ: str | None
) -> None:
    assert await ask(gateway, issuer.sign(header={"typ": typ})) == 200


async def test_a_token_counts_only_as_the_one_bearer_of_the_header(gateway: Gateway, issuer: Issuer) -> None:
    token = issuer.sign()

    async def read(*authorizations: str, query: str = "", **options: Any) -> int:
        headers = CIMultiDict(("Authorization", each) for each in authorizations)
        url = f"{gateway.url}/v1/executions?wait=0{query}"
        async with gateway.session.post(url, headers=headers, **options) as response:
            return response.status

    assert await read(f"Bearer {token}", json={"code": "1"}) == 202
    assert await read(query=f"&access_token={token}", json={"code": "1"}) == 401
    assert await read(data={"access_token": token}) == 401
    assert await read(f"Bearer {token}", f"Bearer {token}", json={"code": "1"}) == 401
    assert await read(f"Bearer {token}", f"Bearer {KEY}", json={"code": "1"}) == 401
    for scheme in ("DPoP", "Basic", "Bearer Bearer"):
        assert await read(f"{scheme} {token}", json={"code": "1"}) == 401


async def test_a_token_that_ends_while_its_request_is_served_does_not_fail_it(
    gateway: Gateway, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway.finish_all()
    (tokens,) = gateway.dependencies.extensions.token_sources
    found = [await tokens.find_user(token := issuer.sign())]

    async def find_user(token: str) -> Any:
        return found.pop() if found else None

    monkeypatch.setattr(tokens, "find_user", find_user)
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    message["params"] = {"name": "run_code", "arguments": {"code": "1"}}
    answer = await gateway.ask("POST", "/mcp", key=token, json=message)
    assert answer.json["result"]["structuredContent"]["phase"] == "Succeeded"
    assert (await gateway.ask("POST", "/mcp", key=token, json=message)).status == 401


async def test_clocks_may_differ_as_much_as_is_set(gateway: Gateway, issuer: Issuer) -> None:
    now = int(time.time())
    assert await ask(gateway, issuer.sign(nbf=now + 20, iat=now + 20)) == 200
    assert await ask(gateway, issuer.sign(exp=now - 20)) == 200


async def test_a_token_of_one_issuer_is_never_verified_by_the_keys_of_another(
    api: FakeApiServer, issuer: Issuer, tmp_path: Path
) -> None:
    async with Issuer().running() as other:
        other.answers[KEYS] = lambda request: web.json_response(other.list_keys())
        write_rules(tmp_path, PEOPLE)
        async with signing_in(api, tmp_path, issuer.configure(), other.configure("other")) as gateway:
            assert await ask(gateway, issuer.sign()) == 200
            for token in (
                issuer.sign(key=other.keys["one"]),
                other.sign(iss=issuer.url),
                other.sign(key=issuer.keys["one"]),
                issuer.sign(iss=issuer.url + "/"),
            ):
                assert await ask(gateway, token) == 401
            # an issuer's people and groups have its alias, so no rule of another fits them
            assert await ask(gateway, other.sign()) == 403


async def test_groups_and_names_come_from_the_configured_claims(
    api: FakeApiServer, issuer: Issuer, tmp_path: Path
) -> None:
    write_rules(tmp_path, {"groups": ["oidc/corp/dev"], "namespaces": ["agents"]})
    configured = issuer.configure(userClaim="email", groupsClaim="roles")
    async with signing_in(api, tmp_path, configured) as gateway:
        person = {"email": "alice@example.com", "email_verified": True}
        assert await ask(gateway, issuer.sign(**person, roles=["ops", "dev"])) == 200
        assert await ask(gateway, issuer.sign(**person, roles="dev")) == 200
        for groups in (["ops"], [["dev"]], {"dev": True}, 1, None):
            assert await ask(gateway, issuer.sign(**person, roles=groups)) == 403
        assert await ask(gateway, issuer.sign(**person, groups=["dev"])) == 403
        for verified in (False, "true", None):
            assert await ask(gateway, issuer.sign(**person | {"email_verified": verified}, roles="dev")) == 401
        made = await gateway.post(
            {"code": "1", "user": "alice@example.com"}, "?wait=0", key=issuer.sign(**person, roles="dev")
        )
        assert made.status == 202


async def test_a_new_key_is_fetched_once_and_a_removed_one_verifies_nothing(gateway: Gateway, issuer: Issuer) -> None:
    old = issuer.sign()
    assert await ask(gateway, old) == 200
    (key_set,) = list_key_sets(gateway)
    key_set.min_seconds = 0
    issuer.keys = {"two": rsa_key()}
    assert await ask(gateway, issuer.sign(kid="two")) == 200
    assert await ask(gateway, old) == 401
    key_set.min_seconds = 3600
    fetched = issuer.requests.count(KEYS)
    for number in range(5):
        assert await ask(gateway, issuer.sign(kid=f"unknown-{number}", key=rsa_key())) == 401
    assert issuer.requests.count(KEYS) == fetched


def list_key_sets(gateway: Gateway) -> list[KeySet]:
    (tokens,) = gateway.dependencies.extensions.token_sources
    return list(tokens.key_sets.values())  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        (
            DISCOVERY,
            lambda request: web.json_response({"issuer": "https://evil.test", "jwks_uri": "https://localhost/"}),
        ),
        (DISCOVERY, lambda request: web.json_response({"issuer": f"https://{request.host}"})),
        (
            DISCOVERY,
            lambda request: web.json_response({"issuer": f"https://{request.host}", "jwks_uri": "http://localhost/"}),
        ),
        (KEYS, lambda request: web.HTTPFound(f"https://{request.host}/other")),
        (KEYS, lambda request: web.Response(status=500)),
        (KEYS, lambda request: web.Response(body=b"[" * 100_000)),
        (KEYS, lambda request: web.Response(body=b" " * 300_000)),
        (KEYS, lambda request: web.Response(body=b'{"keys": [' + b"9" * 100_000 + b"]}")),
        (KEYS, lambda request: web.Response(body=gzip.compress(b" " * 2**26), headers={"Content-Encoding": "gzip"})),
        (KEYS, send_for_ever),
        (KEYS, lambda request: web.json_response({"keys": [{"kid": "one", "kty": "RSA"}] * 65})),
        (KEYS, lambda request: web.json_response({"keys": [publish(rsa_key(), "one", n="_" * 200_000)]})),
        (KEYS, lambda request: web.json_response({"keys": [publish(rsa_key(), "one", e="_" * 1000)]})),
        (KEYS, lambda request: web.json_response({"keys": [publish(rsa_key(), "one", use="enc")]})),
        (KEYS, lambda request: web.json_response({"keys": [{"kid": "one", "kty": "oct", "k": "c2VjcmV0"}]})),
    ],
)
async def test_an_answer_that_leads_elsewhere_or_is_too_much_is_no_key_set(
    api: FakeApiServer,
    issuer: Issuer,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    answer: Handler,
) -> None:
    monkeypatch.setattr(key_sets, "_FETCH_SECONDS", paced(1))
    issuer.answers[path] = answer
    async with signing_in(api, tmp_path, issuer.configure()) as gateway:
        await until(lambda: "the keys of the issuer corp can't be read" in caplog.text)
        refused = await gateway.ask("GET", "/v1/executions", key=issuer.sign())
        assert (refused.status, "corp" in refused.json["detail"]) == (503, True)
        assert (await gateway.ask("GET", "/v1/executions")).status == 200
        assert "/other" not in issuer.requests


@pytest.mark.parametrize("path", [DISCOVERY, KEYS, "jwks_uri"])
async def test_no_answer_leads_to_an_address_that_is_not_listed(
    api: FakeApiServer, issuer: Issuer, tmp_path: Path, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    reached: list[Any] = []
    # by loopback in place of the networks that are refused as well: a defect connects to nothing real
    async with await asyncio.start_server(lambda *streams: reached.append(streams), "127.0.0.2") as elsewhere:
        url = f"https://127.0.0.2:{elsewhere.sockets[0].getsockname()[1]}/"
        issuer.answers[path] = lambda request: web.HTTPTemporaryRedirect(url)
        if path == "jwks_uri":
            issuer.answers[DISCOVERY] = lambda request: web.json_response({"issuer": issuer.url, path: url})
        listed = {"oidc_allowed_addresses": "127.0.0.1/32,::1/128"}
        async with signing_in(api, tmp_path, issuer.configure(), **listed) as gateway:
            await until(lambda: "the keys of the issuer corp can't be read" in caplog.text)
            assert await ask(gateway, issuer.sign()) == 503
    assert reached == []


@pytest.mark.parametrize("changes", [{"ca": ""}, {"jwksUrl": "https://127.0.0.1:1/keys"}])
async def test_an_issuer_that_is_not_reached_or_trusted_stops_nobody_else(
    api: FakeApiServer, issuer: Issuer, tmp_path: Path, changes: dict[str, str]
) -> None:
    async with signing_in(api, tmp_path, issuer.configure(**changes)) as gateway:
        assert await ask(gateway, issuer.sign()) == 503
        assert (await gateway.ask("GET", "/v1/executions")).status == 200


async def test_loopback_is_no_place_of_an_issuer_unless_it_is_listed(
    api: FakeApiServer, issuer: Issuer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with signing_in(api, tmp_path, issuer.configure(), oidc_allowed_addresses=()) as gateway:
        await until(lambda: "the address is loopback" in caplog.text)
        assert await ask(gateway, issuer.sign()) == 503
    assert issuer.requests == []


async def test_a_flood_of_forged_tokens_does_not_lock_out_a_person(
    api: FakeApiServer, issuer: Issuer, tmp_path: Path
) -> None:
    write_rules(tmp_path, PEOPLE)
    async with signing_in(api, tmp_path, issuer.configure(), anonymous_requests_per_minute=5) as gateway:
        gateway.stop_refills()
        token = issuer.sign()
        assert await ask(gateway, token) == 200
        forged = issuer.sign(key=rsa_key())
        assert [await ask(gateway, forged) for _ in range(6)][-1] == 429
        assert await ask(gateway, token) == 200


async def test_a_changed_rule_holds_for_the_next_request(
    gateway: Gateway, issuer: Issuer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await ask(gateway, issuer.sign()) == 200
    write_rules(tmp_path)

    async def is_refused() -> bool | None:
        return await ask(gateway, issuer.sign()) == 403 or None

    await until_answered(is_refused, every=0.2)


@pytest.mark.parametrize("mode", ["code", "direct", "hybrid"])
async def test_an_mcp_client_without_a_token_learns_where_to_get_one(
    gateway: Gateway, issuer: Issuer, mode: str
) -> None:
    for key in (None, issuer.sign(exp=1), "mcpx_unknown"):
        refused = await gateway.ask("POST", f"/mcp?mode={mode}", key=key, json={})
        assert refused.status == 401
        url = f"{gateway.url}/.well-known/oauth-protected-resource/mcp"
        assert refused.headers["WWW-Authenticate"] == f'Bearer realm="mcp-exec", resource_metadata="{url}"'
    for path in ("/mcp", ""):
        shown = await gateway.ask("GET", f"/.well-known/oauth-protected-resource{path}", key=None)
        assert (shown.status, shown.json["resource"]) == (200, f"{gateway.url}/mcp")
        assert shown.json["authorization_servers"] == [issuer.url]
    other = await gateway.ask("GET", "/v1/executions", key=None)
    assert other.headers["WWW-Authenticate"] == 'Bearer realm="mcp-exec"'


@pytest.mark.parametrize(
    ("asked", "prefix"),
    [("", ""), ("openid,api://mcp/run,api://mcp/tools,api://mcp/approve", "api://mcp/")],
    ids=["plain", "by the provider's names"],
)
async def test_a_decision_in_a_stream_names_the_scopes_of_the_token_that_it_needs(
    api: FakeApiServer, issuer: Issuer, tmp_path: Path, asked: str, prefix: str
) -> None:
    form = {"action": "accept", "content": {"decision": "Approve"}}
    approval = ApprovalToken(execution="exec-a", approval="a1", digest="")
    arguments = {"name": "run_code", "inputResponses": {"a1": form}}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    consent = {"name": "github__merge", "inputResponses": {"approval": form}, "requestState": "x"}
    task = {"taskId": "exec-a", "inputResponses": {str(approval): form}}
    messages: tuple[dict[str, Any], ...] = (
        {"jsonrpc": "2.0", "id": str(approval), "result": form},
        call | {"params": arguments},
        call | {"params": consent},
        call | {"method": "tasks/update", "params": task},
    )
    write_rules(
        tmp_path, PEOPLE | {"users": ["oidc/corp/alice"], "approver": True}, {**PEOPLE, "users": ["oidc/corp/bob"]}
    )
    changes = {"oidc_narrow_by_scopes": True, "oidc_scopes": asked}
    async with signing_in(api, tmp_path, issuer.configure(), **changes) as gateway:

        async def send(message: dict[str, Any], **claims: Any) -> Any:
            return await gateway.ask("POST", "/mcp", key=issuer.sign(**claims), json=message)

        for message in messages:
            refused = await send(message, scope="run tools")
            assert (refused.status, "lacks the scope approve" in refused.json["detail"]) == (403, True)
            metadata = f'resource_metadata="{gateway.url}/.well-known/oauth-protected-resource/mcp"'
            scopes = f"{prefix}run {prefix}tools {prefix}approve"
            expected = f'Bearer realm="mcp-exec", error="insufficient_scope", scope="{scopes}", {metadata}'
            assert refused.headers["WWW-Authenticate"] == expected
            fewer = await send(message, scope="run")
            assert f'scope="{prefix}run {prefix}approve"' in fewer.headers["WWW-Authenticate"]
            # another token would not help
            hopeless = await send(message, scope="run tools", sub="bob")
            assert (hopeless.status, "WWW-Authenticate" in hopeless.headers) == (403, False)
        dismissed = await send(messages[0] | {"result": {"action": "cancel"}}, scope="run tools")
        assert dismissed.status == 202


async def test_scopes_narrow_what_a_rule_allows_and_a_client_learns_which_is_missing(
    api: FakeApiServer, issuer: Issuer, tmp_path: Path
) -> None:
    write_rules(tmp_path, PEOPLE | {"approver": True})
    async with signing_in(api, tmp_path, issuer.configure(), oidc_narrow_by_scopes=True) as gateway:
        path, body = "/v1/executions/exec-a/approvals/a1", {"decision": "Approve"}
        for scopes in ({"scope": "openid run"}, {"scp": ["run"]}, {"scp": "run"}):
            assert (await gateway.post(query="?wait=0", key=issuer.sign(**scopes))).status == 202
            tools = await gateway.post({"code": "1", "tools": ["a.b"]}, "?wait=0", key=issuer.sign(**scopes))
            assert (tools.status, tools.json["errors"][0]["field"]) == (403, "tools.0")
            refused = await gateway.ask("POST", path, key=issuer.sign(**scopes), json=body)
            assert refused.status == 403
            expected = 'Bearer realm="mcp-exec", error="insufficient_scope", scope="approve"'
            assert refused.headers["WWW-Authenticate"] == expected
        assert (await gateway.ask("POST", path, key=issuer.sign(scope="approve"), json=body)).status == 404
        for scopes in ({}, {"scope": "approve tools"}, {"scope": ["run", 1]}, {"scope": {"run": 1}}):
            status = 200 if scopes.get("scope") == ["run", 1] else 403
            assert await ask(gateway, issuer.sign(**scopes)) == status
        lacking = await gateway.ask("POST", "/mcp", key=issuer.sign(), json={})
        assert lacking.status == 403
        assert lacking.headers["WWW-Authenticate"].count("scope=") == 1
        assert "resource_metadata=" in lacking.headers["WWW-Authenticate"]


async def test_an_mcp_client_learns_which_scopes_to_ask_for(api: FakeApiServer, issuer: Issuer, tmp_path: Path) -> None:
    async with signing_in(api, tmp_path, issuer.configure(), oidc_scopes="openid,api://mcp/run") as gateway:
        refused = await gateway.ask("POST", "/mcp", key=None, json={})
        assert refused.headers["WWW-Authenticate"].endswith(', scope="openid api://mcp/run"')
        shown = await gateway.ask("GET", "/.well-known/oauth-protected-resource/mcp", key=None)
        assert shown.json["scopes_supported"] == ["openid", "api://mcp/run"]


async def test_the_public_address_is_the_resource(api: FakeApiServer, issuer: Issuer, tmp_path: Path) -> None:
    async with signing_in(api, tmp_path, issuer.configure(), public_url="https://agents.example.com") as gateway:
        refused = await gateway.ask("POST", "/mcp/", key=None, json={})
        url = "https://agents.example.com/.well-known/oauth-protected-resource/mcp"
        assert f'resource_metadata="{url}"' in refused.headers["WWW-Authenticate"]
        shown = await gateway.ask("GET", "/.well-known/oauth-protected-resource/mcp", key=None)
        assert shown.json["resource"] == "https://agents.example.com/mcp"


async def test_a_gateway_without_issuers_is_no_protected_resource(api: FakeApiServer) -> None:
    async with serving(api) as gateway:
        assert (await gateway.ask("GET", "/.well-known/oauth-protected-resource/mcp", key=None)).status == 404
        refused = await gateway.ask("POST", "/mcp", key=None, json={})
        assert "resource_metadata" not in refused.headers["WWW-Authenticate"]


@pytest.mark.parametrize("own", [False, True], ids=["by the bundle alone", "with an authority of its own"])
async def test_an_issuer_is_verified_by_the_changed_bundle_of_the_installation(
    api: FakeApiServer, issuer: Issuer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: bool
) -> None:
    monkeypatch.setattr(MountedFolder, "CHECK_SECONDS", 0.01)
    write_rules(tmp_path, PEOPLE)
    (bundle := tmp_path / "bundle").mkdir()
    former, _ = certificates_for("localhost")
    write_version(bundle, {"ca.crt": former.encode()})
    given = issuer.configure(ca=former if own else "")
    async with signing_in(api, tmp_path, given, ca_bundle=bundle / "ca.crt") as gateway:
        assert await ask(gateway, issuer.sign()) == 503
        write_version(bundle, {"ca.crt": issuer.ca.encode()})

        async def signed_in() -> bool | None:
            return await ask(gateway, issuer.sign()) == 200 or None

        assert await until_answered(signed_in, every=0.1)
