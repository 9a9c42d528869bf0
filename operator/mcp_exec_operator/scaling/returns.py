"""Waiting executions that get a pod of their owner before a new one could be ready, so that none is created. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from mcp_exec_operator.pods.cache import Pod

_SHORT_WAIT_SECONDS: Final = 0.25
"""Wait for which no pod is created: no sandbox starts faster."""
_WEIGHT: Final = 0.1
"""Weight of the newest time in the mean."""


@dataclass(kw_only=True)
class UseTime:
    """Moving mean of the time for which an execution has a pod that is used again: to its end, and until it is clean.

    Times are seconds of a monotonic clock.
    """

    mean: float | None = None

    def add(self, seconds: float) -> None:
        """Record one use."""
        self.mean = seconds if self.mean is None else self.mean + _WEIGHT * (seconds - self.mean)

    @property
    def uses_in_short_wait(self) -> int:
        """Executions that one pod serves in a short wait: none if uses take longer, and one if none was measured."""
        return int(_SHORT_WAIT_SECONDS / self.mean) if self.mean else 1


@dataclass(frozen=True, kw_only=True)
class Unserved:
    """Executions that need a pod which nobody has used."""

    number: int = 0
    until: float | None = None
    """When time alone may change the number, or None."""


def find_unserved(waiting: Mapping[str, int], busy: Iterable[Pod], *, use_time: UseTime, now: float) -> Unserved:
    """Return how many waiting executions no pod of their owner serves soon.

    A pod that is busy for longer than a short wait is not expected back. `waiting` has their numbers by the digest of
    their owner, which is empty if they need a new pod. `busy` are the pods that may be used again.
    """
    taken = [pod for pod in busy if pod.taken_by in waiting and now - pod.taken_at < _SHORT_WAIT_SECONDS]
    returning = Counter(pod.taken_by for pod in taken if pod.taken_by)
    number = sum(max(0, count - returning[owner] * use_time.uses_in_short_wait) for owner, count in waiting.items())
    oldest = min((pod.taken_at for pod in taken if pod.taken_by), default=None)
    return Unserved(number=number, until=None if oldest is None else oldest + _SHORT_WAIT_SECONDS)
