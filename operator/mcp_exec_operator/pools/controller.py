"""Keeps one pool as it should be: makes pods, finds out when they are ready, ends those that are too many or failed."""

import asyncio
import logging
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Final

from mcp_exec_api.code_execution import Reason
from mcp_exec_api.meta import now
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.reflector import ObjectKey
from mcp_exec_common.process.tasks import TaskRegistry
from mcp_exec_common.supervisor.client import SupervisorClient
from mcp_exec_common.supervisor.tokens import supervisor_token, token_digest
from mcp_exec_operator.kube.api import OperatorApi
from mcp_exec_operator.kube.write_priority import WritePriority
from mcp_exec_operator.metrics import Metrics
from mcp_exec_operator.pods.cache import Pod, PodState
from mcp_exec_operator.pods.manifest import FIRST_UID, LAST_UID, PodIdentity, build_pod
from mcp_exec_operator.pods.status import PodProblem, age_of_deletion, refusal_of, starting_problem
from mcp_exec_operator.pools.isolation import NetworkPolicyEnforcer
from mcp_exec_operator.pools.partition import Partition
from mcp_exec_operator.pools.readiness import OnWarm, ReadinessProber
from mcp_exec_operator.pools.status_writer import PoolStatusWriter

log = logging.getLogger(__name__)

_ANSWER_FIRST_SECONDS: Final = 0.05
"""How long a used pod is left alone: its deletion, and the start of another, must not compete with the answer."""
_AT_ONCE: Final = 8
"""Pods of one pool that are asked for at the same time."""
_PUT_OFF_SECONDS: Final = 0.1
"""How often it is asked whether there are still so many claims that pods are not made ahead."""
_GATHER_SECONDS: Final = 0.01
"""How long what happens to a pool is gathered before it is looked at: a look costs more with each pod."""
_LOOK_AGAIN_SECONDS: Final = 2.0
"""How often a pool is looked at while pods start, beside whenever something happens to it."""
_LOOK_FOR_EVENTS_SECONDS: Final = 10.0
"""How long a pod may be created by its node before its Events are read for a reason."""
_FORCE_SECONDS: Final = 120.0
"""How long after its deletion a pod may stay, on a node that may be lost, before it is deleted without its node."""
_BLAME_AGAIN_SECONDS: Final = 10.0
"""How long a pod's image fails to be pulled until its variant is blamed once more: the pod is held, not replaced."""
_NO_FAULT: Final = frozenset({Reason.POOL_UNAVAILABLE, Reason.QUOTA_EXCEEDED, Reason.UNSCHEDULABLE})
"""Why pods don't become ready without their variant's fault: there is no room, or no answer."""
_ALPHABET: Final = "bcdfghjkmnpqrstvwxz2456789"


@dataclass(frozen=True, kw_only=True)
class PoolControllerConfig:
    """What all keepers share."""

    release_namespace: str
    forbidden_address: str
    pod_start_timeout_seconds: float
    broker: bool = False
    """Whether there is a broker that sandboxes may reach."""


