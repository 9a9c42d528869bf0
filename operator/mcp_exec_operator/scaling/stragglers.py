"""Pods that take far longer to start than others do: one more is made beside them, and shows whether they are stuck.

A pod can be stuck for good although its node is well: its container runtime died while it made the pod's sandbox, say,
and the kubelet tries in vain to clear up. Or every pod is slow just now, and another would be no faster. So nothing is
ended before a pod that was made much later came up on the same node: a backup request, as in Dean and Barroso, "The
Tail at Scale" (2013). No I/O.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from mcp_exec_api.meta import now as this_moment
from mcp_exec_operator.pods.cache import Pod, PodState
from mcp_exec_operator.pods.status import starting_problem
from mcp_exec_operator.scaling.demand import STARTUP_GUESS_SECONDS

if TYPE_CHECKING:
    from mcp_exec_operator.pools.partition import Partition

_LEAST_SECONDS: Final = 10.0
_TIMES: Final = 3.0
"""How many times as long as other pods in the median one may take."""
_LOOK_SECONDS: Final = 1.0
"""How often, at most, the starting pods are looked through: thousands may start at a time."""
_AFTER_SECONDS: Final = 3.0
"""How long one that was overtaken still has: what held them all may have just ended."""


@dataclass(kw_only=True, eq=False)
class Stragglers:
    """Those of one pool. Times are of the monotonic clock, in seconds."""

    pool: "Partition"
    _look_at: float = 0.0
    _late: list[Pod] = field(default_factory=list)
    """What was found by the last look."""

    @property
    def patience(self) -> float:
        """Seconds after which a pod is late."""
        usual = self.pool.scaler.demand.usual_startup_seconds
        return max(_LEAST_SECONDS, _TIMES * (STARTUP_GUESS_SECONDS if usual is None else usual))

    def late(self, now: float) -> list[Pod]:
        """The pods that have a node and should run by now, and don't. Those that are held for a reason are not late."""
        if now >= self._look_at:
            self._look_at = now + _LOOK_SECONDS
            patience, moment = self.patience, this_moment()
            starting = self.pool.inventory.all(PodState.STARTING)
            self._late = [pod for pod in starting if not pod.address and pod.starting_for(now, moment) > patience]
        return [pod for pod in self._late if pod.state is PodState.STARTING and _should_run(pod)]

    def spare(self, now: float) -> int:
        """Pods to have beside those that are late, where any are wanted."""
        return min(1, len(self.late(now))) if self.pool.desired or self.pool.waiters else 0

    def overtake(self, pod: Pod, now: float) -> None:
        """A pod has come up: those that were made much earlier for the same node, and have not, may be stuck."""
        moment = this_moment()
        for each in self.late(now):
            same = each.node == pod.node and each.template == pod.template
            if same and not each.overtaken_at and each.age(now, moment) >= pod.age(now, moment) + self.patience:
                each.overtaken_at = now

    def is_stuck(self, pod: Pod, now: float) -> bool:
        """Whether it won't come up any more, for all that is known."""
        return bool(pod.overtaken_at) and now >= pod.overtaken_at + _AFTER_SECONDS and _should_run(pod)


def _should_run(pod: Pod) -> bool:
    """Whether it has a node, nothing that it is held for, and does not run."""
    if pod.address or not pod.node or pod.newest is None:
        return False
    problem = starting_problem(pod.newest)
    return problem is None or not problem.held
