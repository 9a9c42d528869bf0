"""Tokens of identity providers, which the gateway verifies by the keys of their issuers."""

import base64
import hashlib
import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

import jwt
from cachetools import TLRUCache
from pydantic_core import from_json

from mcp_exec_common.access import OIDC_PREFIX, OidcIssuer
from mcp_exec_gateway.features.signin.key_sets import ALGORITHMS, KeySet

log = logging.getLogger(__name__)

_MAX_CHARACTERS: Final = 16_384
_MAX_SUBJECT: Final = 200
"""Characters. The name of a caller with its prefixes fits a decision on an approval."""
_MAX_VALID: Final = 8192
_REQUIRED: Final = ("iss", "aud", "exp", "sub")
_TYPES: Final = frozenset({"jwt", "at+jwt"})
"""Values of `typ`, in small letters (RFC 9068, and what providers write that do not follow it)."""
_OTHER_USES: Final = {
    "events": "it is a security event (RFC 8417)",
    "cnf": "it is bound to a key of its client (RFC 7800), which a bearer does not prove",
}
"""Claims of tokens that are for something else than access by their bearer."""


@dataclass(frozen=True, kw_only=True)
class Person:
    """The person of a token."""

    alias: str
    username: str
    groups: tuple[str, ...]
    scopes: frozenset[str] | None
    """None if scopes do not narrow what the person may do."""
    expires: float
    """Unix time of the token's end."""
    asked_scopes: tuple[str, ...] = ()
    """Scopes that clients ask for, by the provider's names."""

    @property
    def name(self) -> str:
        """Name of the caller."""
        return f"{OIDC_PREFIX}{self.alias}/{self.username}"

    @property
    def rule_name(self) -> str:
        """The name with its kind."""
        return self.name

    @property
    def rule_groups(self) -> tuple[str, ...]:
        """Groups with their kind, as rules have them."""
        return tuple(f"{OIDC_PREFIX}{self.alias}/{group}" for group in self.groups)

    def name_scope(self, scope: str) -> str:
        """Return the name by which a client asks for a scope: Entra ID's tokens have the last part of it only."""
        return next((each for each in self.asked_scopes if each.rpartition("/")[2] == scope), scope)


