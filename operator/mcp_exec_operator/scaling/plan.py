"""Which pods a pool should make now, and which of its idle ones it should end. No I/O."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from mcp_exec_api.code_execution import Reason
from mcp_exec_api.sandbox_pool import OnEmpty
from mcp_exec_operator.pods.cache import Pod, PodState
from mcp_exec_operator.scaling.outdated import OutdatedPod
from mcp_exec_operator.scaling.rollout import RolloutStep, plan_rollout
from mcp_exec_operator.scaling.targets import pods_to_create, pods_to_delete

if TYPE_CHECKING:
    from mcp_exec_operator.pools.partition import Partition

REFILL_DELAY_SECONDS: Final = 0.15
"""How long a shortage stands before it is filled, unless a pod ends or somebody waits: claims come first."""


@dataclass(kw_only=True, eq=False)
class Stock:
    """What a pool has of pods against what it should have."""

    pool: "Partition"
    short_since: float | None = None
    """Since when pods are short and should be made, or None while none are."""
    hurried: bool = False
    """Whether a pod has ended, so that what is short should be made at once."""

    def cold_starts(self) -> int:
        """Executions for which a pod should be made."""
        cold = self.pool.spec is not None and self.pool.spec.on_empty is OnEmpty.COLD_START
        return len(self.pool.waiters) if cold and self.pool.open else 0

    def missing(self, now: float, *, room: int = 5000) -> int:
        """Pods to ask for now, at most `room`. Those that nobody waits for are taken from what refill may make."""
        if self.pool.spec is None or not self.pool.isolated:
            return 0
        counts, spare = self.pool.inventory.counts, self.pool.stragglers.spare(now)
        short = pods_to_create(
            # those that are held roll with the others, or one more would never be made while they are
            warm_min=self.pool.desired
            + (self.pool.held if self.pool.desired else 0)
            + self.turnover(now).extra
            + spare,
            max_pods=self.pool.max_pods,
            cold_starts=self.cold_starts() + spare,
            counts=counts,
        )
        if not short:
            self.short_since, self.hurried = None, False
            return 0
        if self.short_since is None:
            self.short_since = now
        patient = self.short_since + REFILL_DELAY_SECONDS > now and not self.pool.waiters and not self.hurried
        if patient or self.pool.backoff.until > now:
            return 0
        # while pods are refused, one at a time finds out whether they still are
        most = max(0, min(short, room, 1 if self.pool.backoff.failures else short))
        awaited = min(most, max(0, len(self.pool.waiters) - counts.coming))
        refill, tokens = most - awaited, self.pool.scaler.refill.available(now)
        refill = refill if tokens is None else min(refill, tokens)
        self.pool.scaler.refill.spend(refill, now)
        return awaited + refill

    def missing_at(self, now: float) -> float | None:
        """When pods may be asked for that are short, or None where none are."""
        if self.short_since is None:
            return None
        return max(
            self.short_since + REFILL_DELAY_SECONDS, self.pool.backoff.until, self.pool.scaler.refill.ready_at(now)
        )

    def surplus(self, now: float) -> list[Pod]:
        """Idle pods to end: too many, outdated with others in their place, or no longer fit."""
        if self.pool.spec is None:
            return []
        counts = self.pool.inventory.counts
        # those that are furthest from being warm first
        starting = sorted(self.pool.inventory.all(PodState.STARTING), key=lambda pod: bool(pod.address))
        stale = [pod for pod in starting if pod.template != self.pool.template]
        turnover = self.turnover(now)
        least = self.pool.desired + self.pool.held + turnover.extra + self.pool.stragglers.spare(now)
        many = pods_to_delete(warm_min=least, waiting=len(self.pool.waiters), counts=counts)
        if many:
            old = [each.pod for each in self._outdated(now)]
            warm = [pod for pod in self.pool.inventory.all(PodState.WARM) if pod not in old]
            return [*stale, *[pod for pod in starting if pod not in stale], *old, *warm][:many]
        return [*stale, *turnover.ending]

    def turnover(self, now: float) -> RolloutStep:
        """What is to be done about warm pods that should be replaced, and about those that are unfit."""
        if self.pool.spec is None:
            return RolloutStep()
        outdated, counts = self._outdated(now), self.pool.inventory.counts
        return plan_rollout(
            outdated=outdated,
            unfit=self.pool.inventory.all(PodState.UNFIT) if counts.unfit else [],
            counts=counts,
            desired=self.pool.standing + self.pool.held,
            max_pods=self.pool.max_pods,
            blocked=self._blocked() if outdated else "",
        )

    def _outdated(self, now: float) -> list[OutdatedPod]:
        max_age = self.pool.spec.max_idle_age_seconds if self.pool.spec is not None else None
        return self.pool.lookout.outdated(self.pool.inventory, template=self.pool.template, max_age=max_age, now=now)

    def _blocked(self) -> str:
        """Why no further pod comes up although the pool may have more."""
        if self.pool.refusal is not None and self.pool.refusal.reason is Reason.QUOTA_EXCEEDED:
            return self.pool.refusal.message
        problem = self.pool.starting_problem()
        return problem.message if problem is not None and problem.reason is Reason.UNSCHEDULABLE else ""
