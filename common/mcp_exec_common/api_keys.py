"""What a Secret holds of each API key: its digest, namespace and limits. And how a key and its digest are made."""

import argparse
import base64
import hashlib
import re
import secrets
from typing import Annotated, Final, Self

from pydantic import AwareDatetime, Field, ValidationError

from mcp_exec_api.meta import Model, explain_errors, now
from mcp_exec_api.wire.stats import KeyLimits

KEY_PREFIX: Final = "mcpx_"
KEY_NAME: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_RESERVED: Final = ("system.", "k8s.", "oidc.")
"""Beginnings of the labels of ServiceAccounts, of other accounts of Kubernetes, and of people."""
_Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class FormerKey(Model):
    """The key that another one has replaced."""

    sha256: _Digest
    """SHA-256 digest of the key, in lower-case hexadecimal."""
    expires_at: AwareDatetime
    """The former key is refused from this time on."""


class KeyEntry(Model):
    """One entry of the Secret. Its key in the Secret's data is the API key's name."""

    sha256: _Digest
    """SHA-256 digest of the API key, in lower-case hexadecimal."""
    namespace: Annotated[str, Field(min_length=1)]
    """Namespace of everything that the API key reads and runs."""
    limits: KeyLimits = KeyLimits()
    """Limits of the API key."""
    approver: bool = False
    """Whether the API key may decide on approvals."""
    expires_at: AwareDatetime | None = None
    """The key is refused from this time on; by default it never expires."""
    description: Annotated[str | None, Field(max_length=200)] = None
    """What the key is for."""
    created_at: AwareDatetime | None = None
    """Time of its creation."""
    former: FormerKey | None = None
    """The key of this name that this one has replaced, as long as it is accepted, too."""

    @classmethod
    def parse(cls, encoded: str | None) -> Self:
        """Return the entry that the Secret's data has in Base64. Raises ValueError, which names all that is wrong."""
        try:
            return cls.model_validate_json(base64.b64decode(encoded or ""), strict=True)
        except ValidationError as error:
            raise ValueError(explain_errors(error, cls)) from None


def check_key_name(name: str) -> None:
    """Raise ValueError if an API key cannot have this name: it must be a label value and not that of another caller."""
    if not KEY_NAME.fullmatch(name):
        raise ValueError(f"invalid name {name!r}: use up to 63 letters, digits, '-', '_' and '.'")
    if name.startswith(_RESERVED):
        reserved = ", ".join(f"'{prefix}'" for prefix in _RESERVED)
        raise ValueError(f"invalid name {name!r}: names that start with {reserved} are reserved for other callers")


def generate_key() -> str:
    """Return a new API key of 256 random bits."""
    return KEY_PREFIX + secrets.token_urlsafe(32)


def digest_key(key: str) -> str:
    """Return the digest that is stored of an API key."""
    return hashlib.sha256(key.encode()).hexdigest()


def build_entry(arguments: argparse.Namespace, key: str) -> KeyEntry:
    """Return the entry of a new key by the parsed options.

    Raises ValueError for a wrong name, and ValidationError for another option.
    """
    check_key_name(arguments.name)
    limits = KeyLimits(
        max_concurrent=arguments.max_concurrent,
        max_stored=arguments.max_stored,
        max_stored_bytes=arguments.max_stored_bytes,
        requests_per_minute=arguments.requests_per_minute,
        direct_calls_per_minute=arguments.direct_calls_per_minute,
        max_waits=arguments.max_waits,
        max_streams=arguments.max_streams,
        max_sessions=arguments.max_sessions,
        max_workspaces=arguments.max_workspaces,
        max_timeout_seconds=arguments.max_timeout_seconds,
        pools=arguments.pools,
        max_priority=arguments.max_priority,
        tools=arguments.tools,
        users=arguments.users,
        own=arguments.own,
    )
    created_at = now().replace(microsecond=0)
    return KeyEntry(
        sha256=digest_key(key),
        namespace=arguments.namespace,
        limits=limits,
        approver=arguments.approver,
        expires_at=None if arguments.valid_days is None else created_at + arguments.valid_days,
        description=arguments.description,
        created_at=created_at,
    )