def read_unverified(token: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return header and claims of a JSON Web Token. Nothing is verified.

    Raises ValueError if the text is no such token, is too large, or has a name twice.
    """
    parts = token.split(".", 3) if len(token) <= _MAX_CHARACTERS else []
    if len(parts) != 3:
        raise ValueError("not a JSON Web Token")
    return _read_object(parts[0]), _read_object(parts[1])


def _read_object(part: str) -> dict[str, Any]:
    content = base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
    from_json(content)  # the standard library's parser has no limit of depth in all threads
    found = json.loads(content, object_pairs_hook=_collect)
    if not isinstance(found, dict):
        raise ValueError("not an object")
    return found


def _collect(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands twice in one object, and readers may take either")
    return found


@dataclass(kw_only=True, eq=False)
class OidcTokens:
    """Verifies tokens of the issuers, each by the keys of its own issuer only."""

    narrows: bool = False
    """Whether scopes narrow what the person may do."""
    scopes: tuple[str, ...] = ()
    """Scopes that clients ask for."""
    clock: Callable[[], float] = time.time
    key_sets: Mapping[str, KeySet] = field(default_factory=dict, init=False)
    """By the URL of their issuers."""
    _valid: TLRUCache[bytes, Person] = field(init=False)
    """By the digests of their tokens."""

    @classmethod
    def create(
        cls,
        issuers: Sequence[OidcIssuer],
        *,
        narrows: bool,
        scopes: tuple[str, ...] = (),
        clock: Callable[[], float] = time.time,
    ) -> Self:
        """Create it for these issuers. Nothing is fetched yet."""
        tokens = cls(clock=clock, narrows=narrows, scopes=scopes)
        tokens.key_sets = {each.url: KeySet(issuer=each, on_change=tokens._valid.clear) for each in issuers}
        return tokens

    def __post_init__(self) -> None:
        self._valid = TLRUCache(_MAX_VALID, ttu=lambda digest, person, moment: person.expires, timer=self.clock)

    def accepts(self, token: str) -> bool:
        """Return whether the token states that it is of one of the issuers."""
        return self.is_known(token) or self._find_key_set(token) is not None

    def is_known(self, token: str) -> bool:
        """Return whether the token was found valid and has not expired."""
        return _digest(token) in self._valid

    async def find_user(self, token: str) -> Person | None:
        """Return whose token it is, or None if it is invalid.

        Raises HttpProblem, a 503, if the issuer's keys are not known.
        """
        digest = _digest(token)
        if (known := self._valid.get(digest)) is not None:
            return known
        if (key_set := self._find_key_set(token)) is None:
            return None
        issuer = key_set.issuer
        try:
            claims = await self._verify(token, key_set)
            person = read_person(claims, issuer, narrows=self.narrows, asked_scopes=self.scopes)
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError) as error:
            log.info("a token of the issuer %s is refused: %s", issuer.alias, str(error)[:200])
            return None
        self._valid[digest] = person
        return person

    async def _verify(self, token: str, key_set: KeySet) -> dict[str, Any]:
        header, claimed = read_unverified(token)
        algorithm, key_id = header.get("alg"), header.get("kid")
        if not isinstance(algorithm, str) or algorithm not in ALGORITHMS or not isinstance(key_id, str):
            raise ValueError(f"alg is {str(algorithm)[:20]!r}; kid and an algorithm with a public key are needed")
        check_use(header, claimed)
        key = await key_set.find(key_id)
        if key is None or algorithm not in key.algorithms:
            raise ValueError(f"the issuer has no key {key_id[:64]!r} for {algorithm}")
        claims: dict[str, Any] = jwt.decode(
            token,
            key.public,
            algorithms=[algorithm],
            audience=key_set.issuer.audience,
            issuer=key_set.issuer.url,
            leeway=key_set.issuer.clock_skew_seconds,
            options={"require": list(_REQUIRED)},
        )
        return claims

    def _find_key_set(self, token: str) -> KeySet | None:
        try:
            named = read_unverified(token)[1].get("iss")
        except ValueError:
            return None
        return self.key_sets.get(named) if isinstance(named, str) else None


def check_use(header: Mapping[str, Any], claims: Mapping[str, Any]) -> None:
    """Raise ValueError for a token of an issuer that is for something else than access by its bearer.

    An ID token is refused by its audience: many providers give both kinds the same type.
    """
    named = header.get("typ", "JWT")
    if not isinstance(named, str) or named.lower().removeprefix("application/") not in _TYPES:
        raise ValueError(f"typ is {str(named)[:40]!r}; it must be JWT or at+jwt, or be left out")
    if (claim := next((each for each in _OTHER_USES if each in claims), None)) is not None:
        raise ValueError(f"the token has the claim {claim}: {_OTHER_USES[claim]}")


def read_person(
    claims: Mapping[str, Any], issuer: OidcIssuer, *, narrows: bool, asked_scopes: tuple[str, ...] = ()
) -> Person:
    """Return the person of verified claims. Raises ValueError if they name none."""
    username = claims.get(issuer.user_claim)
    if not isinstance(username, str) or not 0 < len(username) <= _MAX_SUBJECT or not username.isprintable():
        raise ValueError(f"{issuer.user_claim} must be a printable text of 1 to {_MAX_SUBJECT} characters")
    if issuer.user_claim == "email" and claims.get("email_verified") is not True:
        raise ValueError("email_verified is not true")
    return Person(
        alias=issuer.alias,
        username=username,
        groups=tuple(_list_texts(claims.get(issuer.groups_claim))),
        scopes=_read_scopes(claims) if narrows else None,
        expires=float(claims["exp"]),
        asked_scopes=asked_scopes,
    )


def _read_scopes(claims: Mapping[str, Any]) -> frozenset[str]:
    """Return the scopes of `scope` (RFC 9068), or of `scp` of other providers: a text with blanks, or a list."""
    named = _list_texts(claims.get("scope", claims.get("scp")))
    return frozenset(scope for text in named for scope in text.split())


def _list_texts(value: Any) -> list[str]:
    listed = value if isinstance(value, list) else [value]
    return [each for each in listed if isinstance(each, str)]


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="surrogatepass")).digest()
