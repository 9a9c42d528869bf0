"""Decides what to do about one pod, and when to look at it again. No I/O.

A pod is reviewed after a change and when its time has come. So an event of one pod costs as much in a pool of thousands
as in a pool of one. All pods are reviewed after a change of the pool's spec or NetworkPolicies, and after a resync.
"""

from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum, auto
from typing import Final, TypeVar

from mcp_exec_api.meta import now as utc_now
from mcp_exec_api.reasons.execution import Reason
from mcp_exec_common.supervisor.tokens import supervisor_token, token_digest
from mcp_exec_operator.core.pods.cache import PodCache
from mcp_exec_operator.core.pods.indexes import NEVER
from mcp_exec_operator.core.pods.manifest import PoolIdentity, has_owners
from mcp_exec_operator.core.pods.pod import IDLE, Pod, PodState
from mcp_exec_operator.core.pods.status import PodProblem, is_over, starting_problem
from mcp_exec_operator.core.pools.reuse import ReuseRules
from mcp_exec_operator.core.scaling.plan import (
    MIN_LATE_SECONDS,
    OVERTAKEN_SECONDS,
    OutdatedPod,
    find_outdated,
    is_stuck,
    late_after,
    most_urgent_first,
    share_of_age,
    should_run,
)

_READ_EVENTS_SECONDS: Final = 10.0
"""How long a pod may be starting before its Events are read for a reason."""
_IMAGE_FAILURE_SECONDS: Final = 10.0
"""Seconds until a failed image pull counts against the pool again: the pod is kept, not replaced."""
_LATE_CHECK_SECONDS: Final = 2.0
"""Seconds between two reviews of a slow pod: how long others usually take changes meanwhile."""
_STRICT: Final = 0.001
"""Added to a limit that has to be passed and not only reached."""

T = TypeVar("T")


class PodAction(Enum):
    """What to do about a pod."""

    CONFIRM = auto()
    """Compare a created pod with its manifest: the answer to its creation was lost, and a watch has reported it."""
    FAIL = auto()
    """Count it as failed and delete it."""
    REPLACE = auto()
    """Delete it, because it is stuck. That is no failure of the pool."""
    END = auto()
    """Delete it: it must not be kept for its owner any longer, or its key is withdrawn."""
    COUNT_FAILURE = auto()
    """Count its problem against the pool and keep it."""
    READ_EVENTS = auto()
    """Read its Events for a reason why it does not start."""
    PROBE = auto()
    """Ask its supervisor whether it is idle."""
    GUARD = auto()
    """Seal it and renew its owners."""
    READ_LIBRARIES = auto()
    """Its supervisor can be asked for the libraries of its image."""


@dataclass(frozen=True, kw_only=True)
class PodTimes:
    """Options about the age of pods, in seconds."""

    start_timeout: float = 120.0
    """How long a pod may be starting."""
    seal_after: float = 5.0
    """Age of a pod when it is sealed, so that a later operator can recognize it. Most pods of a busy pool are used
    earlier, so that sealing costs no write per execution."""


@dataclass(frozen=True, kw_only=True)
class ReviewRules:
    """The values of a pool that decide about its pods. If they change, all its pods are reviewed."""

    identity: PoolIdentity
    isolated: bool
    """Whether its pods need the base NetworkPolicy as an owner."""
    reuse: ReuseRules
    max_idle_age: float | None
    times: PodTimes
    usual_startup: float | None = field(compare=False)
    """Median startup time in seconds."""
    keys: tuple[bytes, ...] = field(default=(), repr=False)
    """The release's keys that are accepted now, that of new tokens first; empty if they are not known."""


@dataclass(frozen=True, kw_only=True)
class PodReview:
    """What to do about a pod, and when to look at it again if it does not change."""

    pod: Pod
    state: PodState
    """Its state at the review. In another state, the review is void."""
    actions: tuple[PodAction, ...] = ()
    problem: PodProblem | None = None
    seconds: float = 0.0
    """How long it has been starting."""
    next_at: float = NEVER
    outdated: OutdatedPod | None = None
    """Why it should be replaced while it is warm."""
    late: bool = False
    """Whether it should have started by now."""
    stale: bool = False
    """Whether it starts from another template than the pool's."""
    held: bool = False
    """Whether a replacement would not start either."""

    @property
    def is_valid(self) -> bool:
        """Whether the pod is still in the state that was reviewed."""
        return self.pod.state is self.state and not self.pod.gone


