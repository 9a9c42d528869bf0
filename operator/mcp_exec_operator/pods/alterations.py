"""Pods of a pool that somebody has altered since the operator made them. No I/O."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import Final

from mcp_exec_common.kube.objects import Object
from mcp_exec_operator.pods.cache import Pod, PodState
from mcp_exec_operator.pods.integrity import ChangeableParts, find_alterations

log = logging.getLogger(__name__)

_REPORT_SECONDS: Final = 600.0
"""How long the pool's condition names an altered pod, which itself is deleted at once."""
_MAX_PODS: Final = 16
"""Altered pods that a pool names."""


@dataclass(kw_only=True, eq=False)
class Alterations:
    """What was changed in pods of one pool."""

    pool: str
    clock: Callable[[], float] = monotonic
    _found: dict[str, tuple[tuple[str, ...], float]] = field(default_factory=dict)
    """By the name of the pod, the changed fields and when they were found."""

    def inspect(self, pod: Pod, item: Object) -> bool:
        """Return whether a pod is as it was when it was verified or first seen. Costs a few comparisons."""
        if pod.state is PodState.TERMINATING:
            return True
        parts, before = ChangeableParts.of(item), pod.parts
        changed = find_alterations(before, parts) if before is not None else ()
        if changed:
            self.note(pod, changed)
            return False
        pod.parts = parts  # which frees the older object
        return True

    def note(self, pod: Pod, changed: tuple[str, ...]) -> None:
        """Record that a pod was altered. It is never used again."""
        pod.verified = False
        fields = {"pool": self.pool, "pod": pod.name}
        log.warning("pod %s is deleted, because somebody changed %s", pod.name, ", ".join(changed), extra=fields)
        if len(self._found) < _MAX_PODS or pod.name in self._found:
            self._found[pod.name] = changed, self.clock()

    def expire(self, now: float) -> float | None:
        """Drop what was reported for long enough. Return the time at which the next report ends, or None."""
        self._found = {name: each for name, each in self._found.items() if each[1] + _REPORT_SECONDS > now}
        return min((at + _REPORT_SECONDS for _, at in self._found.values()), default=None)

    def describe(self) -> str:
        """Return the altered pods and their fields, or an empty text."""
        return "; ".join(f"{name}: {', '.join(changed)}" for name, (changed, _) in sorted(self._found.items()))
