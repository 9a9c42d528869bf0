"""OAuth 2.0 client credentials (RFC 6749, 4.4): tokens, kept until shortly before they expire."""

import asyncio
import json
from base64 import b64encode
from collections import OrderedDict
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final
from urllib.parse import quote_plus

import aiohttp

from mcp_exec_broker.upstream.credentials import OAuthClient

_KEPT: Final = 512
_EARLY: Final = 0.1
"""Which part of its life a token is not used any more, so that none expires on its way."""
_DEFAULT_SECONDS: Final = 3600.0
_ANSWER_BYTES: Final = 256 * 1024
_TIMEOUT: Final = aiohttp.ClientTimeout(total=10, sock_connect=5)


class TokenRefused(Exception):
    """No token was had, for the reason that this says, without any credential."""


@dataclass(frozen=True, kw_only=True)
class AccessToken:
    """An access token."""

    text: str = field(repr=False)
    expires: float
    """By the monotonic clock."""


@dataclass(kw_only=True, eq=False)
class ClientCredentialsTokens:
    """Tokens of all clients; each is asked for once at a time."""

    session: aiohttp.ClientSession
    _kept: OrderedDict[OAuthClient, AccessToken] = field(default_factory=OrderedDict)
    _locks: dict[OAuthClient, asyncio.Lock] = field(default_factory=dict)

    async def get(self, client: OAuthClient, *, refused: str | None = None) -> str:
        """A token that is good; `refused` is one that a server did not take. Raises TokenRefused."""
        if (token := self._good(client, refused)) is not None:
            return token
        lock = self._locks.setdefault(client, asyncio.Lock())
        try:
            async with lock:
                if (token := self._good(client, refused)) is not None:
                    return token
                fresh = await self._ask(client)
                self._kept[client] = fresh
                while len(self._kept) > _KEPT:
                    self._kept.popitem(last=False)
                return fresh.text
        finally:
            if not lock.locked():
                self._locks.pop(client, None)

    def _good(self, client: OAuthClient, refused: str | None) -> str | None:
        token = self._kept.get(client)
        return token.text if token and token.text != refused and token.expires > monotonic() else None

    async def _ask(self, client: OAuthClient) -> AccessToken:
        form = {"grant_type": "client_credentials", **({"scope": " ".join(client.scopes)} if client.scopes else {})}
        pair = f"{quote_plus(client.client_id)}:{quote_plus(client.client_secret)}"
        basic = {"Authorization": "Basic " + b64encode(pair.encode()).decode()}
        status, answer = await self._post(client, form, basic)
        if status in (400, 401):  # some servers know client_secret_post alone
            form |= {"client_id": client.client_id, "client_secret": client.client_secret}
            status, answer = await self._post(client, form, {})
        text, kind = answer.get("access_token"), answer.get("token_type", "Bearer")
        if status != 200 or not isinstance(text, str) or not text:
            error = answer.get("error")
            said = f": {error[:100]}" if isinstance(error, str) else ""
            raise TokenRefused(f"the token endpoint answers {status}{said}")
        if str(kind).lower() != "bearer":
            raise TokenRefused(f"the token is no bearer token but {str(kind)[:40]}")
        seconds = answer.get("expires_in")
        life = float(seconds) if isinstance(seconds, int | float) and seconds > 0 else _DEFAULT_SECONDS
        return AccessToken(text=text, expires=monotonic() + life * (1 - _EARLY))

    async def _post(
        self, client: OAuthClient, form: dict[str, str], headers: dict[str, str]
    ) -> tuple[int, dict[str, Any]]:
        try:
            async with self.session.post(
                client.token_url,
                data=form,
                headers={"Accept": "application/json", "Accept-Encoding": "identity", **headers},
                timeout=_TIMEOUT,
                allow_redirects=False,
            ) as response:
                body = await _whole(response)
                answer = json.loads(body) if body.lstrip()[:1] == b"{" else {}
        except (aiohttp.ClientError, TimeoutError, ValueError, RecursionError) as error:
            raise TokenRefused(f"the token endpoint does not answer: {type(error).__name__}") from None
        return response.status, answer if isinstance(answer, dict) else {}


async def _whole(response: aiohttp.ClientResponse) -> bytes:
    """The body: `read` of a number of bytes gives what there is just now. Raises ValueError where it is too large."""
    body = b""
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > _ANSWER_BYTES:
            raise ValueError("the answer is larger than it may be")
    return body