@dataclass(kw_only=True, eq=False)
class PoolController:
    """The task of one pool. Decisions are the pool's; the calls to API server and supervisors are made here."""

    pool: Partition
    api: OperatorApi
    sandboxes: SupervisorClient
    tasks: TaskRegistry
    metrics: Metrics
    config: PoolControllerConfig
    report: PoolStatusWriter
    """The whole pool's, which the keeper of its base alone writes."""
    write_priority: WritePriority = field(default_factory=WritePriority)
    """What its own work is put off for."""
    pod_uid: Callable[[], int] = lambda: random.SystemRandom().randint(FIRST_UID, LAST_UID)
    on_warm: OnWarm = lambda pool, pod: None
    wall: NetworkPolicyEnforcer = field(init=False)
    prober: ReadinessProber = field(init=False)
    _leftovers: set[str] = field(default_factory=set)
    """Pods that the last sweep found to be of no use."""

    def __post_init__(self) -> None:
        # all parts of a pool share the policy that its base sees to
        self.wall = NetworkPolicyEnforcer(
            pool=self.pool,
            api=self.api,
            release_namespace=self.config.release_namespace,
            broker=self.config.broker,
            wanted=not self.pool.variant,
        )
        self.prober = ReadinessProber(
            pool=self.pool,
            sandboxes=self.sandboxes,
            tasks=self.tasks,
            metrics=self.metrics,
            timeout_seconds=self.config.pod_start_timeout_seconds,
            retire=self.retire,
            on_warm=self.on_warm,
        )

    async def run(self) -> None:
        """Works until it is cancelled."""
        while True:
            self.pool.kicked.clear()
            try:
                wake_in = await self._turn()
            except Exception:
                # whatever it is, the pool goes on being kept
                log.exception("pool %s can't be kept", self.pool.name, extra={"pool": self.pool.name})
                wake_in = _LOOK_AGAIN_SECONDS
            with suppress(TimeoutError):
                # not wait_for, which before Python 3.12 may lose a cancellation
                async with asyncio.timeout(wake_in):
                    await self.pool.kicked.wait()
                    await asyncio.sleep(_GATHER_SECONDS)

    def retire(self, pod: Pod) -> None:
        """Ends a pod, once and for all."""
        if self.pool.inventory.retire(pod):
            self.tasks.spawn(self._replace(pod), name=f"delete {pod.name}")

    def end_leftovers(self, held: set[ObjectKey], *, at_once: bool) -> None:
        """Ends pods that run, or ran, for no execution that has one, and those whose deletion did not get through.

        A pod is so for a moment while it changes hands, so it has to be found so twice, but for the first sweep
        (`at_once`): then none changes hands yet, and an operator that dies young must not leave them to take room.
        """
        found: set[str] = set()
        for pod in self.pool.inventory.all():
            if (self.pool.namespace, pod.name) in held:
                continue
            deleted_for = age_of_deletion(pod.newest, now()) if pod.newest is not None else 0.0
            stuck = deleted_for > _FORCE_SECONDS
            left = pod.state is PodState.BUSY or (pod.state is PodState.STARTING and pod.labelled_busy)
            undead = pod.state is PodState.TERMINATING and (stuck or not deleted_for)
            if not left and not undead:
                continue
            found.add(pod.name)
            if at_once or pod.name in self._leftovers:
                log.warning("pod %s is left over and is deleted", pod.name, extra={"pool": self.pool.name})
                self.pool.inventory.retire(pod)
                self.tasks.spawn(self._delete(pod, grace_seconds=0 if stuck else 1), name=f"delete {pod.name}")
        self._leftovers = found

    async def _turn(self) -> float | None:
        """One look at everything. Returns the seconds to the next, or None where only an event calls for it."""
        pool, at = self.pool, monotonic()
        if pool.spec is None:
            return await self._tell(at)
        await self.wall.verify(at)
        self._end_failed(at)
        pool.decide(at)
        for pod in pool.stock.surplus(at):
            self.retire(pod)
        pool.note_warmth(at)
        self.prober.probe_started()
        # pods that somebody waits for are part of a claim, those that are made ahead are not
        yields = not pool.waiters and self.write_priority.defer_seconds() > 0
        room = 0 if yields else _AT_ONCE - pool.inventory.counts.creating
        for _ in range(pool.stock.missing(at, room=room)):
            self._ask_for_pod(at)
        report_in = await self._tell(monotonic())
        return self._next_look(at, report_in)

    async def _tell(self, at: float) -> float | None:
        if not self.pool.variant:
            return await self.report.write(at)
        self.pool.mixture.base.kicked.set()
        return None

    def _next_look(self, at: float, report_in: float | None) -> float | None:
        pool = self.pool
        times = [report_in] if report_in is not None else []
        if (missing_at := pool.stock.missing_at(at)) is not None:
            times.append(max(missing_at - at, min(self.write_priority.defer_seconds(), _PUT_OFF_SECONDS)))
        if (look_in := pool.look_in()) is not None:
            times.append(look_in)
        if self.wall.wanted:
            times.append(self.wall.backoff.until - at)
        if pool.inventory.counts.coming or pool.lacking_since is not None:
            times.append(_LOOK_AGAIN_SECONDS)
        return max(min(times), 0.01) if times else None

    def _end_failed(self, at: float) -> None:
        for pod in self.pool.inventory.failed():
            self._fail(pod, starting_problem(pod.newest) if pod.newest is not None else None, at)
        for pod in self.pool.inventory.all(PodState.STARTING):
            self._judge_slow(pod, at)

    def _judge_slow(self, pod: Pod, at: float) -> None:
        problem = starting_problem(pod.newest) if pod.newest is not None else None
        if problem is not None and problem.held:
            pod.held_at = at
            if problem.reason is Reason.IMAGE_PULL_FAILED and at >= pod.blame_at:
                pod.blame_at = at + _BLAME_AGAIN_SECONDS
                self._blame(problem)
            return
        waited = pod.starting_for(at, now())
        if self.pool.stragglers.is_stuck(pod, at):
            self._give_up(pod, waited)
        elif waited > self.config.pod_start_timeout_seconds:
            message = pod.warning or f"pod {pod.name} was not ready after {waited:.0f} s"
            self._fail(pod, problem or PodProblem(reason=Reason.POD_FAILED, message=message), at)
        elif waited > _LOOK_FOR_EVENTS_SECONDS and not pod.address and not pod.looked_for_events:
            pod.looked_for_events = True
            self.tasks.spawn(self._look_for_events(pod), name=f"events of {pod.name}")

    def _give_up(self, pod: Pod, waited: float) -> None:
        """It is stuck. Nothing is wrong with the pool: another came up."""
        told = f"not ready after {waited:.0f} s, as one is that was made later on its node; it is replaced"
        message = f"pod {pod.name}: {told}" + (f": {pod.warning}" if pod.warning else "")
        log.warning(message, extra={"pool": self.pool.name, "pod": pod.name})
        self.metrics.pod_failures.labels(self.pool.name, Reason.POD_FAILED).inc()
        self.retire(pod)

    def _fail(self, pod: Pod, problem: PodProblem | None, at: float) -> None:
        pool = self.pool
        pool.failure = problem or PodProblem(reason=Reason.POD_FAILED, message=f"pod {pod.name} failed")
        pool.backoff.fail(at)
        self.metrics.pod_failures.labels(pool.name, pool.failure.reason).inc()
        if not pod.ready_at:
            self._blame(pool.failure)
        log.warning("pod %s: %s", pod.name, pool.failure.message, extra={"pool": pool.name, "pod": pod.name})
        self.retire(pod)

    def _blame(self, problem: PodProblem) -> None:
        """A pod did not become ready for a reason that may be its variant's."""
        if self.pool.variant and problem.reason not in _NO_FAULT:
            self.pool.mixture.record(self.pool.variant).failed(problem.message)
            self.pool.kicked.set()

    async def _look_for_events(self, pod: Pod) -> None:
        pod.warning = await self.api.get_pod_warning(self.pool.namespace, pod.name)
        self.pool.kicked.set()

    def _ask_for_pod(self, at: float) -> None:
        pool = self.pool
        suffix = "".join(random.SystemRandom().choices(_ALPHABET, k=6))
        name = f"{pool.name[:50].rstrip('-')}-{suffix}"
        pool.inventory.expect(name, template=pool.template, now=at)
        self.tasks.spawn(self._create(name), name=f"create {name}")

    async def _create(self, name: str) -> None:
        pool = self.pool
        if pool.spec is None:
            pool.inventory.forget(name)
            return
        token = supervisor_token(key=self.sandboxes.key, namespace=pool.namespace, pod=name)
        identity = PodIdentity(name=name, token_sha256=token_digest(token), uid=self.pod_uid())
        manifest = build_pod(
            spec=pool.spec,
            pool=pool.identity,
            pod=identity,
            template_hash=pool.template,
            forbidden_address=self.config.forbidden_address,
            variant=pool.variant,
        )
        pool.refused_fields = manifest.refused
        try:
            made = await self.api.create_pod(manifest.body)
        except ApiError as error:
            self._refused(name, error)
        else:
            if pool.refusal is not None:
                pool.refusal = None
                pool.backoff.succeed()
            pool.inventory.created(name, uid=made["metadata"]["uid"], now=monotonic())
        pool.kicked.set()

    def _refused(self, name: str, error: ApiError) -> None:
        pool = self.pool
        if error.code == 0:
            # it may have been made: it goes on being counted until a watch or a list tells
            pool.inventory.doubt(name, now=monotonic())
            log.warning("pod %s: %s", name, error, extra={"pool": pool.name})
        else:
            pool.inventory.forget(name)
        if error.code != 409:  # the name is taken: another one will do
            pool.refusal = refusal_of(error)
            self.metrics.pod_failures.labels(pool.name, pool.refusal.reason).inc()
            self._blame(pool.refusal)
            pool.backoff.fail(monotonic())

    async def _replace(self, pod: Pod) -> None:
        await asyncio.sleep(_ANSWER_FIRST_SECONDS)
        if not self.pool.waiters:
            await self.write_priority.wait_until_idle()
        self.pool.room_was_made()
        await self._delete(pod)

    async def _delete(self, pod: Pod, *, grace_seconds: int = 1) -> None:
        try:
            await self.api.delete_pod(self.pool.namespace, pod.name, uid=pod.uid, grace_seconds=grace_seconds)
        except ApiError as error:
            # the next sweep finds it and tries again
            log.warning("pod %s was not deleted: %s", pod.name, error, extra={"pool": self.pool.name})
