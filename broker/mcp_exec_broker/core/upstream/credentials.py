"""Credentials of MCP servers, from the Secrets that ToolServers name, and OAuth tokens for them.

A Secret is read when it is needed, again after a few seconds, and at once after a server rejected its credentials.
Access tokens come from OAuth 2.0 client credentials (RFC 6749, 4.4) and are cached until shortly before they expire.
"""

import asyncio
import base64
import binascii
import hashlib
import json
import logging
import re
import ssl
from base64 import b64encode
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from math import inf
from time import monotonic
from typing import Any, Final
from urllib.parse import quote_plus

import aiohttp
from cachetools import LRUCache
from yarl import URL

from mcp_exec_api.reasons.server import ServerReason
from mcp_exec_api.tool_server import ClientCredentials, SecretKey, ToolServerSpec
from mcp_exec_broker.core.upstream.addresses import explain_connection_error
from mcp_exec_common.kube.client import KubeClient, resource_path
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.objects import Object, describe_release_secret, is_release_secret
from mcp_exec_common.kube.reflector import ObjectKey
from mcp_exec_common.peers import InvalidAnswer, read_answer
from mcp_exec_common.process.outgoing_client import CONNECTION_ERRORS, OutgoingClient

log = logging.getLogger(__name__)

READ_SECONDS: Final = 5.0
"""Time limit of reading a Secret or a ConfigMap."""
_SECRET_KEY: Final = re.compile(r"[-._a-zA-Z0-9]{1,253}")
_ENCODED_PREFIX: Final = "base64-"
MIN_SECRET_LENGTH: Final = 6
"""Minimum characters of a value that is redacted in answers: shorter ones are words rather than secrets."""
_MAX_TOKENS: Final = 512
_EXPIRY_MARGIN: Final = 0.1
"""Last part of a token's lifetime. The token is not used then, so that none expires in transit."""
_DEFAULT_SECONDS: Final = 3600.0
_MAX_SECONDS: Final = 1e9
"""Longest lifetime. A token endpoint may send integers that no float can hold."""
_MAX_TOKEN: Final = 16_384
_TOKEN: Final = re.compile(rf"[\x21-\x7e]{{1,{_MAX_TOKEN}}}")
_WORD: Final = re.compile(r"[A-Za-z][A-Za-z_-]{0,39}")
"""Codes of errors and types of tokens that are shown. Other texts may repeat the credentials, encoded or in part."""
_MAX_RESPONSE_BYTES: Final = 256 * 1024
_TIMEOUT: Final = aiohttp.ClientTimeout(total=10, sock_connect=5)


class CredentialsMissing(Exception):
    """A Secret, or a key in it, is missing. `reason` is one word; the text names both but contains no value."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class UserUnknown(Exception):
    """The server requires credentials of the execution's user, and there are none."""


@dataclass(frozen=True, kw_only=True)
class OAuthClient:
    """Client credentials for the token endpoint."""

    token_url: str
    client_id: str
    client_secret: str = field(repr=False)
    scopes: tuple[str, ...]
    tls: ssl.SSLContext | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, kw_only=True)
class UpstreamCredentials:
    """Credentials of one session, which are never logged."""

    headers: dict[str, str] = field(default_factory=dict, repr=False)
    oauth: OAuthClient | None = None
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    """What the server's certificate is verified by; None means what the broker trusts."""
    secrets: frozenset[str] = field(default=frozenset(), repr=False)
    """Values that no answer may contain."""
    version: str = ""
    """Digest of the credentials."""


def encode_user_key(user: str) -> str:
    """Return the key of a user in a Secret: the name, or `base64-` and its URL-safe Base64 if it is no valid key."""
    if _SECRET_KEY.fullmatch(user) and not user.startswith(_ENCODED_PREFIX):
        return user
    return _ENCODED_PREFIX + base64.urlsafe_b64encode(user.encode("utf-8", "surrogatepass")).decode().rstrip("=")


def list_secret_names(spec: ToolServerSpec) -> set[str]:
    """Return the names of all Secrets in the server's credentials or environment."""
    names = {header.secret_key_ref.name for header in spec.headers if header.secret_key_ref is not None}
    names |= {header.secret_name for header in spec.user_headers}
    names |= {reference.name for reference in _list_environment(spec)}
    return names | ({spec.oauth.client_id.name, spec.oauth.client_secret.name} if spec.oauth else set())


