"""The controller of one pool: creates pods, finds out when they are ready, deletes excess and failed ones."""

import asyncio
import logging
import math
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Final

from mcp_exec_api.meta import now as utc_now
from mcp_exec_api.reasons.execution import Reason
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.reflector import ObjectKey
from mcp_exec_common.supervisor.tokens import supervisor_token, token_digest
from mcp_exec_operator.core.pods.integrity import find_changes
from mcp_exec_operator.core.pods.manifest import (
    FIRST_UID,
    LAST_UID,
    PodIdentity,
    build_pod,
)
from mcp_exec_operator.core.pods.pod import Pod, PodState
from mcp_exec_operator.core.pods.status import PodProblem, age_of_deletion, refusal_of
from mcp_exec_operator.core.pools.enforcement import NetworkPolicyEnforcer, PodInspector
from mcp_exec_operator.core.pools.pool import Pool
from mcp_exec_operator.core.pools.probes import LibraryReader, ReadinessProber, Recycler
from mcp_exec_operator.core.pools.reviews import PodAction, PodReview
from mcp_exec_operator.core.pools.services import PodRemover, PoolServices
from mcp_exec_operator.core.pools.status import PoolStatusWriter

log = logging.getLogger(__name__)

_MAX_CREATING: Final = 8
"""Concurrent creations of a pool."""
_DEFER_CHECK_SECONDS: Final = 0.1
"""Interval of checks whether status writes still defer refill."""
_GATHER_SECONDS: Final = 0.01
"""How long events are gathered before a reconcile: a reconcile costs more with each pod."""
_RECHECK_SECONDS: Final = 2.0
"""Interval of reconciles while pods start or are kept for owners."""
_FORCE_DELETE_SECONDS: Final = 120.0
"""How long after its deletion a pod may exist, on a node that may be lost, before it is deleted by force."""
_ALPHABET: Final = "bcdfghjkmnpqrstvwxz2456789"


