"""What servers are called with, from Secrets alone. What changes there is used by the next call.

The Secrets that ToolServers name are read when they are needed, and again every few seconds, or when a server does
not take what they say.
"""

import asyncio
import base64
import binascii
import hashlib
import json
import logging
import re
from collections.abc import Collection
from dataclasses import dataclass, field
from math import inf
from time import monotonic
from typing import Final

from mcp_exec_api.tool_server import ClientCredentials, SecretKey, ToolServerSpec
from mcp_exec_common.kube.client import KubeClient, resource_path
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.reflector import ObjectKey

log = logging.getLogger(__name__)

_READ_SECONDS: Final = 5.0
_SECRET_KEY: Final = re.compile(r"[-._a-zA-Z0-9]{1,253}")
_ENCODED: Final = "base64-"
MIN_KNOWN: Final = 6
"""Characters from which on a value is looked for in answers: shorter ones are words, not secrets."""


class CredentialsMissing(Exception):
    """A Secret, or a key in it, is not there. `reason` is one word; the text names both, and no value."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class UserUnknown(Exception):
    """The server wants credentials of the execution's user, and there are none."""


@dataclass(frozen=True, kw_only=True)
class OAuthClient:
    """With what a token is asked for."""

    token_url: str
    client_id: str
    client_secret: str = field(repr=False)
    scopes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class UpstreamCredentials:
    """With what a server is called. Nothing of it is ever logged."""

    headers: dict[str, str] = field(default_factory=dict, repr=False)
    oauth: OAuthClient | None = None
    known: frozenset[str] = field(default=frozenset(), repr=False)
    """Values that no answer may have in it."""
    version: str = ""
    """What tells them from others; nothing can be learned from it."""


def encode_user_key(user: str) -> str:
    """The key of a user in a Secret: the name itself, or `base64-` and its URL-safe Base64 where a key can't be so."""
    if _SECRET_KEY.fullmatch(user) and not user.startswith(_ENCODED):
        return user
    return _ENCODED + base64.urlsafe_b64encode(user.encode("utf-8", "surrogatepass")).decode().rstrip("=")


def list_secret_names(spec: ToolServerSpec) -> set[str]:
    """The names of all Secrets whose values the server is called with, or has in its environment."""
    names = {header.secret_key_ref.name for header in spec.headers if header.secret_key_ref is not None}
    names |= {header.secret_name for header in spec.user_headers}
    names |= {at.name for at in _environment(spec)}
    return names | ({spec.oauth.client_id.name, spec.oauth.client_secret.name} if spec.oauth else set())


@dataclass(kw_only=True)
class _Copy:
    """A Secret as it was last read."""

    data: Object | None = field(default=None, repr=False)
    """None where there is no such Secret."""
    read_at: float = -inf
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass(kw_only=True, eq=False)
class SecretCache:
    """The Secrets in use, each read by its name: the broker may not list them."""

    kube: KubeClient
    fresh_seconds: float = 5.0
    """How long a copy is used without another look."""
    _copies: dict[ObjectKey, _Copy] = field(default_factory=dict)

    def keep(self, keys: Collection[ObjectKey]) -> None:
        """Forgets all but these."""
        for key in self._copies.keys() - set(keys):
            del self._copies[key]

    def expire(self, keys: Collection[ObjectKey]) -> None:
        """These may have changed: the next who asks gets them as they are then."""
        for key in keys:
            if (copy := self._copies.get(key)) is not None:
                copy.read_at = -inf

    async def data(self, namespace: str, name: str) -> Object:
        """The Secret's data, as Base64. Raises CredentialsMissing."""
        copy = self._copies.setdefault((namespace, name), _Copy())
        if copy.read_at + self.fresh_seconds < monotonic():
            async with copy.lock:
                if copy.read_at + self.fresh_seconds < monotonic():
                    await self._read(copy, namespace, name)
        if copy.data is None:
            raise CredentialsMissing("SecretNotFound", f"there is no Secret {name}")
        return copy.data

    async def value(self, namespace: str, at: SecretKey) -> str:
        """One value, without white space around it. Raises CredentialsMissing."""
        return _decoded(await self.data(namespace, at.name), at.name, at.key)

    async def _read(self, copy: _Copy, namespace: str, name: str) -> None:
        try:
            async with asyncio.timeout(_READ_SECONDS):
                found = await self.kube.get(resource_path("secrets", namespace=namespace, name=name))
            copy.data = found.get("data") or {}
        except (ApiError, TimeoutError) as error:
            if isinstance(error, ApiError) and error.code == 404:
                copy.data = None
            elif copy.data is None:
                raise CredentialsMissing("SecretUnreadable", f"Secret {name} can't be read: {error}") from None
            else:  # what was good is good enough while the API server is away
                log.warning("a Secret can't be read again: %s", error, extra={"namespace": namespace, "secret": name})
        copy.read_at = monotonic()


