"""Rolling replacement of outdated warm pods. Pure: no clock, no I/O.

A replacement is warm before the old pod is deleted, so the number of warm pods never falls below the required number.
The exception: if the pool cannot have one more pod, one old pod is deleted first, and only one.
"""

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from mcp_exec_operator.pods.cache import Pod, PodCounts
from mcp_exec_operator.pods.nodes import NodeCache
from mcp_exec_operator.pods.status import tolerations_of

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
    AGE = 2
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
    pod: Pod, *, template_hash: str, max_age: float | None, nodes: NodeCache, age: float
) -> OutdatedPod | None:
    """Return why a warm pod should be replaced, or None. Ages are seconds; without `max_age`, none is too high."""
    if message := nodes.reason_to_leave(pod.node, tolerations_of(pod.newest)):
        return OutdatedPod(pod=pod, reason=OutdatedReason.NODE, message=message)
    if pod.template != template_hash:
        message = "the pool's template has changed"
        return OutdatedPod(pod=pod, reason=OutdatedReason.TEMPLATE, message=message)
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
