"""How many of a pool's warm pods each variant gets. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from mcp_exec_operator.pods.cache import PodCounts


@dataclass(frozen=True, kw_only=True)
class Allocation:
    """What the pool grants one of its partitions."""

    desired: int = 0
    """Pods of the partition that should be warm or starting."""
    starting_allowance: int = 0
    """Part of `desired` that is used up while replacements start, so as many may be starting."""
    retained: int = 0
    """Warm pods above `desired` that stay until other partitions have theirs."""
    accepting: bool = True
    """Whether callers are assigned to the partition."""

    def required_warm(self, counts: PodCounts) -> int:
        """Return how many pods should be warm now, given the pods that are starting."""
        return self.desired - min(counts.coming, self.starting_allowance)


@dataclass(frozen=True, kw_only=True)
class PartitionLoad:
    """What an allocation depends on, of one partition."""

    variant: str
    counts: PodCounts
    waiting: int
    accepting: bool
    over_quota: bool
    """Whether a quota refused its last pod."""

    @property
    def stranded(self) -> bool:
        """Whether executions wait although the partition has no pod at all."""
        return bool(self.waiting and self.accepting and not self.counts.total)


def share_pods(desired: int, weights: Mapping[str, int]) -> dict[str, int]:
    """Return how many of `desired` pods each variant gets: by weight, with the largest-remainder method.

    A variant of weight 0 gets none. Every other variant gets at least one if there are enough.
    """
    total = sum(weights.values())
    if desired <= 0 or not total:
        return dict.fromkeys(weights, 0)
    shares = {name: desired * weight // total for name, weight in weights.items()}
    # the order of the spec decides between equal remainders
    by_remainder = sorted(weights, key=lambda name: -(desired * weights[name] % total))
    for name in by_remainder[: desired - sum(shares.values())]:
        shares[name] += 1
    weighted = [name for name, weight in weights.items() if weight > 0]
    if desired >= len(weighted):
        for name in weighted:
            if not shares[name]:
                shares[max(weighted, key=lambda each: shares[each])] -= 1
                shares[name] = 1
    return shares


def allocate_pods(
    loads: Sequence[PartitionLoad], *, weights: Mapping[str, int], desired: int, expected: int, max_pods: int
) -> dict[str, Allocation]:
    """Return the allocation of each partition, by variant. The base partition has the empty name.

    `weights` are those of the variants in rotation, empty for a pool without variants. `expected` is the part of
    `desired` that is used up while replacements start.
    """
    granted = _grant(loads, weights=weights, desired=desired, max_pods=max_pods)
    allocations = {
        load.variant: Allocation(
            desired=granted[load.variant],
            starting_allowance=expected * granted[load.variant] // max(1, desired),
            accepting=load.accepting,
        )
        for load in loads
    }
    return _retain_pods(loads, allocations, max_pods=max_pods)


def _grant(
    loads: Sequence[PartitionLoad], *, weights: Mapping[str, int], desired: int, max_pods: int
) -> dict[str, int]:
    shares = share_pods(desired, weights) if weights else {"": desired}
    # the callers of a variant get no pod of another one: without a pod of its own they would wait forever
    granted = {
        load.variant: max(1 if load.waiting and load.accepting else 0, shares.get(load.variant, 0)) for load in loads
    }
    if not weights:
        granted[""] = desired
    counts = sum((load.counts for load in loads), PodCounts())
    room = max_pods - counts.busy - counts.terminating
    if weights and any(load.stranded for load in loads) and sum(granted.values()) > room:
        # the first pod of one variant comes before the last pod of another
        largest = max((load.variant for load in loads if not load.stranded), key=lambda name: granted[name])
        granted[largest] = max(0, granted[largest] - 1)
    return granted


def _retain_pods(
    loads: Sequence[PartitionLoad], allocations: Mapping[str, Allocation], *, max_pods: int
) -> dict[str, Allocation]:
    """Keep excess warm pods while other partitions lack pods."""
    counts = sum((load.counts for load in loads), PodCounts())
    lacking = {
        load.variant: max(0, allocations[load.variant].required_warm(load.counts) - load.counts.warm) for load in loads
    }
    blocked = counts.total >= max_pods or any(load.over_quota and lacking[load.variant] for load in loads)
    # if no pod can be created otherwise, one excess pod is deleted, and the next one after its place is taken
    give_up = 1 if blocked and not counts.coming and not counts.terminating else 0
    retained: dict[str, Allocation] = {}
    for load in loads:
        allocation = allocations[load.variant]
        excess = max(0, load.counts.warm - allocation.desired)
        keep = min(excess, sum(lacking.values()) - lacking[load.variant])
        if give_up and keep:
            keep, give_up = keep - 1, 0
        retained[load.variant] = replace(allocation, retained=keep)
    return retained
