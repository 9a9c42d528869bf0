"""Which pods of a pool to create and which idle ones to delete. Pure: no clock, no I/O.

Pods that take much longer to start than others get a backup pod, which shows whether they are stuck. A pod can be stuck
forever on a healthy node, for example if its container runtime died while it created the pod's sandbox and the kubelet
cannot clean up. Or every pod is slow at the moment, and another one would be no faster. So a late pod is deleted only
after a much younger pod has become ready on the same node: a backup request, as in Dean and Barroso, "The Tail at
Scale" (2013). Times are seconds of the monotonic clock.
"""

import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum
from itertools import chain, islice
from typing import Final

from mcp_exec_operator.core.pods.cache import PodCache
from mcp_exec_operator.core.pods.nodes import NodeCache
from mcp_exec_operator.core.pods.pod import Pod, PodCounts, PodState
from mcp_exec_operator.core.pods.status import starting_problem, tolerations_of
from mcp_exec_operator.core.scaling.demand import STARTUP_GUESS_SECONDS

_AGE_SPREAD: Final = 0.2
"""Part of the maximum age over which the pods of a pool expire, so that they do not expire at once."""
_BATCH_DIVISOR: Final = 10
"""A tenth of a pool is replaced at a time."""


class OutdatedReason(IntEnum):
    """Reasons for the replacement of a warm pod, the most urgent first."""

    NODE = 0
    """The pod should leave its node."""
    TEMPLATE = 1
    """The pool's template has changed."""
    KEY = 2
    """The sandbox key has changed since the pod was created."""
    AGE = 3
    """The pod has been idle for too long."""


@dataclass(frozen=True, kw_only=True)
class OutdatedPod:
    """A warm pod that should be replaced."""

    pod: Pod
    reason: OutdatedReason
    message: str


@dataclass(frozen=True, kw_only=True)
class RolloutStep:
    """The next step of a rolling replacement."""

    surge: int = 0
    """Pods to create in addition to the desired ones."""
    delete: tuple[Pod, ...] = ()
    """Idle pods to delete now."""
    message: str = ""
    """What is replaced and why, for people. Empty if there is nothing to replace."""


def find_outdated(
    pod: Pod, *, template_hash: str, has_former_key: bool, max_age: float | None, nodes: NodeCache, age: float
) -> OutdatedPod | None:
    """Return why a warm pod should be replaced, or None. Ages are seconds; without `max_age`, none is too high."""
    if message := nodes.reason_to_leave(pod.seen.node, tolerations_of(pod.seen.body)):
        return OutdatedPod(pod=pod, reason=OutdatedReason.NODE, message=message)
    if pod.seen.template != template_hash:
        message = "the pool's template has changed"
        return OutdatedPod(pod=pod, reason=OutdatedReason.TEMPLATE, message=message)
    if has_former_key:
        return OutdatedPod(pod=pod, reason=OutdatedReason.KEY, message="the sandbox key has changed")
    if max_age is not None and age > max_age * share_of_age(pod.name):
        return OutdatedPod(pod=pod, reason=OutdatedReason.AGE, message="maxIdleAgeSeconds have passed")
    return None


def most_urgent_first(outdated: Iterable[OutdatedPod]) -> list[OutdatedPod]:
    """Return outdated pods in the order of their reasons."""
    return sorted(outdated, key=lambda each: each.reason)


def share_of_age(name: str) -> float:
    """Return when the pod of that name expires, as a part of the maximum age: fixed by the name, 0.8 to 1."""
    return 1.0 - _AGE_SPREAD * zlib.crc32(name.encode()) / 2**32


