"""Places for requests that are answered at once. One namespace fills only a part of them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from mcp_exec_broker.access.limiters import FifoLimiter


@dataclass(kw_only=True, eq=False)
class SharedPlaces:
    """Places for requests. Waiting requests of one namespace never keep another namespace waiting."""

    total: int
    of_namespace: int
    """Places that one namespace may fill."""
    _all: FifoLimiter = field(default_factory=FifoLimiter)
    _namespaces: dict[str, FifoLimiter] = field(default_factory=dict)

    def __len__(self) -> int:
        """Return the number of namespaces that hold a place or wait for one."""
        return len(self._namespaces)

    @asynccontextmanager
    async def hold(self, namespace: str) -> AsyncIterator[None]:
        """Hold a place while the context is open, after a wait that the caller must limit."""
        own = self._namespaces.setdefault(namespace, FifoLimiter())
        await own.acquire(self.of_namespace)
        try:
            await self._all.acquire(self.total)
            try:
                yield
            finally:
                self._all.release(self.total)
        finally:
            own.release(self.of_namespace)
            if own.is_idle:
                self._namespaces.pop(namespace, None)