def review_pod(pod: Pod, rules: ReviewRules, *, usable: bool, now: float, moment: datetime) -> PodReview:
    """Review one pod. `now` and `moment` are the same moment; `usable` is whether it could be taken."""
    if pod.state in IDLE and _has_withdrawn_key(pod, rules):
        return PodReview(pod=pod, state=pod.state, actions=(PodAction.END,))
    if pod.state is PodState.STARTING:
        review = _review_starting(pod, rules, now=now, moment=moment)
    elif pod.state is PodState.OWNED:
        review = _review_owned(pod, rules, usable=usable, now=now)
    elif pod.state in (PodState.WARM, PodState.NOT_READY):
        review = _review_unused(pod, rules, now=now, moment=moment)
    else:
        review = PodReview(pod=pod, state=pod.state)
    if {PodAction.FAIL, PodAction.REPLACE, PodAction.END} & set(review.actions):
        return review
    actions, next_at = list(review.actions), review.next_at
    if _can_be_asked(pod, rules):
        actions.append(PodAction.READ_LIBRARIES)
    guard_at = _find_guard_time(pod, rules)
    if guard_at <= now:
        actions.append(PodAction.GUARD)
    else:
        next_at = min(next_at, guard_at)
    return replace(review, actions=tuple(actions), next_at=next_at)


def _review_starting(pod: Pod, rules: ReviewRules, *, now: float, moment: datetime) -> PodReview:
    problem = starting_problem(pod.seen.body) if pod.seen.body is not None else None
    review = PodReview(pod=pod, state=pod.state, problem=problem)
    if pod.seen.body is not None and is_over(pod.seen.body):
        return replace(review, actions=(PodAction.FAIL,))
    actions = []
    if pod.start.uncertain and pod.start.requested is not None and pod.seen.body is not None:
        actions.append(PodAction.CONFIRM)
    if pod.trust.verified and pod.seen.address and not pod.seen.labelled_busy:
        actions.append(PodAction.PROBE)
    review = replace(review, actions=tuple(actions), stale=pod.seen.template != rules.reuse.template_hash)
    if problem is not None and problem.held:
        return _hold(review, problem, now=now)
    seconds = 0.0 if pod.delay.held else pod.starting_for(now, moment)
    return _review_slow(replace(review, seconds=seconds), rules, now=now)


def _hold(review: PodReview, problem: PodProblem, *, now: float) -> PodReview:
    """Keep a pod whose replacement would have the same problem."""
    if problem.reason is not Reason.IMAGE_PULL_FAILED:
        return replace(review, held=True)
    if now < review.pod.delay.next_failure_at:
        return replace(review, held=True, next_at=review.pod.delay.next_failure_at)
    actions = (*review.actions, PodAction.COUNT_FAILURE)
    return replace(review, held=True, actions=actions, next_at=now + _IMAGE_FAILURE_SECONDS)


def _review_slow(review: PodReview, rules: ReviewRules, *, now: float) -> PodReview:
    """Compare how long a pod has been starting with all limits."""
    pod, seconds, timeout = review.pod, review.seconds, rules.times.start_timeout
    born = now - seconds + _STRICT
    if is_stuck(pod, now):
        return replace(review, actions=(PodAction.REPLACE,))
    if seconds > timeout:
        message = pod.delay.warning or f"pod {pod.name} was not ready after {seconds:.0f} s"
        problem = review.problem or PodProblem(reason=Reason.POD_FAILED, message=message)
        return replace(review, actions=(PodAction.FAIL,), problem=problem)
    if pod.seen.address:
        return replace(review, next_at=born + timeout)
    actions, times, limit = list(review.actions), [born + timeout], late_after(rules.usual_startup)
    if seconds > _READ_EVENTS_SECONDS and now >= pod.delay.read_events_at:
        actions.append(PodAction.READ_EVENTS)
    else:
        times.append(max(born + _READ_EVENTS_SECONDS, pod.delay.read_events_at))
    check_at = max(born + MIN_LATE_SECONDS, now + _LATE_CHECK_SECONDS)
    times.append(min(check_at, born + limit) if seconds <= limit else check_at)
    if pod.delay.overtaken_at and pod.delay.overtaken_at + OVERTAKEN_SECONDS > now:
        times.append(pod.delay.overtaken_at + OVERTAKEN_SECONDS)
    late = seconds > limit and should_run(pod)
    return replace(review, actions=tuple(actions), next_at=min(times), late=late)


def _review_unused(pod: Pod, rules: ReviewRules, *, now: float, moment: datetime) -> PodReview:
    """Review a pod that is, or was, warm."""
    review = PodReview(pod=pod, state=pod.state)
    if pod.seen.body is not None and is_over(pod.seen.body):
        return replace(review, actions=(PodAction.FAIL,), problem=starting_problem(pod.seen.body))
    if pod.state is PodState.NOT_READY:
        return review
    max_age, template, nodes = rules.max_idle_age, rules.reuse.template_hash, rules.reuse.nodes
    age = pod.age(now, moment) if max_age is not None else 0.0
    outdated = find_outdated(
        pod,
        template_hash=template,
        has_former_key=_has_former_key(pod, rules),
        max_age=max_age,
        nodes=nodes,
        age=age,
    )
    if outdated is not None or max_age is None:
        return replace(review, outdated=outdated)
    return replace(review, next_at=now - age + max_age * share_of_age(pod.name) + _STRICT)


