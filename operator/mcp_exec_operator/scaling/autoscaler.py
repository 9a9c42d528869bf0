"""What one pool remembers in order to decide how many of its pods should be warm."""

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from mcp_exec_api.sandbox_pool import SandboxPoolSpec
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.util.token_bucket import TokenBucket
from mcp_exec_operator.pods.cache import PodCounts
from mcp_exec_operator.scaling.demand import STARTUP_GUESS_SECONDS, Demand
from mcp_exec_operator.scaling.targets import DemandEstimate, ScalingDecision, WarmPodBounds, fixed, recommend

_REFILL_PER_SECOND: Final = 50.0
"""What kube-scheduler binds in a second by default: more pods at once would only wait, and hold up those waited for."""
_LOOK_AGAIN_SECONDS: Final = 5.0


@dataclass(kw_only=True)
class SlidingMaximum:
    """The highest value of a time that ends now. Only values that are still to be the highest are kept."""

    _values: deque[tuple[float, int]] = field(default_factory=deque)

    def note(self, value: int, now: float) -> None:
        """A value that holds now."""
        while self._values and self._values[-1][1] <= value:
            self._values.pop()
        self._values.append((now, value))

    def over(self, seconds: float, now: float) -> int:
        """The highest value of the last `seconds`; 0 where there was none."""
        while self._values and self._values[0][0] + seconds < now:
            self._values.popleft()
        return self._values[0][1] if self._values else 0


@dataclass(kw_only=True, eq=False)
class Autoscaler:
    """Times are of one monotonic clock, in seconds, and are passed in."""

    demand: Demand = field(default_factory=Demand)
    refill: TokenBucket = field(default_factory=TokenBucket)
    """Bounds how fast pods are made that nobody waits for yet."""
    decision: ScalingDecision | None = None
    """The last one."""
    _peak: SlidingMaximum = field(default_factory=SlidingMaximum)

    def remember(self, status: Object, now: float) -> None:
        """Takes over what an operator before this one found: it must not end pods for want of a memory."""
        self._peak.note(_number(status.get("desired")), now)
        if startup := status.get("startupP95"):
            self.demand.started(float(startup))

    def configure(self, spec: SandboxPoolSpec) -> None:
        """Takes in the pool's options."""
        scaling = spec.scaling
        windows = (float(scaling.fast_window_seconds), float(scaling.slow_window_seconds))
        if windows != self.demand.windows:
            self.demand.configure(fast_seconds=windows[0], slow_seconds=windows[1])
        default = _REFILL_PER_SECOND if spec.follows_demand else None
        self.refill.per_second = scaling.refill_per_second or default
        self.refill.burst = scaling.refill_burst

    def recommend(self, spec: SandboxPoolSpec, *, waiting: int, counts: PodCounts, now: float) -> ScalingDecision:
        """How many pods should be warm now."""
        if not spec.follows_demand:
            self.decision = fixed(spec.warm.min)
            return self.decision
        measured = self.demand.measured(now)
        need = DemandEstimate(
            rate=measured.rate,
            startup_seconds=measured.startup_seconds or STARTUP_GUESS_SECONDS,
            waiting=waiting,
            headroom=spec.scaling.headroom,
        )
        self._peak.note(min(need.lasting, spec.max_warm), now)
        room = spec.max_pods - counts.busy - counts.terminating
        self.decision = recommend(
            need=need,
            kept=self._peak.over(spec.scaling.stable_seconds, now),
            bounds=WarmPodBounds(least=spec.warm.min, most=spec.max_warm, room=room),
        )
        return self.decision

    def look_in(self, spec: SandboxPoolSpec) -> float | None:
        """Seconds until time alone may change the decision; None where it can't."""
        if self.decision is None or not spec.follows_demand or self.decision.desired <= spec.warm.min:
            return None
        return min(_LOOK_AGAIN_SECONDS, spec.scaling.fast_window_seconds / 2)


def _number(value: object) -> int:
    return int(value) if isinstance(value, int | float) else 0
