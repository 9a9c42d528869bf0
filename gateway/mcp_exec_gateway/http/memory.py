"""Memory of requests and responses in flight, bounded for the whole process."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from mcp_exec_gateway.http.problems import unavailable

IN_FLIGHT_BYTES: Final = 128 * 1024 * 1024
"""A quarter of the memory limit of a gateway's container."""


@dataclass(kw_only=True, eq=False)
class Reservation:
    """Memory that one request has reserved."""

    budget: "MemoryBudget"
    size: int = 0

    def resize(self, size: int) -> bool:
        """Reserve another size instead. Return False, and change nothing, if there is not enough memory."""
        if size > self.size and self.budget.used + size - self.size > self.budget.limit:
            return False
        self.budget.used += size - self.size
        self.size = size
        return True

    def require(self, size: int) -> None:
        """Reserve another size instead. Raises HttpProblem, a 503, if there is not enough memory."""
        if not self.resize(size):
            detail = f"requests in flight use {self.budget.used} of {self.budget.limit} bytes of this replica's memory"
            raise unavailable(detail)

    def release(self) -> None:
        """Reserve nothing more."""
        self.resize(0)


@dataclass(kw_only=True, eq=False)
class MemoryBudget:
    """Memory for bodies, code, context and output of all requests in flight. No request waits for memory."""

    limit: int = IN_FLIGHT_BYTES
    used: int = field(default=0, init=False)

    @contextmanager
    def reserving(self) -> Iterator[Reservation]:
        """Yield a reservation of nothing yet, and release it at the end."""
        reservation = Reservation(budget=self)
        try:
            yield reservation
        finally:
            reservation.release()
