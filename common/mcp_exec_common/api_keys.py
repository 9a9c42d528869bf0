"""What a Secret holds of each API key: its digest, namespace and limits. And how a key and its digest are made."""

import hashlib
import secrets
from typing import Annotated, Final

from pydantic import AwareDatetime, Field

from mcp_exec_api.meta import Model
from mcp_exec_api.wire.stats import KeyLimits

KEY_PREFIX: Final = "mcpx_"


class KeyEntry(Model):
    """One entry of the Secret. Its key in the Secret's data is the API key's name."""

    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    """SHA-256 digest of the API key, in lower-case hexadecimal."""
    namespace: Annotated[str, Field(min_length=1)]
    """Namespace of everything that the API key reads and runs."""
    limits: KeyLimits = KeyLimits()
    """Limits of the API key."""
    approver: bool = False
    """Whether the API key may decide on approvals."""
    expires_at: AwareDatetime | None = None
    """The key is refused from this time on; by default it never expires."""


def generate_key() -> str:
    """Return a new API key of 256 random bits."""
    return KEY_PREFIX + secrets.token_urlsafe(32)


def digest_key(key: str) -> str:
    """Return the digest that is stored of an API key."""
    return hashlib.sha256(key.encode()).hexdigest()
