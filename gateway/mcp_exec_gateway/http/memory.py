"""Memory of requests and responses in flight, bounded for the whole process."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from mcp_exec_gateway.http.problems import unavailable

IN_FLIGHT_BYTES: Final = 128 * 1024 * 1024
"""A quarter of the memory limit of a gateway's container."""
NAMESPACE_BYTES: Final = 96 * 1024 * 1024
"""The part that the requests of one namespace may use, so that none can use up the memory of all."""


@dataclass(kw_only=True, eq=False)
class Reservation:
    """Memory that one request has reserved."""

    budget: "MemoryBudget"
    namespace: str
    size: int = 0

    def resize(self, size: int) -> bool:
        """Reserve another size instead. Return False, and change nothing, if there is not enough memory."""
        if not self.budget.take(self.namespace, size - self.size):
            return False
        self.size = size
        return True

    def require(self, size: int) -> None:
        """Reserve another size instead. Raises HttpProblem, a 503, if there is not enough memory."""
        if not self.resize(size):
            raise unavailable(self.budget.explain(self.namespace))

    def release(self) -> None:
        """Reserve nothing more."""
        self.resize(0)


@dataclass(kw_only=True, eq=False)
class MemoryBudget:
    """Memory for bodies, code, context and output of all requests in flight. No request waits for memory."""

    limit: int = IN_FLIGHT_BYTES
    namespace_limit: int = NAMESPACE_BYTES
    used: int = field(default=0, init=False)
    _by_namespace: Counter[str] = field(default_factory=Counter, init=False)

    @contextmanager
    def reserving(self, namespace: str) -> Iterator[Reservation]:
        """Yield a reservation of nothing yet for a request in a namespace, and release it at the end."""
        reservation = Reservation(budget=self, namespace=namespace)
        try:
            yield reservation
        finally:
            reservation.release()

    def take(self, namespace: str, size: int) -> bool:
        """Take memory, or give it back if `size` is negative. Return False, and change nothing, if it is not there."""
        own = self._by_namespace[namespace] + size
        if size > 0 and (self.used + size > self.limit or own > self.namespace_limit):
            return False
        self.used += size
        self._by_namespace[namespace] = own
        if not own:
            del self._by_namespace[namespace]
        return True

    def explain(self, namespace: str) -> str:
        """Return how much memory is used, by all and by a namespace."""
        return (
            f"requests in flight use {self.used} of {self.limit} bytes of this replica's memory, and those of "
            f"namespace {namespace} {self._by_namespace[namespace]} of {self.namespace_limit}"
        )
