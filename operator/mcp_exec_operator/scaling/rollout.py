"""How outdated pods make place for new ones, in what steps. Pure: no clock, no I/O.

A replacement is warm before the old pod goes, so that the warm ones are never fewer than they should be. Only where
the pool can't have a pod more for it does one go first, and then one alone.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from mcp_exec_operator.pods.cache import Pod, PodCounts
from mcp_exec_operator.scaling.outdated import OutdatedPod, OutdatedReason

_SHARE: Final = 10
"""The share of a pool that is replaced at a time, as a divisor: a tenth."""


@dataclass(frozen=True, kw_only=True)
class RolloutStep:
    """What is to be done."""

    extra: int = 0
    """Pods to make beyond those that should be warm."""
    ending: tuple[Pod, ...] = ()
    """Idle pods to end now."""
    note: str = ""
    """What is being replaced and why, for people; empty where nothing is."""


def plan_rollout(
    *,
    outdated: Sequence[OutdatedPod],
    unfit: Sequence[Pod],
    counts: PodCounts,
    desired: int,
    max_pods: int,
    blocked: str = "",
) -> RolloutStep:
    """What to do about warm pods that are outdated, and about unfit ones, which are not warm any more.

    `desired` are the pods that should be warm, `blocked` says why no further pod comes up although the pool may have
    one: a quota, or nodes that are full.
    """
    going = _unfit_to_go(unfit, counts, desired, max_pods)
    notes = list(_notes(outdated, unfit))
    spare = counts.warm - desired
    if spare > 0:
        going += [each.pod for each in outdated[:spare]]
    elif outdated and spare == 0 and (first := _first_to_go(outdated, counts, max_pods, blocked)) is not None:
        going.append(first.pod)
    if outdated and max_pods <= desired:
        notes.append("one goes before another is made, for which maxPods leaves no room")
    elif outdated and blocked:
        notes.append(f"no further pod comes up: {blocked}")
    step = max(1, desired // _SHARE) if any(each.why is not OutdatedReason.AGE for each in outdated) else 1
    extra = min(step, len(outdated)) if desired else 0
    return RolloutStep(extra=extra, ending=tuple(going), note="; ".join(notes))


def _unfit_to_go(unfit: Sequence[Pod], counts: PodCounts, desired: int, max_pods: int) -> list[Pod]:
    """They may recover, so they go once others stand in their place, or where they take the place of others."""
    if counts.warm >= desired:
        return list(unfit)
    lacking = desired - counts.warm - counts.coming
    return list(unfit[: max(0, lacking)]) if counts.total >= max_pods else []


def _first_to_go(outdated: Sequence[OutdatedPod], counts: PodCounts, max_pods: int, blocked: str) -> OutdatedPod | None:
    """The pod that goes although none stands in its place, since none ever could; None while one could."""
    if not counts.coming and counts.warm + counts.unfit >= max_pods:
        return outdated[0]
    # its place on a node that is to be left is of no use to another, and its age can wait
    return next((each for each in outdated if each.why is OutdatedReason.TEMPLATE), None) if blocked else None


def _notes(outdated: Sequence[OutdatedPod], unfit: Sequence[Pod]) -> Iterator[str]:
    if outdated:
        reasons = list(dict.fromkeys(each.message for each in outdated))
        yield f"warm pods to be replaced: {len(outdated)}, for {', '.join(reasons[:3])}"
    if unfit:
        yield f"idle pods that are not ready any more, by their node or by themselves: {len(unfit)}"