def _has_former_key(pod: Pod, rules: ReviewRules) -> bool:
    return bool(rules.keys) and not _is_of(rules.keys[0], pod, rules)


def _has_withdrawn_key(pod: Pod, rules: ReviewRules) -> bool:
    """Return whether its token is of a key that is not accepted any more: whoever has read that could use the pod."""
    if not rules.keys or not pod.seen.token_sha256:
        return False
    return not any(_is_of(key, pod, rules) for key in rules.keys)


def _is_of(key: bytes, pod: Pod, rules: ReviewRules) -> bool:
    token = supervisor_token(key=key, namespace=rules.identity.namespace, pod=pod.name)
    return pod.seen.token_sha256 == token_digest(token)


def _review_owned(pod: Pod, rules: ReviewRules, *, usable: bool, now: float) -> PodReview:
    review = PodReview(pod=pod, state=pod.state)
    limits = rules.reuse.limits
    if limits is None or not usable or rules.reuse.reason_to_end_idle(pod, now=now):
        return replace(review, actions=(PodAction.END,))
    return replace(
        review,
        next_at=min(pod.use.idle_since + limits.idle_seconds, pod.use.owned_since + limits.max_age_seconds) + _STRICT,
    )


def _can_be_asked(pod: Pod, rules: ReviewRules) -> bool:
    runs = pod.state in (PodState.WARM, PodState.OWNED, PodState.BUSY) and bool(pod.seen.address) and not pod.lost
    return runs and pod.trust.verified and pod.seen.template == rules.reuse.template_hash


def _find_guard_time(pod: Pod, rules: ReviewRules) -> float:
    """Return when a pod has to be sealed or gets its owners again."""
    if not pod.trust.verified or pod.seen.body is None or pod.lost:
        return NEVER
    if not pod.trust.sealed and pod.state is not PodState.BUSY:
        return pod.start.existing_since + rules.times.seal_after
    return -NEVER if rules.isolated and not has_owners(pod.seen.body, rules.identity) else NEVER


@dataclass(kw_only=True, eq=False)
class PodReviews:
    """The reviews of one pool's pods, and what the newest of each pod found."""

    pods: PodCache
    _rules: ReviewRules | None = None
    _outdated: dict[str, OutdatedPod] = field(default_factory=dict)
    _late: dict[str, Pod] = field(default_factory=dict)
    _stale: dict[str, Pod] = field(default_factory=dict)
    _open: list[PodReview] = field(default_factory=list)
    """Reviews whose actions have not been returned."""

    def update(self, rules: ReviewRules, *, now: float) -> None:
        """Review the pods that have changed or whose time has come; all pods if the rules have changed."""
        if rules != self._rules:
            self._rules = rules
            self.pods.touch(*self.pods.all())
        due = self.pods.pop_due(now)
        moment = utc_now() if due else datetime.min
        for pod in due:
            usable = self.pods.is_usable(pod)
            self._store(review_pod(pod, rules, usable=usable, now=now, moment=moment), now=now)

    def pop_open(self) -> list[PodReview]:
        """Return the reviews with actions since the last call."""
        found, self._open = self._open, []
        return found

    def list_outdated(self) -> list[OutdatedPod]:
        """Return the warm pods that should be replaced, the most urgent first."""
        self._outdated = {name: each for name, each in self._outdated.items() if _is_in(each.pod, PodState.WARM)}
        return most_urgent_first(self._outdated.values())

    def list_late(self) -> list[Pod]:
        """Return the pods that should have started by now."""
        self._late = {name: pod for name, pod in self._late.items() if _is_in(pod, PodState.STARTING)}
        return [pod for pod in self._late.values() if should_run(pod)]

    def list_stale(self) -> list[Pod]:
        """Return the pods that start from another template than the pool's, those without an address first."""
        self._stale = {name: pod for name, pod in self._stale.items() if _is_in(pod, PodState.STARTING)}
        return sorted(self._stale.values(), key=lambda pod: bool(pod.seen.address))

    def _store(self, review: PodReview, *, now: float) -> None:
        pod = review.pod
        _put(self._outdated, pod.name, review.outdated)
        _put(self._late, pod.name, pod if review.late else None)
        _put(self._stale, pod.name, pod if review.stale else None)
        if review.held or pod.delay.held:
            pod.delay.held, pod.delay.held_at = review.held, now
        if PodAction.COUNT_FAILURE in review.actions:
            pod.delay.next_failure_at = review.next_at
        self.pods.look_again(pod, review.next_at)
        if review.actions:
            self._open.append(review)


def _is_in(pod: Pod, state: PodState) -> bool:
    return pod.state is state and not pod.gone


def _put(found: dict[str, T], name: str, value: T | None) -> None:
    if value is None:
        found.pop(name, None)
    else:
        found[name] = value
