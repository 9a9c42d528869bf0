"""Grants of direct calls: those that the gateway makes for a caller, without an execution."""

from dataclasses import dataclass, field
from time import time
from typing import Final

from cachetools import LRUCache

from mcp_exec_broker.api.call_body import RequestRefused
from mcp_exec_common.broker.grants import MAX_DIRECT_SECONDS, DirectGrant, GrantError, GrantSigner

DIRECT_PATH: Final = "/v1/direct/calls"
_MAX_TOKEN: Final = 64 * 1024
_CACHED_CHARACTERS: Final = 8 * 1024 * 1024


@dataclass(kw_only=True, eq=False)
class DirectAuthenticator:
    """Authenticates the gateway's requests by their grants, and caches verified grants."""

    signer: GrantSigner
    _verified: LRUCache[str, tuple[DirectGrant, int]] = field(
        default_factory=lambda: LRUCache(_CACHED_CHARACTERS, getsizeof=lambda verified: verified[1])
    )
    """Grants with the length of their tokens."""

    def authenticate(self, header: bytes, *, peer: str) -> DirectGrant:
        """Return the grant in an Authorization header. Raises RequestRefused."""
        scheme, _, token = header.decode("latin-1").partition(" ")
        if scheme.lower() != "bearer" or not token or len(token) > _MAX_TOKEN:
            raise RequestRefused(401, "the request has no grant of direct calls: send Authorization: Bearer GRANT")
        verified = self._verified.get(token)
        if verified is None:
            verified = self._verified[token] = self._verify(token), len(token)
        if verified[0].expires <= time():
            self._verified.pop(token, None)
            raise RequestRefused(401, "the grant has expired")
        return verified[0]

    def _verify(self, token: str) -> DirectGrant:
        try:
            grant = self.signer.read_direct_grant(token)
        except GrantError as error:
            raise RequestRefused(401, str(error)) from None
        if grant.expires > time() + MAX_DIRECT_SECONDS:
            raise RequestRefused(401, f"the grant is valid for more than {MAX_DIRECT_SECONDS} s")
        return grant
