"""Slots for requests that stay open: waits and event streams."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from mcp_exec_gateway.http.problems import too_many


@dataclass(kw_only=True)
class RequestSlots:
    """Counter that limits the open requests of one kind, in total and for each holder."""

    kind: str
    """What is counted, in the plural: `event streams`."""
    max_total: int
    max_each: int
    """Maximum of one holder, unless it has a limit of its own."""
    retry_seconds: int = 5
    """Seconds after which a refused client should try again."""
    open: int = field(default=0, init=False)
    _by_holder: Counter[str] = field(default_factory=Counter, init=False)

    @contextmanager
    def hold(self, holder: str, *, limit: int | None = None) -> Iterator[None]:
        """Hold a slot. Raises HttpProblem if the holder, by its own limit if it has one, or the replica has no more."""
        allowed = self.max_each if limit is None else limit
        if self._by_holder[holder] >= allowed:
            detail = f"{holder} has {self._by_holder[holder]} open {self.kind}, and {allowed} are allowed"
            raise too_many(detail, retry_after=self.retry_seconds)
        if self.open >= self.max_total:
            detail = f"{self.open} {self.kind} are open, which is the limit of this replica"
            raise too_many(detail, retry_after=self.retry_seconds)
        self.open += 1
        self._by_holder[holder] += 1
        try:
            yield
        finally:
            self.open -= 1
            self._by_holder[holder] -= 1
            if not self._by_holder[holder]:
                del self._by_holder[holder]
