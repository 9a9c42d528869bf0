"""Key sets of issuers, which are fetched in the background. Nothing of a token decides where keys come from."""

import asyncio
import logging
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp
import jwt
from pydantic_core import from_json
from yarl import URL

from mcp_exec_common.access import HTTPS, OidcIssuer
from mcp_exec_common.peers import InvalidAnswer, read_answer
from mcp_exec_common.process.outgoing import build_client_tls
from mcp_exec_common.process.outgoing_client import OutgoingClient
from mcp_exec_common.util.backoff import delays
from mcp_exec_gateway.core.http.problems import unavailable

log = logging.getLogger(__name__)

_RSA: Final = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})
_CURVES: Final = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512", "Ed25519": "EdDSA"}
ALGORITHMS: Final = _RSA | frozenset(_CURVES.values())
"""Algorithms of signatures: those with public keys. `none` and HMAC are never accepted."""
_TYPES: Final = {"RSA": ("n", "e"), "EC": ("crv", "x", "y"), "OKP": ("crv", "x")}
"""Fields of a public key by its type."""
_MAX_FIELD: Final = 1400
"""Characters of a number: a modulus of 8,192 bits has 1,366."""
_MAX_EXPONENT: Final = 6
_MIN_RSA_BITS: Final = 2048
_MAX_KEYS: Final = 64
_MAX_BYTES: Final = 256 * 1024
_MAX_ADDRESS: Final = 512
_MAX_KEY_ID: Final = 256

_FETCH_SECONDS: Final = 10.0
_REFRESH_SECONDS: Final = 600.0
"""Interval of fetches if no token names an unknown key."""
_WAIT_SECONDS: Final = 5.0
"""Longest wait of a request for a fetch."""
_MAX_AGE_SECONDS: Final = 86_400.0
"""Keys of an issuer that has not been reached for so long are no longer used."""


@dataclass(frozen=True, kw_only=True)
class VerifyingKey:
    """A public key, and the algorithms that it may verify."""

    public: Any
    algorithms: frozenset[str]


def parse_key_set(document: Any) -> dict[str, VerifyingKey]:
    """Return the usable keys of a JWK set by their ids; the first one of an id counts.

    Keys for encryption, symmetric keys and keys without an id are skipped. Raises ValueError if none is left.
    """
    listed = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(listed, list) or len(listed) > _MAX_KEYS:
        raise ValueError(f"the key set has no list `keys` of at most {_MAX_KEYS} keys")
    found: dict[str, VerifyingKey] = {}
    for jwk in listed:
        key_id = jwk.get("kid") if isinstance(jwk, dict) else None
        if isinstance(key_id, str) and 0 < len(key_id) <= _MAX_KEY_ID and (key := _parse_key(jwk)) is not None:
            found.setdefault(key_id, key)
    if not found:
        raise ValueError("the key set has no key with an id for signatures by RSA, ECDSA or Ed25519")
    return found


def _parse_key(jwk: Mapping[str, Any]) -> VerifyingKey | None:
    kind = jwk.get("kty")
    if not isinstance(kind, str) or kind not in _TYPES or jwk.get("use", "sig") != "sig":
        return None
    # only the public numbers, bounded: what a library does with huge ones takes minutes
    numbers = {name: jwk.get(name) for name in _TYPES[kind]}
    if any(not isinstance(each, str) or len(each) > _MAX_FIELD for each in numbers.values()):
        return None
    if kind == "RSA":
        algorithms = _RSA if len(str(numbers["e"])) <= _MAX_EXPONENT else frozenset()
    else:
        algorithms = frozenset({_CURVES[str(numbers["crv"])]} if numbers["crv"] in _CURVES else ())
    if (named := jwk.get("alg")) is not None:
        algorithms &= {str(named)}
    if not algorithms:
        return None
    try:
        public = jwt.PyJWK({"kty": kind, **numbers}, algorithm=min(algorithms)).key
    except (jwt.PyJWTError, ValueError, TypeError):
        return None
    if kind == "RSA" and public.key_size < _MIN_RSA_BITS:
        return None
    return VerifyingKey(public=public, algorithms=algorithms)