def plan_rollout(
    *,
    outdated: Sequence[OutdatedPod],
    not_ready: Sequence[Pod],
    counts: PodCounts,
    required: int,
    max_pods: int,
    blocked: str = "",
) -> RolloutStep:
    """Plan the replacement of outdated pods, and of idle pods that are not ready any more.

    `required` pods should be warm. `blocked` says why no further pod becomes warm although `maxPods` would allow it:
    a quota, or full nodes.
    """
    delete = _replaceable_not_ready(not_ready, counts, required, max_pods)
    messages = list(_messages(outdated, not_ready))
    spare = counts.warm - required
    if spare > 0:
        delete += [each.pod for each in outdated[:spare]]
    elif outdated and spare == 0 and (first := _pod_to_sacrifice(outdated, counts, max_pods, blocked)) is not None:
        delete.append(first.pod)
    if outdated and max_pods <= required:
        messages.append("maxPods leaves no room for a replacement, so each old pod is deleted first")
    elif outdated and blocked:
        messages.append(f"no replacement becomes warm: {blocked}")
    batch = max(1, required // _BATCH_DIVISOR) if any(each.reason is not OutdatedReason.AGE for each in outdated) else 1
    surge = min(batch, len(outdated)) if required else 0
    return RolloutStep(surge=surge, delete=tuple(delete), message="; ".join(messages))


def _replaceable_not_ready(pods: Sequence[Pod], counts: PodCounts, required: int, max_pods: int) -> list[Pod]:
    """Return the pods that are not ready and have a warm replacement, or that take the room of a replacement.

    The others may recover and stay.
    """
    if counts.warm >= required:
        return list(pods)
    lacking = required - counts.warm - counts.coming
    return list(pods[: max(0, lacking)]) if counts.total >= max_pods else []


def _pod_to_sacrifice(
    outdated: Sequence[OutdatedPod], counts: PodCounts, max_pods: int, blocked: str
) -> OutdatedPod | None:
    """Return the pod to delete before its replacement exists, or None if a replacement can become warm first."""
    if not counts.coming and counts.warm + counts.not_ready >= max_pods:
        return outdated[0]
    # a place on a node that pods should leave helps no replacement, and age is not urgent
    return next((each for each in outdated if each.reason is OutdatedReason.TEMPLATE), None) if blocked else None


def _messages(outdated: Sequence[OutdatedPod], not_ready: Sequence[Pod]) -> Iterator[str]:
    if outdated:
        reasons = list(dict.fromkeys(each.message for each in outdated))
        yield f"{len(outdated)} warm pods to replace: {', '.join(reasons[:3])}"
    if not_ready:
        yield f"{len(not_ready)} idle pods are not ready any more"


MAX_STARTING: Final = 10
"""Pods of a pool that may be starting at a time, unless more should be warm: many executions that wait for cold
starts must not flood the scheduler with pods that no node has room for."""
REFILL_DELAY_SECONDS: Final = 0.15
"""Delay before missing pods are created, unless a pod ended or an execution waits: bindings come first."""
MIN_LATE_SECONDS: Final = 10.0
"""No pod is late earlier."""
_LATE_FACTOR: Final = 3.0
"""A pod is late after this many times the median startup time."""
OVERTAKEN_SECONDS: Final = 3.0
"""How long an overtaken pod still has: the cause of the delay may have just ended."""


@dataclass(frozen=True, kw_only=True)
class PoolState:
    """The values that decide the plan of a pool."""

    pods: PodCache
    """Read only."""
    desired: int
    """Pods that should be warm or starting."""
    starting_allowance: int = 0
    """Part of `desired` that may be starting while the pool still counts as full."""
    max_pods: int
    """Pods that the pool may have in total."""
    stuck: int = 0
    """Terminating pods that take room for an unknown time."""
    waiting: int = 0
    """Executions that wait for a pod."""
    unserved: int = 0
    """Part of `waiting` that no pod of its owner serves soon."""
    cold_starts: int = 0
    """Waiting executions that get a new pod."""
    outdated: Sequence[OutdatedPod] = ()
    stale: Sequence[Pod] = ()
    """Starting pods of another template."""
    late: Sequence[Pod] = ()
    """Pods that should have started by now."""
    blocked: str = ""
    """Why no further pod becomes warm although `max_pods` would allow it. Empty if nothing is known."""
    may_create: bool = True
    max_create: int = 5000
    """Pods that may be created now."""
    missing_since: float | None = None
    """Time since which pods are missing, from the last plan."""
    refill_now: bool = False
    """Whether missing pods are created without delay."""
    refill_tokens: int | None = None
    """Pods that may be created ahead of demand now, or None without a limit."""
    backoff_until: float = 0.0
    """No pod is created before this time."""
    probing: bool = False
    """Whether the API server refused the last pod, so that only one is tried at a time."""


@dataclass(frozen=True, kw_only=True)
class PodPlan:
    """What to do with the pods of a pool."""

    delete: tuple[Pod, ...] = ()
    create: int = 0
    refill: int = 0
    """Part of `create` that no execution waits for."""
    missing_since: float | None = None
    """Time since which pods are missing, or None if none are."""
    next_at: float | None = None
    """When missing pods may be created, or None if none are missing or none may be created."""
    short: int = 0
    """Pods that are missing and have no place, because the pool is full or its pods have no room."""
    message: str = ""
    """What is replaced and why."""


def plan_pods(state: PoolState, *, now: float) -> PodPlan:
    """Plan deletions, then creations with the numbers as they are after the deletions."""
    rollout = _plan_rollout(state, state.pods.counts)
    delete = tuple(_pods_to_delete(state, rollout))
    counts = state.pods.counts
    if delete:
        counts = _counts_after(counts, delete)
        rollout = _plan_rollout(state, counts, deleted=delete)
    if not state.may_create:
        return PodPlan(delete=delete, missing_since=state.missing_since, message=rollout.message)
    backup = _backup_pods(state, deleted=delete)
    warm = state.desired + rollout.surge + backup
    cold_starts = state.cold_starts + backup
    missing = pods_to_create(warm=warm, max_pods=state.max_pods, cold_starts=cold_starts, counts=counts)
    missing_since = (now if state.missing_since is None else state.missing_since) if missing else None
    create = refill = 0
    if missing_since is not None and _may_create_now(state, missing_since, now):
        limit = max(0, min(missing, state.max_create, 1 if state.probing else missing))
        awaited = min(limit, max(0, state.unserved - counts.coming))
        refill = limit - awaited if state.refill_tokens is None else min(limit - awaited, state.refill_tokens)
        create = awaited + refill
    return PodPlan(
        delete=delete,
        create=create,
        refill=refill,
        missing_since=missing_since,
        next_at=_next_at(state, missing_since),
        short=_count_short(state, warm=warm, cold_starts=cold_starts, counts=counts),
        message=rollout.message,
    )


def _count_short(state: PoolState, *, warm: int, cold_starts: int, counts: PodCounts) -> int:
    """Return how many of the missing pods have no place, without those that ending pods make."""
    wanted = max(warm, cold_starts) - counts.warm - counts.coming
    ending = counts.terminating - state.stuck
    short = wanted - max(0, state.max_pods - counts.total) - ending
    if state.blocked and state.unserved and not ending:
        short = max(short, 1)  # the nodes or a quota have no room for what is starting
    return max(0, short)


def pods_to_create(*, warm: int, max_pods: int, cold_starts: int, counts: PodCounts) -> int:
    """Return how many pods to create so that `warm` are warm, or `cold_starts` executions get one.

    Limited by `max_pods` and by how many pods may be starting. Pods that start for waiting executions come first: what
    they take from the warm ones is refilled after those executions have their pods.
    """
    missing = max(warm, cold_starts) - counts.warm - counts.coming
    return max(0, min(missing, max_pods - counts.total, max(warm, MAX_STARTING) - counts.coming))


def excess_pods(*, warm: int, waiting: int, counts: PodCounts) -> int:
    """Return how many idle pods are too many. Starting pods are not, as long as an execution waits for one."""
    return max(0, counts.warm + counts.coming - warm - waiting)


def _pods_to_delete(state: PoolState, rollout: RolloutStep) -> list[Pod]:
    warm = state.desired + rollout.surge + _backup_pods(state)
    excess = excess_pods(warm=warm, waiting=state.waiting, counts=state.pods.counts)
    if not excess:
        return [*state.stale, *rollout.delete]
    # pods furthest from being warm first
    starting = sorted(state.pods.each(PodState.STARTING), key=lambda pod: bool(pod.seen.address))
    first = dict.fromkeys([*state.stale, *starting, *[each.pod for each in state.outdated]])
    current = (pod for pod in state.pods.each(PodState.WARM) if pod not in first)
    return list(islice(chain(first, current), excess))


def _plan_rollout(state: PoolState, counts: PodCounts, *, deleted: Sequence[Pod] = ()) -> RolloutStep:
    not_ready = state.pods.all(PodState.NOT_READY) if counts.not_ready else []
    return plan_rollout(
        outdated=[each for each in state.outdated if each.pod not in deleted],
        not_ready=[pod for pod in not_ready if pod not in deleted],
        counts=counts,
        required=state.desired - min(counts.coming, state.starting_allowance),
        max_pods=state.max_pods,
        blocked=state.blocked,
    )


def _backup_pods(state: PoolState, *, deleted: Sequence[Pod] = ()) -> int:
    """Return how many pods to have in addition to late ones, if any pod is wanted."""
    late = any(pod not in deleted for pod in state.late)
    return int(late and bool(state.desired or state.waiting))


def _may_create_now(state: PoolState, missing_since: float, now: float) -> bool:
    delayed = missing_since + REFILL_DELAY_SECONDS > now and not state.unserved and not state.refill_now
    return not delayed and state.backoff_until <= now


def _next_at(state: PoolState, missing_since: float | None) -> float | None:
    return None if missing_since is None else max(missing_since + REFILL_DELAY_SECONDS, state.backoff_until)


def _counts_after(counts: PodCounts, deleted: Sequence[Pod]) -> PodCounts:
    states = Counter(pod.state for pod in deleted)
    return PodCounts(
        creating=counts.creating,
        starting=counts.starting - states[PodState.STARTING],
        warm=counts.warm - states[PodState.WARM],
        not_ready=counts.not_ready - states[PodState.NOT_READY],
        owned=counts.owned,
        busy=counts.busy,
        terminating=counts.terminating + len(deleted),
    )


def late_after(usual_startup: float | None) -> float:
    """Return how many seconds a pod may be starting before it is late, from the median startup time if it is known."""
    return max(MIN_LATE_SECONDS, _LATE_FACTOR * (STARTUP_GUESS_SECONDS if usual_startup is None else usual_startup))


def overtaken_pods(
    late: Iterable[Pod], *, by: Pod, usual_startup: float | None, now: float, moment: datetime
) -> list[Pod]:
    """Return the late pods that the ready pod `by` proves stuck: of the same node and template, created much later."""
    age = by.age(now, moment) + late_after(usual_startup)
    alike = (pod for pod in late if pod.seen.node == by.seen.node and pod.seen.template == by.seen.template)
    return [pod for pod in alike if not pod.delay.overtaken_at and pod.age(now, moment) >= age]


def is_stuck(pod: Pod, now: float) -> bool:
    """Return whether a pod was overtaken and still does not run after a grace period."""
    return bool(pod.delay.overtaken_at) and now >= pod.delay.overtaken_at + OVERTAKEN_SECONDS and should_run(pod)


def should_run(pod: Pod) -> bool:
    """Return whether a starting pod has a node, no address, and no problem that is not its own."""
    if pod.state is not PodState.STARTING or pod.seen.address or not pod.seen.node or pod.seen.body is None:
        return False
    problem = starting_problem(pod.seen.body)
    return problem is None or not problem.held
