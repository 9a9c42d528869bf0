"""How many pods of a pool should be warm: a recommendation from demand, bounded and stabilized.

Times are seconds of one monotonic clock and are passed in.
"""

import math
from collections import deque
from dataclasses import dataclass, field, replace
from typing import Final

from mcp_exec_api.reasons.pool import PoolReason
from mcp_exec_api.sandbox_pool import SandboxPoolSpec
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.util.token_bucket import TokenBucket
from mcp_exec_operator.core.pods.pod import PodCounts
from mcp_exec_operator.core.scaling.demand import STARTUP_GUESS_SECONDS, Demand

REFILL_PER_SECOND: Final = 50.0
"""Default binding rate of kube-scheduler. More pods at once would only queue there and delay pods that are awaited."""
_RECONSIDER_SECONDS: Final = 5.0


@dataclass(frozen=True, kw_only=True)
class DemandEstimate:
    """Demand for a pool's pods at a moment."""

    rate: float = 0.0
    """Executions per second that ask for a pod."""
    startup_seconds: float = 0.0
    """Seconds from the creation of a pod until it is warm."""
    waiting: int = 0
    """Executions that wait for a pod."""
    headroom: int = 0
    """Extra warm pods above predicted demand."""

    @property
    def expected(self) -> int:
        """Executions that arrive while a pod starts."""
        return math.ceil(self.rate * self.startup_seconds - 1e-9)

    @property
    def lasting(self) -> int:
        """Pods needed in addition to those for the waiting executions."""
        return self.expected + self.headroom if self.rate or self.waiting else 0

    @property
    def pods(self) -> int:
        """Pods needed in total."""
        return self.lasting + self.waiting

    def __str__(self) -> str:
        if not self.pods:
            return "no recent demand"
        parts = [f"{self.headroom} headroom"] if self.headroom else []
        parts += [f"{self.waiting} waiting"] if self.waiting else []
        if not self.rate:
            return " and ".join(parts)
        rate = f"{self.rate:g}/s arrive and a pod takes {self.startup_seconds:g} s to start: {self.expected}"
        return ", and ".join([rate, *parts])


@dataclass(frozen=True, kw_only=True)
class WarmPodBounds:
    """Bounds of the number of warm pods."""

    minimum: int
    """`warm.min`."""
    maximum: int
    """`warm.max`, at least `minimum`."""
    room: int
    """`maxPods` less the busy and terminating pods."""


@dataclass(frozen=True, kw_only=True)
class ScalingDecision:
    """How many pods should be warm or starting, and why."""

    desired: int
    expected: int = 0
    """Part of `desired` that is used up while replacements start, so as many may be starting."""
    limited: bool = False
    """Whether a bound keeps `desired` below the demand."""
    reason: PoolReason
    """Reason as one word for programs."""
    message: str
    """Reason as a sentence for people."""


def fix_size(size: int) -> ScalingDecision:
    """Return the decision for a pool of fixed size."""
    return ScalingDecision(
        desired=size, reason=PoolReason.FIXED_SIZE, message=f"warm.min is {size}, and warm.max is not more"
    )


def recommend(*, demand: DemandEstimate, stabilized: int, bounds: WarmPodBounds) -> ScalingDecision:
    """Return how many pods should be warm or starting.

    `stabilized` is the highest need of the stabilization window: the number rises at once and falls late.
    """
    wanted = max(demand.pods, stabilized)
    desired, reason, message = wanted, PoolReason.DEMAND, str(demand)
    if wanted > bounds.maximum:
        desired, reason = bounds.maximum, PoolReason.AT_MAXIMUM
        message += f"; {wanted} are more than warm.max, {bounds.maximum}"
    elif wanted < bounds.minimum:
        desired, reason = bounds.minimum, PoolReason.AT_MINIMUM
        message += f"; warm.min is {bounds.minimum}"
    elif wanted > demand.pods:
        reason = PoolReason.STABILIZING
        message += f"; {wanted} were needed within stableSeconds"
    elif not wanted:
        reason = PoolReason.AT_MINIMUM
    if desired > max(bounds.room, bounds.minimum):
        desired, reason = max(bounds.room, bounds.minimum), PoolReason.AT_MAX_PODS
        message += f"; maxPods leaves room for {max(bounds.room, 0)}"
    return ScalingDecision(
        desired=desired,
        expected=min(demand.expected, desired),
        limited=desired < demand.pods,
        reason=reason,
        message=message,
    )