@dataclass(kw_only=True, eq=False)
class PoolController:
    """Reconciles one pool. The pool decides; the calls to the API server and to supervisors are made here."""

    pool: Pool
    services: PoolServices
    pod_uid: Callable[[], int] = lambda: random.SystemRandom().randint(FIRST_UID, LAST_UID)
    remover: PodRemover = field(init=False)
    network_policy: NetworkPolicyEnforcer = field(init=False)
    inspector: PodInspector = field(init=False)
    prober: ReadinessProber = field(init=False)
    recycler: Recycler = field(init=False)
    library_reader: LibraryReader = field(init=False)
    status_writer: PoolStatusWriter = field(init=False)
    _guarding: set[str] = field(default_factory=set)
    """Pods whose seal and owners are being written."""
    _guard_slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_MAX_CREATING))
    _leftovers: set[str] = field(default_factory=set)
    """Pods that the last resync found to be in use but not held by an execution."""

    def __post_init__(self) -> None:
        pool, services = self.pool, self.services
        self.remover = remover = PodRemover(pool=pool, services=services)
        self.network_policy = NetworkPolicyEnforcer(
            pool=pool, api=services.api, release=services.release, broker=services.broker
        )
        self.inspector = PodInspector(pool=pool, services=services, remover=remover)
        self.recycler = Recycler(pool=pool, services=services, remover=remover)
        self.prober = ReadinessProber(pool=pool, services=services, remover=remover, recycler=self.recycler)
        self.library_reader = LibraryReader(pool=pool, services=services)
        self.status_writer = PoolStatusWriter(pool=pool, api=services.api, metrics=services.metrics)

    async def run(self) -> None:
        """Reconcile until cancelled."""
        while True:
            self.pool.wakeup.clear()
            try:
                wait_seconds = await self._reconcile()
            except Exception:
                log.exception("reconciling pool %s failed", self.pool.name, extra={"pool": self.pool.name})
                wait_seconds = _RECHECK_SECONDS
            with suppress(TimeoutError):
                # not wait_for, which before Python 3.12 may lose a cancellation
                async with asyncio.timeout(wait_seconds):
                    await self.pool.wakeup.wait()
                    await asyncio.sleep(_GATHER_SECONDS)

    def give_back(self, pod: Pod, *, uid: str) -> None:
        """Clean a pod after its execution with this uid and return it to its owner, or delete it."""
        if self.pool.pods.get(pod.name) is not pod:
            return
        if reason := self.pool.reuse.reason_to_end(pod, now=monotonic()):
            log.debug("pod %s is not used again: %s", pod.name, reason, extra={"pool": self.pool.name})
            self.remover.retire(pod)
        else:
            self.recycler.recycle(pod, uid=uid)

    async def claim(self, pod: Pod, *, owner: str) -> bool:
        """Record in the API server that a pod serves this owner only. Return False if that is uncertain.

        A pod without the record must serve one execution only.
        """
        if pod.seen.body is None or not pod.trust.verified:
            return False
        patch = self.services.authenticator.build_owner_patch(pod.seen.body, self.pool.identity, owner=owner)
        try:
            await self.services.api.patch_pod(self.pool.namespace, pod.name, patch, what="pod-owner")
        except ApiError as error:
            log.warning("the owner of pod %s was not recorded: %s", pod.name, error, extra={"pool": self.pool.name})
            return False
        pod.use.owner, pod.trust.sealed = owner, True
        return True

    def delete_leftovers(self, held: set[ObjectKey], *, at_once: bool) -> None:
        """Delete pods that run, or ran, for no known execution, and pods whose deletion did not succeed.

        A pod in transit looks orphaned briefly, so two consecutive resyncs must agree. The first resync of a leader
        passes `at_once`: no pod is in transit yet, and leftovers must not take room if the leader dies early.
        """
        found: set[str] = set()
        for pod in self.pool.pods.all():
            if (self.pool.namespace, pod.name) in held:
                continue
            deleted_for = age_of_deletion(pod.seen.body, utc_now()) if pod.seen.body is not None else 0.0
            overdue = deleted_for > _FORCE_DELETE_SECONDS
            orphaned = pod.state is PodState.BUSY and not pod.use.recycling
            orphaned |= pod.state is PodState.STARTING and pod.seen.labelled_busy
            undeleted = pod.state is PodState.TERMINATING and (overdue or not deleted_for)
            # an earlier operator had no time to seal it, or somebody copied one of its pods
            unknown = not pod.trust.verified and not pod.start.created_here and pod.state is not PodState.TERMINATING
            if not orphaned and not undeleted and not unknown:
                continue
            found.add(pod.name)
            if at_once or pod.name in self._leftovers:
                log.warning("deleting the leftover pod %s", pod.name, extra={"pool": self.pool.name})
                self.pool.pods.retire(pod)
                self.services.tasks.spawn(
                    self.remover.delete(pod, grace_seconds=0 if overdue else 1), name=f"delete {pod.name}"
                )
        self._leftovers = found

    async def _reconcile(self) -> float | None:
        """Reconcile once. Return the seconds to the next reconcile, or None if only an event requires it."""
        pool, now = self.pool, monotonic()
        if pool.shape.spec is None:
            return await self.status_writer.write(now)
        await self.network_policy.ensure(now)
        if pool.shape.spec is None:  # deleted or changed meanwhile
            return await self.status_writer.write(monotonic())
        reviews = self._settle_pods(now)
        next_at = self._reconcile_pods(now)
        reviews += self._settle_pods(now)  # of pods that this reconcile has changed
        for review in reviews:
            if review.is_valid:
                self._tend(review)
        self.prober.recover_left()
        alterations_end_at = pool.isolation.alterations.expire(now)
        next_times = [next_at, self.library_reader.read_missing(now), alterations_end_at, pool.pods.next_at]
        status_after = await self.status_writer.write(monotonic())
        return self._next_reconcile_after(now, status_after, next_times)

    def _reconcile_pods(self, now: float) -> float | None:
        """Create and delete pods. Return when missing pods may be created, or None."""
        pool = self.pool
        # pods that an execution waits for are part of its binding; refill is not
        deferred = not pool.queue and self.services.write_priority.defer_seconds() > 0
        max_create = 0 if deferred else _MAX_CREATING - pool.counts.creating
        plan = pool.plan_pods(now=now, max_create=max_create)
        for pod in plan.delete:
            self.remover.retire(pod)
        pool.supply.update_lacking(pool.counts, now)
        for _ in range(plan.create):
            self._start_creation(now)
        times = [at for at in (plan.next_at, pool.uses.unserved.until) if at is not None]
        return min(times, default=None)

    def _next_reconcile_after(
        self, now: float, status_after: float | None, next_times: list[float | None]
    ) -> float | None:
        deferred = min(self.services.write_priority.defer_seconds(), _DEFER_CHECK_SECONDS)
        delays = [max(at - now, deferred) for at in next_times if at is not None]
        delays += [seconds for seconds in (status_after, self.pool.reconsider_after()) if seconds is not None]
        if self.network_policy.dirty:
            delays.append(self.network_policy.backoff.until - now)
        counts = self.pool.counts
        # time changes what is to be done
        if counts.coming or counts.owned or self.pool.supply.lacking_since is not None:
            delays.append(_RECHECK_SECONDS)
        return max(min(delays), 0.01) if delays else None

    def _settle_pods(self, now: float) -> list[PodReview]:
        reviews = self.pool.review(now)
        for review in reviews:
            self._settle(review)
        return reviews

    def _settle(self, review: PodReview) -> None:
        """Confirm or end a pod as its review says, before missing pods are counted."""
        pod = review.pod
        for action in review.actions:
            if action is PodAction.CONFIRM and pod.start.requested is not None and pod.seen.body is not None:
                self._confirm(pod.name, pod.start.requested, pod.seen.body)
            elif action is PodAction.COUNT_FAILURE and review.problem is not None:
                self.remover.record_failure(review.problem)
            elif action is PodAction.FAIL:
                self.remover.fail(pod, review.problem)
            elif action is PodAction.REPLACE:
                self._replace_stuck(pod, review.seconds)
            elif action is PodAction.END:
                self.remover.retire(pod)

    def _tend(self, review: PodReview) -> None:
        """Do what a review says about a pod that stays."""
        pod = review.pod
        for action in review.actions:
            if action is PodAction.PROBE:
                self.prober.probe(pod)
            elif action is PodAction.READ_LIBRARIES:
                self.library_reader.note(pod)
            elif action is PodAction.READ_EVENTS and pod.delay.read_events_at < math.inf:
                pod.delay.read_events_at = math.inf
                self.services.tasks.spawn(self._read_events(pod), name=f"events of {pod.name}")
            elif action is PodAction.GUARD and pod.seen.body is not None and pod.name not in self._guarding:
                self._guarding.add(pod.name)
                self.services.tasks.spawn(self._guard(pod, pod.seen.body), name=f"guard {pod.name}")

    def _replace_stuck(self, pod: Pod, seconds: float) -> None:
        """Replace a stuck pod. This is no failure of the pool: another pod became ready."""
        message = f"pod {pod.name} is not ready after {seconds:.0f} s, unlike a younger pod on its node; replacing it"
        message += f": {pod.delay.warning}" if pod.delay.warning else ""
        log.warning(message, extra={"pool": self.pool.name, "pod": pod.name})
        self.remover.count_failure(Reason.POD_FAILED)
        self.remover.retire(pod)

    async def _read_events(self, pod: Pod) -> None:
        try:
            warning = await self.services.api.get_pod_warning(self.pool.namespace, pod.name)
        except ApiError as error:
            pod.delay.read_events_at = monotonic() + _RECHECK_SECONDS
            self.pool.pods.touch(pod)
            log.warning("reading the Events of pod %s failed: %s", pod.name, error, extra={"pool": self.pool.name})
        else:
            self.pool.pods.note_warning(pod, warning)
            self.pool.changed()

    def _start_creation(self, now: float) -> None:
        suffix = "".join(random.SystemRandom().choices(_ALPHABET, k=6))
        name = f"{self.pool.name[:50].rstrip('-')}-{suffix}"
        self.pool.pods.add_expectation(name, template=self.pool.shape.template_hash, now=now)
        self.services.tasks.spawn(self._create(name), name=f"create {name}")

    async def _create(self, name: str) -> None:
        if self.pool.shape.spec is None:
            self.pool.pods.forget(name)
            return
        token = supervisor_token(key=self.services.supervisors.keys.signing, namespace=self.pool.namespace, pod=name)
        uid = self.pod_uid() if self.services.assign_users else None
        manifest = build_pod(
            spec=self.pool.shape.spec,
            pool=self.pool.identity,
            pod=PodIdentity(name=name, token_sha256=token_digest(token), uid=uid),
            template_hash=self.pool.shape.template_hash,
            isolation=self.services.isolation(),
            template_prefixes=self.pool.template_prefixes,
        )
        self.pool.supply.refused_fields = manifest.refused
        if (pod := self.pool.pods.get(name)) is not None:
            pod.start.requested = manifest.body
        try:
            created = await self.services.api.create_pod(manifest.body)
        except ApiError as error:
            self._handle_refusal(name, error)
        else:
            self._confirm(name, manifest.body, created)
        self.pool.changed()

    def _confirm(self, name: str, requested: Object, stored: Object) -> None:
        """Use a created pod, unless it differs from what was requested: then it is deleted."""
        self.pool.pods.confirm_created(name, uid=stored["metadata"]["uid"], now=monotonic())
        changed = find_changes(requested, stored)
        if not changed:
            if (pod := self.pool.pods.get(name)) is not None:
                self.inspector.accept(pod, stored)
            self.pool.supply.accept()
            return
        message = f"an admission webhook changed {', '.join(changed)} of pod {name}, which is not used"
        self._refuse(PodProblem(reason=Reason.POD_CHANGED, message=message), changed_fields=changed)
        if (pod := self.pool.pods.get(name)) is not None:
            pod.trust.verified = False
            self.remover.retire(pod)

    async def _guard(self, pod: Pod, item: Object) -> None:
        """Seal a pod, so that a later operator recognizes it, and make its owners those of the pool."""
        try:
            async with self._guard_slots:
                await self.services.write_priority.wait_until_idle()
                if pod.gone or pod.lost:
                    return
                patch = self.services.authenticator.build_seal_patch(item, self.pool.identity)
                stored = await self.services.api.patch_pod(self.pool.namespace, pod.name, patch, what="pod-seal")
                pod.trust.sealed = True
                if pod.seen.body is item and self.pool.pods.get(pod.name) is pod:
                    self.pool.pods.observe(stored, now=monotonic())
        except ApiError as error:
            log.warning("pod %s was not sealed: %s", pod.name, error, extra={"pool": self.pool.name})
            await asyncio.sleep(_RECHECK_SECONDS)
        finally:
            self._guarding.discard(pod.name)
            self.pool.pods.touch(pod)
            self.pool.changed()

    def _handle_refusal(self, name: str, error: ApiError) -> None:
        if error.code == 0:
            # it may exist: it counts until a watch or a list shows whether it does
            self.pool.pods.mark_uncertain(name, now=monotonic())
            log.warning("pod %s: %s", name, error, extra={"pool": self.pool.name})
        else:
            self.pool.pods.forget(name)
        if error.code != 409:  # the name is taken: the next one is not
            self._refuse(refusal_of(error))

    def _refuse(self, problem: PodProblem, *, changed_fields: tuple[str, ...] = ()) -> None:
        self.pool.supply.refuse(problem, now=monotonic(), changed_fields=changed_fields)
        self.remover.count_failure(problem.reason)
        self.remover.record_failure(problem)