@dataclass(kw_only=True)
class _CachedSecret:
    """A Secret as it was last read."""

    data: Object | None = field(default=None, repr=False)
    """None if the Secret does not exist."""
    refused: bool = False
    """Whether it holds keys of a release."""
    read_at: float = -inf
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass(kw_only=True, eq=False)
class SecretCache:
    """Cache of Secrets, each read by its name: the broker has no permission to list them."""

    kube: KubeClient
    release_secrets: frozenset[str] = frozenset()
    """Names of the release's own Secrets, which are never given to a server."""
    fresh_seconds: float = 5.0
    """Seconds until a Secret is read again."""
    _cached: dict[ObjectKey, _CachedSecret] = field(default_factory=dict)

    def retain(self, keys: Collection[ObjectKey]) -> None:
        """Drop all Secrets but these."""
        for key in self._cached.keys() - set(keys):
            del self._cached[key]

    def expire(self, keys: Collection[ObjectKey]) -> None:
        """Read these Secrets again at their next use."""
        for key in keys:
            if (secret := self._cached.get(key)) is not None:
                secret.read_at = -inf

    async def get_data(self, namespace: str, name: str) -> Object:
        """Return the Secret's data in Base64. Raises CredentialsMissing."""
        secret = self._cached.setdefault((namespace, name), _CachedSecret())
        if secret.read_at + self.fresh_seconds < monotonic():
            async with secret.lock:
                if secret.read_at + self.fresh_seconds < monotonic():
                    await self._read(secret, namespace, name)
        if secret.refused:
            raise CredentialsMissing(ServerReason.SECRET_OF_RELEASE, describe_release_secret(name))
        if secret.data is None:
            raise CredentialsMissing(ServerReason.SECRET_NOT_FOUND, f"there is no Secret {name}")
        return secret.data

    async def get_value(self, namespace: str, reference: SecretKey) -> str:
        """Return one value without surrounding white space. Raises CredentialsMissing."""
        return _decode(await self.get_data(namespace, reference.name), reference.name, reference.key)

    async def _read(self, secret: _CachedSecret, namespace: str, name: str) -> None:
        try:
            async with asyncio.timeout(READ_SECONDS):
                item = await self.kube.get(resource_path("secrets", namespace=namespace, name=name))
            secret.refused = is_release_secret(item, self.release_secrets)
            secret.data = None if secret.refused else item.get("data") or {}
        except (ApiError, TimeoutError) as error:
            if isinstance(error, ApiError) and error.code == 404:
                secret.data, secret.refused = None, False
            elif secret.data is None:
                message = f"Secret {name} can't be read: {error}"
                raise CredentialsMissing(ServerReason.SECRET_UNREADABLE, message) from None
            else:  # the last data stays in use while the API server is unavailable
                log.warning("cannot read a Secret again: %s", error, extra={"namespace": namespace, "secret": name})
        secret.read_at = monotonic()


async def read_credentials(
    secrets: SecretCache, spec: ToolServerSpec, *, namespace: str, user: str | None
) -> UpstreamCredentials:
    """Return the credentials for calls on behalf of a user, or without a user those for listing tools.

    Raises CredentialsMissing and UserUnknown.
    """
    headers: dict[str, str] = {}
    values: set[str] = set()
    for header in spec.headers:
        if header.secret_key_ref is None:
            headers[header.name] = (header.prefix or "") + (header.value or "")
            continue
        value = await secrets.get_value(namespace, header.secret_key_ref)
        headers[header.name] = (header.prefix or "") + value
        values.add(value)
    if user is not None:
        for user_header in spec.user_headers:
            data = await secrets.get_data(namespace, user_header.secret_name)
            key = encode_user_key(user)
            if key not in data:
                raise UserUnknown(f"there are no credentials for {user!r}")
            value = _decode(data, user_header.secret_name, key)
            headers[user_header.name] = (user_header.prefix or "") + value
            values.add(value)
    oauth = await _read_oauth_client(secrets, spec.oauth, namespace) if spec.oauth else None
    if oauth:
        values.add(oauth.client_secret)
    parts = [sorted(headers.items()), oauth and [oauth.token_url, oauth.client_id, oauth.client_secret, *oauth.scopes]]
    return UpstreamCredentials(
        headers=headers,
        oauth=oauth,
        secrets=_filter_redactable(values),
        version=hashlib.sha256(json.dumps(parts).encode()).hexdigest(),
    )


