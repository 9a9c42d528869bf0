"""OAuth 2.0 client credentials (RFC 6749, 4.4): access tokens, cached until shortly before they expire."""

import asyncio
import json
import re
from base64 import b64encode
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final
from urllib.parse import quote_plus

import aiohttp
from cachetools import LRUCache

from mcp_exec_api.reasons.server import ServerReason
from mcp_exec_broker.upstream.credentials import OAuthClient
from mcp_exec_broker.upstream.failures import explain_connection_error

_MAX_TOKENS: Final = 512
_EXPIRY_MARGIN: Final = 0.1
"""Part of its lifetime in which a token is no longer used, so that none expires in transit."""
_DEFAULT_SECONDS: Final = 3600.0
_MAX_SECONDS: Final = 1e9
"""Longest lifetime. A token endpoint may send integers that no float can hold."""
_MAX_TOKEN: Final = 16_384
_TOKEN: Final = re.compile(rf"[\x21-\x7e]{{1,{_MAX_TOKEN}}}")
_WORD: Final = re.compile(r"[A-Za-z][A-Za-z_-]{0,39}")
"""Codes of errors and types of tokens that are shown. Other texts may repeat the credentials, encoded or in part."""
_MAX_RESPONSE_BYTES: Final = 256 * 1024
_TIMEOUT: Final = aiohttp.ClientTimeout(total=10, sock_connect=5)


class TokenRefused(Exception):
    """The token endpoint issued no token. The text contains no credentials."""

    def __init__(self, message: str, reason: ServerReason = ServerReason.TOKEN_REFUSED) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, kw_only=True)
class AccessToken:
    """An access token."""

    text: str = field(repr=False)
    expires: float
    """On the monotonic clock."""


@dataclass(kw_only=True, eq=False)
class ClientCredentialsTokens:
    """Cache of access tokens by client, with one request per client at a time."""

    session: aiohttp.ClientSession
    _tokens: LRUCache[OAuthClient, AccessToken] = field(default_factory=lambda: LRUCache(_MAX_TOKENS))
    _locks: dict[OAuthClient, asyncio.Lock] = field(default_factory=dict)

    async def get_token(self, client: OAuthClient, *, rejected: str | None = None) -> str:
        """Return a valid token other than `rejected`, which a server has rejected. Raises TokenRefused."""
        if (token := self._find_valid(client, rejected)) is not None:
            return token
        lock = self._locks.setdefault(client, asyncio.Lock())
        try:
            async with lock:
                if (token := self._find_valid(client, rejected)) is not None:
                    return token
                fresh = self._tokens[client] = await self._request_token(client)
                return fresh.text
        finally:
            if not lock.locked():
                self._locks.pop(client, None)

    def _find_valid(self, client: OAuthClient, rejected: str | None) -> str | None:
        token = self._tokens.get(client)
        return token.text if token and token.text != rejected and token.expires > monotonic() else None

    async def _request_token(self, client: OAuthClient) -> AccessToken:
        form = {"grant_type": "client_credentials", **({"scope": " ".join(client.scopes)} if client.scopes else {})}
        pair = f"{quote_plus(client.client_id)}:{quote_plus(client.client_secret)}"
        basic = {"Authorization": "Basic " + b64encode(pair.encode()).decode()}
        status, answer = await self._post(client, form, basic)
        if status in (400, 401):  # some servers support only client_secret_post
            form |= {"client_id": client.client_id, "client_secret": client.client_secret}
            status, answer = await self._post(client, form, {})
        text, kind = answer.get("access_token"), answer.get("token_type", "Bearer")
        if status != 200 or not isinstance(text, str) or not text:
            error = _read_word(answer.get("error"))
            raise TokenRefused(f"the token endpoint answers {status}" + (f": {error}" if error else ""))
        if str(kind).lower() != "bearer":
            raise TokenRefused(f"the token type is {_read_word(kind) or 'another one'}, but must be bearer")
        if not _TOKEN.fullmatch(text):
            problem = f"must be 1 to {_MAX_TOKEN} printable ASCII characters without spaces"
            raise TokenRefused(f"the access token {problem}")
        seconds = answer.get("expires_in")
        lifetime = min(seconds, _MAX_SECONDS) if isinstance(seconds, int | float) and seconds > 0 else _DEFAULT_SECONDS
        return AccessToken(text=text, expires=monotonic() + lifetime * (1 - _EXPIRY_MARGIN))

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
                body = await _read_body(response)
                answer = json.loads(body) if body.lstrip()[:1] == b"{" else {}
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            reason, message = explain_connection_error(error)
            raise TokenRefused(f"the token endpoint cannot be reached: {message}", reason) from None
        except TimeoutError:
            raise TokenRefused(f"the token endpoint does not answer within {_TIMEOUT.total:g} s") from None
        except (ValueError, RecursionError):
            raise TokenRefused("the token endpoint does not answer with a JSON object of 256 KiB or less") from None
        except (aiohttp.ClientError, OSError):
            raise TokenRefused("the token endpoint closed the connection before it answered") from None
        return response.status, answer if isinstance(answer, dict) else {}


def _read_word(value: object) -> str:
    return value if isinstance(value, str) and _WORD.fullmatch(value) else ""


async def _read_body(response: aiohttp.ClientResponse) -> bytes:
    """Read the whole body: `read(n)` may return less than that. Raises ValueError if it is too large."""
    body = b""
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > _MAX_RESPONSE_BYTES:
            raise ValueError("the answer exceeds its size limit")
    return body