@dataclass(kw_only=True, eq=False)
class KeySet:
    """The keys of one issuer as they were at the last fetch."""

    issuer: OidcIssuer
    on_change: Callable[[], None]
    """Called when keys have changed: what was verified with a removed one is no longer valid."""
    clock: Callable[[], float] = time.monotonic
    min_seconds: float = 30.0
    """Least time between two fetches for unknown key ids."""
    _keys: dict[str, VerifyingKey] = field(default_factory=dict, init=False)
    _document: Any = field(default=None, init=False)
    _fetched_at: float | None = field(default=None, init=False)
    _tried_at: float | None = field(default=None, init=False)
    _is_fetching: bool = field(default=False, init=False)
    _wanted: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _tried: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    """Set at the end of the present or next fetch, and replaced by another event then."""

    async def find(self, key_id: str) -> VerifyingKey | None:
        """Return the key with this id, or None. An unknown id leads to a fetch, if the last one was long enough ago.

        Raises HttpProblem, a 503, if the issuer's keys are not known.
        """
        if key_id not in self._keys and (self._is_fetching or self._is_due()):
            tried = self._tried
            self._wanted.set()
            try:
                async with asyncio.timeout(_WAIT_SECONDS):
                    await tried.wait()
            except TimeoutError:
                pass
        if not self._keys:
            raise unavailable(f"the keys of the issuer {self.issuer.alias} can't be read at the moment")
        return self._keys.get(key_id)

    def _is_due(self) -> bool:
        return self._tried_at is None or self.clock() >= self._tried_at + self.min_seconds

    async def follow(self, client: OutgoingClient) -> None:
        """Fetch the keys again and again, for ever. An error is logged, and the last keys stay in use for a day."""
        pauses, problem = _pauses(), ""
        while True:
            self._is_fetching = True
            try:
                async with asyncio.timeout(_FETCH_SECONDS):
                    self._replace(await fetch_key_set(client, self.issuer))
                pauses, pause, problem = _pauses(), _REFRESH_SECONDS, ""
            except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
                pause, text = next(pauses), f"{type(error).__name__} {error}"
                if text != problem:
                    problem = text
                    log.warning("the keys of the issuer %s can't be read: %s", self.issuer.alias, text[:500])
                self._drop_old()
            self._is_fetching, self._tried_at = False, self.clock()
            self._tried.set()
            self._tried = asyncio.Event()
            self._wanted.clear()
            try:
                async with asyncio.timeout(pause):
                    await self._wanted.wait()
            except TimeoutError:
                pass

    def _replace(self, document: Any) -> None:
        keys = parse_key_set(document)
        self._fetched_at = self.clock()
        if document != self._document:
            self._keys, self._document = keys, document
            log.info("the issuer %s has %d keys", self.issuer.alias, len(keys))
            self.on_change()

    def _drop_old(self) -> None:
        if self._keys and self._fetched_at is not None and self.clock() > self._fetched_at + _MAX_AGE_SECONDS:
            self._keys, self._document = {}, None
            self.on_change()


async def fetch_key_set(client: OutgoingClient, issuer: OidcIssuer) -> Any:
    """Return the JWK set of an issuer as its address serves it.

    Raises ValueError for an answer that is not one, and errors of aiohttp.
    """
    tls = None
    if issuer.ca:
        tls = await asyncio.to_thread(build_client_tls, *client.network.bundles, issuer.ca)
    url: Any = issuer.jwks_url
    if not url:
        document = await _read_json(client, f"{issuer.url.rstrip('/')}/.well-known/openid-configuration", tls)
        named = document.get("issuer") if isinstance(document, dict) else None
        if named != issuer.url:
            raise ValueError(f"the discovery document is that of the issuer {str(named)[:200]!r}, not of {issuer.url}")
        url = document.get("jwks_uri")
        if not isinstance(url, str) or len(url) > _MAX_ADDRESS or HTTPS.fullmatch(url) is None:
            raise ValueError(f"jwks_uri is {str(url)[:200]!r}; it must be an address with https://")
    return await _read_json(client, url, tls)


async def _read_json(client: OutgoingClient, url: str, tls: ssl.SSLContext | None) -> Any:
    headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
    async with await client.request("GET", URL(url), tls=tls, headers=headers) as response:
        if response.status != 200:
            raise ValueError(f"{url} answers {response.status}; it must answer 200, without a redirect")
        try:
            content = await read_answer(response, limit=_MAX_BYTES)
        except InvalidAnswer as error:
            raise ValueError(f"{url}: {error}") from error
    return from_json(content, allow_inf_nan=False)


def _pauses() -> Iterator[float]:
    return delays(first=1.0, last=60.0)
