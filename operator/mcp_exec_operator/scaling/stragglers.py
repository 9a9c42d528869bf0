"""Pods that take much longer to start than others: a backup pod is created and shows whether they are stuck.

A pod can be stuck forever on a healthy node, for example if its container runtime died while it created the pod's
sandbox and the kubelet cannot clean up. Or every pod is slow at the moment, and another one would be no faster. So a
late pod is deleted only after a much younger pod has become ready on the same node: a backup request, as in Dean and
Barroso, "The Tail at Scale" (2013). Pure: no clock, no I/O. Times are seconds of the monotonic clock.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from mcp_exec_operator.pods.cache import Pod, PodState
from mcp_exec_operator.pods.status import starting_problem
from mcp_exec_operator.scaling.demand import STARTUP_GUESS_SECONDS

_MIN_SECONDS: Final = 10.0
_FACTOR: Final = 3.0
"""A pod is late after this many times the median startup time."""
_GRACE_SECONDS: Final = 3.0
"""How long an overtaken pod still has: the cause of the delay may have just ended."""


def late_after(usual_startup: float | None) -> float:
    """Return the seconds after which a starting pod is late, from the median startup time if it is known."""
    return max(_MIN_SECONDS, _FACTOR * (STARTUP_GUESS_SECONDS if usual_startup is None else usual_startup))


def late_pods(starting: Iterable[Pod], *, usual_startup: float | None, now: float, moment: datetime) -> list[Pod]:
    """Return the pods that have a node and should run by now, but do not. `now` and `moment` are the same moment."""
    limit = late_after(usual_startup)
    return [pod for pod in starting if not pod.address and pod.starting_for(now, moment) > limit and should_run(pod)]


def overtaken_pods(
    late: Iterable[Pod], *, by: Pod, usual_startup: float | None, now: float, moment: datetime
) -> list[Pod]:
    """Return the late pods that the ready pod `by` proves stuck: of the same node and template, created much later."""
    age = by.age(now, moment) + late_after(usual_startup)
    alike = (pod for pod in late if pod.node == by.node and pod.template == by.template)
    return [pod for pod in alike if not pod.overtaken_at and pod.age(now, moment) >= age]


def is_stuck(pod: Pod, now: float) -> bool:
    """Return whether a pod was overtaken and still does not run after a grace period."""
    return bool(pod.overtaken_at) and now >= pod.overtaken_at + _GRACE_SECONDS and should_run(pod)


def should_run(pod: Pod) -> bool:
    """Return whether a starting pod has a node, no address, and no problem that is not its own."""
    if pod.state is not PodState.STARTING or pod.address or not pod.node or pod.newest is None:
        return False
    problem = starting_problem(pod.newest)
    return problem is None or not problem.held