def with_authorities(
    credentials: UpstreamCredentials, tls: ssl.SSLContext | None, *, version: str
) -> UpstreamCredentials:
    """Return the credentials for a server, and a token endpoint, of authorities with this version."""
    oauth = replace(credentials.oauth, tls=tls) if credentials.oauth else None
    return replace(credentials, oauth=oauth, tls=tls, version=f"{credentials.version} {version}")


async def read_environment_secrets(secrets: SecretCache, spec: ToolServerSpec, *, namespace: str) -> frozenset[str]:
    """Return the Secrets in the environment of a stdio server, which the operator set: no answer may contain them.

    Missing Secrets are skipped. Raises CredentialsMissing if a Secret cannot be read.
    """
    values: set[str] = set()
    for reference in _list_environment(spec):
        try:
            data = await secrets.get_data(namespace, reference.name)
        except CredentialsMissing as error:
            if error.reason != ServerReason.SECRET_NOT_FOUND:
                raise
            continue
        value = base64.b64decode(data.get(reference.key, "")).decode(errors="replace").strip()
        # variables may contain whole files, and a server may answer with their JSON form
        values |= {value, json.dumps(value)[1:-1]}
    return _filter_redactable(values)


def _list_environment(spec: ToolServerSpec) -> list[SecretKey]:
    variables = spec.stdio.env if spec.stdio is not None else []
    return [variable.secret_key_ref for variable in variables if variable.secret_key_ref is not None]


def _filter_redactable(values: Collection[str]) -> frozenset[str]:
    return frozenset(value for value in values if len(value) >= MIN_SECRET_LENGTH)


async def _read_oauth_client(secrets: SecretCache, spec: ClientCredentials, namespace: str) -> OAuthClient:
    return OAuthClient(
        token_url=spec.token_url,
        client_id=await secrets.get_value(namespace, spec.client_id),
        client_secret=await secrets.get_value(namespace, spec.client_secret),
        scopes=tuple(spec.scopes),
    )


def _decode(data: Object, name: str, key: str) -> str:
    if key not in data:
        raise CredentialsMissing(ServerReason.SECRET_KEY_NOT_FOUND, f"Secret {name} has no key {key}")
    try:
        value = base64.b64decode(data[key], validate=True).decode().strip()
    except (binascii.Error, ValueError):
        raise CredentialsMissing(ServerReason.SECRET_UNREADABLE, f"key {key} of Secret {name} is not text") from None
    if any(ord(character) < 32 or ord(character) == 127 for character in value):
        message = f"key {key} of Secret {name} contains control characters"
        raise CredentialsMissing(ServerReason.SECRET_UNREADABLE, message)
    return value


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

    client: OutgoingClient
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
            async with await self.client.request(
                "POST",
                URL(client.token_url),
                tls=client.tls,
                data=form,
                headers={"Accept": "application/json", "Accept-Encoding": "identity", **headers},
                timeout=_TIMEOUT,
            ) as response:
                body = await read_answer(response, limit=_MAX_RESPONSE_BYTES)
                answer = json.loads(body) if body.lstrip()[:1] == b"{" else {}
        except CONNECTION_ERRORS as error:
            reason, message = explain_connection_error(error)
            raise TokenRefused(f"the token endpoint cannot be reached: {message}", reason) from None
        except TimeoutError:
            raise TokenRefused(f"the token endpoint does not answer within {_TIMEOUT.total:g} s") from None
        except (InvalidAnswer, ValueError, RecursionError):
            raise TokenRefused("the token endpoint does not answer with a JSON object of 256 KiB or less") from None
        except (aiohttp.ClientError, OSError):
            raise TokenRefused("the token endpoint closed the connection before it answered") from None
        return response.status, answer if isinstance(answer, dict) else {}


def _read_word(value: object) -> str:
    return value if isinstance(value, str) and _WORD.fullmatch(value) else ""