@dataclass(kw_only=True)
class SlidingMaximum:
    """The highest value of a window that ends now. Stores only values that can still become the maximum."""

    _values: deque[tuple[float, int]] = field(default_factory=deque)

    def add(self, value: int, now: float) -> None:
        """Add the value of this moment."""
        while self._values and self._values[-1][1] <= value:
            self._values.pop()
        self._values.append((now, value))

    def get(self, seconds: float, now: float) -> int:
        """Return the highest value of the last `seconds`, or 0 if there is none."""
        while self._values and self._values[0][0] + seconds < now:
            self._values.popleft()
        return self._values[0][1] if self._values else 0


@dataclass(kw_only=True, eq=False)
class Autoscaler:
    """Demand, refill rate and latest decision of one pool."""

    demand: Demand = field(default_factory=Demand)
    refill: TokenBucket = field(default_factory=TokenBucket)
    """Limit on the creation of pods that no execution waits for yet."""
    required: int = 0
    """Warm pods that rollouts need at least, whatever the demand."""
    decision: ScalingDecision | None = None
    _lasting: SlidingMaximum = field(default_factory=SlidingMaximum)

    def restore(self, status: Object, now: float) -> None:
        """Take over what the previous leader measured, so that a new leader does not scale down at once."""
        self._lasting.add(_number(status.get("desired")), now)
        if startup := status.get("startupP95"):
            self.demand.add_startup(float(startup))

    def configure(self, spec: SandboxPoolSpec) -> None:
        """Apply the pool's scaling options."""
        scaling = spec.scaling
        windows = (float(scaling.fast_window_seconds), float(scaling.slow_window_seconds))
        if windows != self.demand.windows:
            self.demand.configure(fast_seconds=windows[0], slow_seconds=windows[1])
        default = REFILL_PER_SECOND if spec.follows_demand else None
        self.refill.per_second = scaling.refill_per_second or default
        self.refill.burst = scaling.refill_burst

    def decide(self, spec: SandboxPoolSpec, *, waiting: int, counts: PodCounts, now: float) -> ScalingDecision:
        """Decide how many pods should be warm now."""
        decision = self._follow_demand(spec, waiting=waiting, counts=counts, now=now)
        required = self.bound_required(spec)
        if required > decision.desired:
            message = f"{decision.message}; a rollout needs {required}"
            decision = replace(decision, desired=required, reason=PoolReason.ROLLOUT, message=message)
        self.decision = decision
        return decision

    def bound_required(self, spec: SandboxPoolSpec) -> int:
        """Return the warm pods that rollouts need, at most `maxPods`."""
        return min(self.required, spec.max_pods)

    def _follow_demand(self, spec: SandboxPoolSpec, *, waiting: int, counts: PodCounts, now: float) -> ScalingDecision:
        if not spec.follows_demand:
            return fix_size(spec.warm.min)
        measurement = self.demand.measure(now)
        demand = DemandEstimate(
            rate=measurement.rate,
            startup_seconds=measurement.startup_seconds or STARTUP_GUESS_SECONDS,
            waiting=waiting,
            headroom=spec.scaling.headroom,
        )
        self._lasting.add(min(demand.lasting, spec.max_warm), now)
        room = spec.max_pods - counts.busy - counts.terminating
        return recommend(
            demand=demand,
            stabilized=self._lasting.get(spec.scaling.stable_seconds, now),
            bounds=WarmPodBounds(minimum=spec.warm.min, maximum=spec.max_warm, room=room),
        )

    def reconsider_after(self, spec: SandboxPoolSpec) -> float | None:
        """Return the seconds until time may change the decision, or None if it cannot."""
        if self.decision is None or not spec.follows_demand or self.decision.desired <= spec.warm.min:
            return None
        return min(_RECONSIDER_SECONDS, spec.scaling.fast_window_seconds / 2)


def _number(value: object) -> int:
    return int(value) if isinstance(value, int | float) else 0