async def read_credentials(
    secrets: SecretCache, spec: ToolServerSpec, *, namespace: str, user: str | None
) -> UpstreamCredentials:
    """What a server is called with on behalf of a user; without one, what it is asked for its tools with.

    Raises CredentialsMissing and UserUnknown.
    """
    headers: dict[str, str] = {}
    known: set[str] = set()
    for header in spec.headers:
        if header.secret_key_ref is None:
            headers[header.name] = (header.prefix or "") + (header.value or "")
            continue
        value = await secrets.value(namespace, header.secret_key_ref)
        headers[header.name] = (header.prefix or "") + value
        known.add(value)
    if user is not None:
        for each in spec.user_headers:
            data = await secrets.data(namespace, each.secret_name)
            key = encode_user_key(user)
            if key not in data:
                raise UserUnknown(f"there are no credentials for {user!r}")
            value = _decoded(data, each.secret_name, key)
            headers[each.name] = (each.prefix or "") + value
            known.add(value)
    oauth = await _oauth(secrets, spec.oauth, namespace) if spec.oauth else None
    if oauth:
        known.add(oauth.client_secret)
    parts = [sorted(headers.items()), oauth and [oauth.token_url, oauth.client_id, oauth.client_secret, *oauth.scopes]]
    return UpstreamCredentials(
        headers=headers,
        oauth=oauth,
        known=_tellable(known),
        version=hashlib.sha256(json.dumps(parts).encode()).hexdigest(),
    )


async def read_environment_secrets(secrets: SecretCache, spec: ToolServerSpec, *, namespace: str) -> frozenset[str]:
    """What a stdio server has from Secrets in its environment, which is the operator's doing: no answer may have it.

    What is not there can't be told, and is no hindrance. Raises CredentialsMissing where a Secret can't be read.
    """
    found: set[str] = set()
    for at in _environment(spec):
        try:
            data = await secrets.data(namespace, at.name)
        except CredentialsMissing as error:
            if error.reason != "SecretNotFound":
                raise
            continue
        value = base64.b64decode(data.get(at.key, "")).decode(errors="replace").strip()
        # whole files are put into variables, and a server may tell them as JSON in a text
        found |= {value, json.dumps(value)[1:-1]}
    return _tellable(found)


def _environment(spec: ToolServerSpec) -> list[SecretKey]:
    variables = spec.stdio.env if spec.stdio is not None else []
    return [variable.secret_key_ref for variable in variables if variable.secret_key_ref is not None]


def _tellable(values: Collection[str]) -> frozenset[str]:
    return frozenset(value for value in values if len(value) >= MIN_KNOWN)


async def _oauth(secrets: SecretCache, spec: ClientCredentials, namespace: str) -> OAuthClient:
    return OAuthClient(
        token_url=spec.token_url,
        client_id=await secrets.value(namespace, spec.client_id),
        client_secret=await secrets.value(namespace, spec.client_secret),
        scopes=tuple(spec.scopes),
    )


def _decoded(data: Object, name: str, key: str) -> str:
    if key not in data:
        raise CredentialsMissing("SecretKeyNotFound", f"Secret {name} has no key {key}")
    try:
        value = base64.b64decode(data[key], validate=True).decode().strip()
    except (binascii.Error, ValueError):
        raise CredentialsMissing("SecretUnreadable", f"key {key} of Secret {name} is no text") from None
    if any(ord(character) < 32 or ord(character) == 127 for character in value):
        raise CredentialsMissing("SecretUnreadable", f"key {key} of Secret {name} has control characters in it")
    return value
