"""Grants that were verified, until a key changes."""

from collections.abc import Callable
from typing import Generic, TypeVar

from cachetools import LRUCache

from mcp_exec_common.sandbox_keys import SandboxKeys

G = TypeVar("G")


class VerifiedGrants(Generic[G]):
    """Cache of grants by their tokens. No other one is allowed: this one is empty after each change of the keys."""

    def __init__(
        self,
        *,
        keys: SandboxKeys,
        verify: Callable[[str], G],
        max_size: int,
        measure: Callable[[str, G], int] = lambda token, grant: 1,
    ) -> None:
        """`verify` returns the grant of a token or raises; `measure` returns what both take of `max_size`."""
        self._verify = verify
        self._measure = measure
        self._verified: LRUCache[str, tuple[G, int]] = LRUCache(max_size, getsizeof=lambda verified: verified[1])
        keys.changed.connect(self._verified.clear)

    def read(self, token: str) -> G:
        """Return the grant of a token. Raises what `verify` raises."""
        if (known := self._verified.get(token)) is not None:
            return known[0]
        grant = self._verify(token)
        self._verified[token] = grant, self._measure(token, grant)
        return grant

    def discard(self, token: str) -> None:
        """Discard the grant of a token, which has expired."""
        self._verified.pop(token, None)
