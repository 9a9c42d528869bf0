"""Sign-in at the identity provider of tests/identity: a person's browser, and MCP clients that it serves."""

import re
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qs, urlencode, urljoin, urlsplit

import httpx
import httpx2
from mcp import Client
from mcp.client.auth import OAuthClientProvider, PKCEParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthToken,
)
from pydantic import AnyUrl

from tests.support.constants import AUDIENCE
from tests.support.pace import paced

REDIRECT: Final = "http://127.0.0.1:9/callback"
"""Nothing listens there: the browser stops at it."""
KNOWN: Final = "known"
"""A client that is registered beforehand."""
FORGETFUL: Final = "forgetful"
"""Another one, whose first token is valid for FIRST_SECONDS."""
FIRST_SECONDS: Final = 3
METADATA: Final = OAuthClientMetadata(redirect_uris=[AnyUrl(REDIRECT)], token_endpoint_auth_method="none")
_SECONDS: Final = paced(60)


@dataclass(frozen=True, kw_only=True)
class IdentityProvider:
    """A provider that runs, and its people."""

    url: str
    ca: str
    passwords: dict[str, str]
    """By person."""

    def configure(self, alias: str) -> dict[str, Any]:
        """Return the issuer as the chart's value `gateway.oidc.issuers` has it."""
        return {"alias": alias, "url": self.url, "audience": AUDIENCE, "ca": self.ca}

    @property
    def tls(self) -> ssl.SSLContext:
        return ssl.create_default_context(cadata=self.ca)

    def connect(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(verify=self.tls, trust_env=False, timeout=_SECONDS, base_url=self.url)

    async def read_key_ids(self) -> set[str]:
        async with self.connect() as http:
            return {key["kid"] for key in (await http.get("/jwks")).json()["keys"]}


@dataclass
class Browser:
    """A person's browser, which signs in and consents wherever an MCP client leads it."""

    provider: IdentityProvider
    person: str
    password: str = ""
    """Empty means the person's own."""
    opened: list[str] = field(default_factory=list)
    """First address of each sign-in."""
    visited: list[str] = field(default_factory=list)
    answer: dict[str, str] = field(default_factory=dict)
    forged: dict[str, str] = field(default_factory=dict)
    """What somebody puts into the answer in place of what the provider has sent."""

    async def open(self, url: str) -> None:
        """Follow the sign-in from its first address to the client's redirect address."""
        self.opened.append(url)
        password = self.password or self.provider.passwords[self.person]
        async with self.provider.connect() as http:
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
                assert response.status_code == 200, response.text
                action = re.search(r'action="([^"]+)"', response.text)
                prompt = re.search(r'name="prompt" value="(\w+)"', response.text)
                assert action is not None, response.text
                assert prompt is not None, response.text
                form = {"prompt": prompt[1], "login": self.person, "password": password}
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


def registered(client: str = KNOWN) -> OAuthClientInformationFull:
    """Return what a user writes into the configuration of an MCP client that is registered beforehand."""
    return OAuthClientInformationFull(
        client_id=client, redirect_uris=[AnyUrl(REDIRECT)], token_endpoint_auth_method="none"
    )


@asynccontextmanager
async def connected(url: str, browser: Browser, storage: Storage, **options: Any) -> AsyncIterator[Client]:
    """Connect an MCP client that knows only the gateway's address, and signs its user in."""
    auth = OAuthClientProvider(url, METADATA, storage, browser.open, browser.read_answer)
    async with (
        httpx2.AsyncClient(auth=auth, verify=browser.provider.tls, timeout=_SECONDS, trust_env=False) as http,
        Client(streamable_http_client(url, http_client=http), **options) as client,
    ):
        yield client


async def run_by(client: Client, code: str = "print(1)", **arguments: Any) -> dict[str, Any]:
    """Run code by an MCP client, and return its structured result."""
    result = await client.call_tool("run_code", {"code": code, **arguments})
    assert result.structured_content is not None, result
    return dict(result.structured_content)


async def sign_in(browser: Browser, *, resource: str, client: str = KNOWN) -> str:
    """Sign a person in without an MCP client, and return the access token."""
    pkce = PKCEParameters.generate()
    shared = {"client_id": client, "redirect_uri": REDIRECT, "resource": resource}
    query = {"response_type": "code", "scope": "openid", "code_challenge_method": "S256"}
    async with browser.provider.connect() as http:
        discovered = (await http.get("/.well-known/openid-configuration")).json()
        address = discovered["authorization_endpoint"]
        await browser.open(f"{address}?{urlencode(shared | query | {'code_challenge': pkce.code_challenge})}")
        form = {"grant_type": "authorization_code", "code": browser.answer["code"], "code_verifier": pkce.code_verifier}
        response = await http.post(discovered["token_endpoint"], data=shared | form)
    assert response.status_code == 200, response.text
    return str(response.json()["access_token"])
