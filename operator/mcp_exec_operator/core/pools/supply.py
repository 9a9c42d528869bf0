"""New pods of a pool: how many are needed, what is planned, and what delays or prevents their creation. No I/O."""

from dataclasses import dataclass, field, replace

from mcp_exec_api.meta import now as utc_now
from mcp_exec_api.reasons.execution import Reason
from mcp_exec_api.sandbox_pool import OnEmpty, SandboxPoolSpec
from mcp_exec_common.util.backoff import Backoff
from mcp_exec_operator.core.pods.cache import PodCache
from mcp_exec_operator.core.pods.pod import PodCounts
from mcp_exec_operator.core.pods.status import PodProblem
from mcp_exec_operator.core.pools.reuse import find_spare_pods
from mcp_exec_operator.core.pools.reviews import PodReviews
from mcp_exec_operator.core.scaling.autoscaler import Autoscaler
from mcp_exec_operator.core.scaling.plan import PodPlan, PoolState, plan_pods
from mcp_exec_tools.protocol import PROTOCOLS


@dataclass(kw_only=True, eq=False)
class Supply:
    """The supply of one pool with pods. Times are seconds of a monotonic clock."""

    autoscaler: Autoscaler = field(default_factory=Autoscaler)
    plan: PodPlan = field(default_factory=PodPlan)
    """The last plan."""
    backoff: Backoff = field(default_factory=Backoff)
    """Delay after a pod that was refused or failed."""
    refusal: PodProblem | None = None
    """Why the API server refused the last pod."""
    failure: PodProblem | None = None
    """Why the last failed pod failed."""
    changed_fields: tuple[str, ...] = ()
    """Fields of the last created pod that differed from the requested one."""
    refused_fields: tuple[str, ...] = ()
    """Fields of the template that its pods do not have."""
    protocol: int = PROTOCOLS[-1]
    """Version of the protocol with the sandbox that became ready last, of those that the spec asks for."""
    lacking_since: float | None = None
    """Time since which fewer pods are warm than required, or None if enough are."""
    refills_now: bool = False
    """Whether missing pods are created without delay, because a pod has ended."""

    @property
    def over_quota(self) -> bool:
        """Whether a quota refused the last pod."""
        return self.refusal is not None and self.refusal.reason is Reason.QUOTA_EXCEEDED

    def count_desired(self, spec: SandboxPoolSpec) -> int:
        """Return how many pods should be warm or starting."""
        decision = self.autoscaler.decision
        if decision is not None and spec.follows_demand:
            return decision.desired
        return max(spec.warm.min, self.autoscaler.bound_required(spec))

    def is_lacking(self, counts: PodCounts) -> bool:
        """Return whether fewer pods are warm than the last decision requires, given the pods that are starting."""
        decision = self.autoscaler.decision
        return decision is not None and counts.warm < decision.desired - min(counts.coming, decision.expected)

    def update_lacking(self, counts: PodCounts, now: float) -> None:
        """Record since when pods are lacking."""
        if not self.is_lacking(counts):
            self.lacking_since = None
        elif self.lacking_since is None:
            self.lacking_since = now

    def plan_pods(
        self,
        spec: SandboxPoolSpec,
        *,
        pods: PodCache,
        reviews: PodReviews,
        waiting: int,
        unserved: int,
        may_create: bool,
        max_create: int,
        now: float,
    ) -> PodPlan:
        """Decide how many pods should be warm, plan which to create and delete, and store the plan.

        Of the `waiting` executions, `unserved` need a new pod. If `may_create`, `max_create` pods may be created now.
        """
        decision = self.autoscaler.decide(spec, waiting=unserved, counts=pods.counts, now=now)
        refill = self.autoscaler.refill
        outdated, stuck = reviews.list_outdated(), pods.count_stuck(utc_now())
        plan = plan_pods(
            PoolState(
                pods=pods,
                desired=decision.desired,
                starting_allowance=decision.expected,
                max_pods=spec.max_pods,
                stuck=stuck,
                waiting=waiting,
                unserved=unserved,
                cold_starts=unserved if spec.on_empty is OnEmpty.COLD_START else 0,
                outdated=outdated,
                stale=reviews.list_stale(),
                late=reviews.list_late(),
                blocked=self._explain_block(pods.first_problem) if outdated or pods.counts.owned else "",
                may_create=may_create,
                max_create=max_create,
                missing_since=self.plan.missing_since,
                refill_now=self.refills_now,
                refill_tokens=refill.available(now),
                backoff_until=self.backoff.until,
                probing=bool(self.backoff.failures),
            ),
            now=now,
        )
        if plan.missing_since is None:
            self.refills_now = False
        refill.spend(plan.refill, now)
        spare = find_spare_pods(pods, short=plan.short, stuck=stuck, max_pods=spec.max_pods, now=now)
        next_at = None if plan.next_at is None else max(plan.next_at, refill.ready_at(now))
        self.plan = replace(plan, delete=(*plan.delete, *spare), next_at=next_at)
        return self.plan

    def stop(self) -> None:
        """Plan nothing, because there is no valid spec."""
        self.plan = PodPlan()

    def reset(self) -> None:
        """Forget the failures of the last spec."""
        self.refusal = self.failure = None
        self.changed_fields = ()
        self.backoff.succeed()

    def refill_now(self) -> None:
        """Create missing pods without delay, and retry a full quota."""
        self.refills_now = True
        if self.over_quota:
            self.backoff.until = 0.0

    def refuse(self, problem: PodProblem, *, now: float, changed_fields: tuple[str, ...] = ()) -> None:
        """Record why a pod was not created, or with which fields changed."""
        self.refusal, self.changed_fields = problem, changed_fields or self.changed_fields
        self.backoff.fail(now)

    def accept(self) -> None:
        """Record that a pod was created as requested."""
        self.changed_fields = ()
        if self.refusal is not None:
            self.refusal = None
            self.backoff.succeed()

    def fail(self, problem: PodProblem, *, now: float) -> None:
        """Record why a pod failed."""
        self.failure = problem
        self.backoff.fail(now)

    def succeed(self) -> None:
        """Record that a pod became ready."""
        self.failure = None
        self.backoff.succeed()

    def _explain_block(self, first_problem: PodProblem | None) -> str:
        """Return why no further pod becomes warm although the pool may have more, or an empty string.

        `first_problem` is that of a starting pod.
        """
        if self.over_quota and self.refusal is not None:
            return self.refusal.message
        is_blocked = first_problem is not None and first_problem.reason is Reason.UNSCHEDULABLE
        return first_problem.message if first_problem is not None and is_blocked else ""
