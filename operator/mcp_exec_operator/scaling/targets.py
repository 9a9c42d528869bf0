"""How many pods should be warm, and how many to make or to end. Pure: all that is decided here is in the arguments."""

import math
from dataclasses import dataclass
from typing import Final

from mcp_exec_operator.pods.cache import PodCounts

MAX_COMING: Final = 10
"""Pods of a pool that may be on their way at a time, where its warm ones are not more: a crowd that waits for cold
starts must not flood the scheduler with pods that no node has room for."""


@dataclass(frozen=True, kw_only=True)
class DemandEstimate:
    """What is asked of a pool at a moment."""

    rate: float = 0.0
    """Executions a second that ask for a pod."""
    startup_seconds: float = 0.0
    """How long a pod takes until it is warm."""
    waiting: int = 0
    """Executions that wait for a pod."""
    headroom: int = 0
    """Pods beyond those that are expected to be asked for."""

    @property
    def expected(self) -> int:
        """Executions that arrive while a pod starts."""
        return math.ceil(self.rate * self.startup_seconds - 1e-9)

    @property
    def lasting(self) -> int:
        """Pods that are needed beside those for whoever waits now."""
        return self.expected + self.headroom if self.rate or self.waiting else 0

    @property
    def pods(self) -> int:
        """Pods that are needed."""
        return self.lasting + self.waiting

    def __str__(self) -> str:
        if not self.pods:
            return "nothing was asked for lately"
        parts = [f"{self.headroom} headroom"] if self.headroom else []
        parts += [f"{self.waiting} that wait"] if self.waiting else []
        if not self.rate:
            return " and ".join(parts)
        rate = f"{self.rate:g}/s arrive and a pod takes {self.startup_seconds:g} s to start: {self.expected}"
        return ", and ".join([rate, *parts])


@dataclass(frozen=True, kw_only=True)
class WarmPodBounds:
    """Between what the number of warm pods is chosen."""

    least: int
    """`warm.min`."""
    most: int
    """`warm.max`, at least `least`."""
    room: int
    """Pods that the pool may have beside those that are busy or end."""


@dataclass(frozen=True, kw_only=True)
class ScalingDecision:
    """How many pods should be warm or on their way, and why."""

    desired: int
    expected: int = 0
    """Those of them that are used while they are replaced, so that as many may be on their way."""
    limited: bool = False
    """Whether a bound keeps them fewer than are needed."""
    reason: str
    """Why, as one word for programs."""
    message: str
    """Why, as a sentence for people."""


def fixed(size: int) -> ScalingDecision:
    """The decision for a pool whose size is fixed."""
    return ScalingDecision(desired=size, reason="FixedSize", message=f"warm.min is {size}, and warm.max is not more")


def recommend(*, need: DemandEstimate, kept: int, bounds: WarmPodBounds) -> ScalingDecision:
    """How many pods should be warm or on their way.

    `kept` is what was needed at most in the time that fewer pods must have been enough for: the number rises at once
    and falls late.
    """
    wanted = max(need.pods, kept)
    desired, reason, message = wanted, "Demand", str(need)
    if wanted > bounds.most:
        desired, reason = bounds.most, "AtMaximum"
        message += f"; {wanted} are more than warm.max, {bounds.most}"
    elif wanted < bounds.least:
        desired, reason = bounds.least, "AtMinimum"
        message += f"; warm.min is {bounds.least}"
    elif wanted > need.pods:
        reason = "Stabilizing"
        message += f"; {wanted} were needed a while ago"
    elif not wanted:
        reason = "AtMinimum"
    if desired > max(bounds.room, bounds.least):
        desired, reason = max(bounds.room, bounds.least), "AtMaxPods"
        message += f"; maxPods leaves room for {max(bounds.room, 0)}"
    return ScalingDecision(
        desired=desired,
        expected=min(need.expected, desired),
        limited=desired < need.pods,
        reason=reason,
        message=message,
    )


def pods_to_create(*, warm_min: int, max_pods: int, cold_starts: int, counts: PodCounts) -> int:
    """Pods to ask for: what is short of the warm ones or of those that wait, as far as the pool may grow
    and no faster than pods come up.

    `warm_min` are the pods that should be warm; `cold_starts` are executions that wait for a pod to be made for them.
    Pods that start for them come first: what they take from the warm ones is made up for once they have it.
    """
    short = max(warm_min, cold_starts) - counts.warm - counts.coming
    return max(0, min(short, max_pods - counts.total, max(warm_min, MAX_COMING) - counts.coming))


def pods_to_delete(*, warm_min: int, waiting: int, counts: PodCounts) -> int:
    """Idle pods that are too many. Pods that still start are not ended while somebody waits for one."""
    return max(0, counts.warm + counts.coming - warm_min - waiting)
