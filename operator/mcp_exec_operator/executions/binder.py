"""Binds an execution to a pod: takes one that is warm or waits for one, and records it before any code runs."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from time import monotonic
from typing import Final

from pydantic import ValidationError

from mcp_exec_api.code_execution import CodeExecutionSpec, Phase, Priority, QueuePlace, Reason, Start
from mcp_exec_api.meta import field_errors, now
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.supervisor.client import PendingRun, SupervisorClient
from mcp_exec_common.supervisor.protocol import Job, JobTools
from mcp_exec_operator.executions.admission import Checked, CodeChecks
from mcp_exec_operator.executions.outcome import Decided, Superseded
from mcp_exec_operator.executions.record import Entry, phase_of
from mcp_exec_operator.executions.status import bound_status, cancelled, created_at, failed, pending_status
from mcp_exec_operator.executions.status_writer import StatusWriter
from mcp_exec_operator.executions.tools import Tooling
from mcp_exec_operator.pods.cache import Pod
from mcp_exec_operator.pods.status import PodProblem
from mcp_exec_operator.pools.partition import Partition
from mcp_exec_operator.pools.pool import WarmPool
from mcp_exec_operator.pools.registry import PoolRegistry
from mcp_exec_operator.queueing.updates import QueueUpdate, first_update_after, next_update_after
from mcp_exec_operator.queueing.wait_queue import QueueFull, Waiter

_MOST_WAITS: Final = 20
"""How many times its bound an execution may wait in a queue that moves."""
_BACKSTOP_SECONDS: Final = 15.0
"""How long after its time-out a run that has not ended is ended here."""
_LOOK_SECONDS: Final = 1.0
"""How often one that waits looks whether it is still wanted."""


@dataclass(kw_only=True, eq=False)
class Lease:
    """The pod that an execution has, until it is retired."""

    pool: Partition
    pod: Pod
    bound: float | None = None
    """When the binding was recorded, by the monotonic clock; None where another operator recorded it."""
    bind_milliseconds: float | None = None
    spec: CodeExecutionSpec | None = None
    """What runs; None where another operator bound it."""
    tools: JobTools | None = None
    """What its job says of its tools; None where it has none, and where another operator bound it."""
    offer: PendingRun | None = None
    """The job on its way to the pod; None once it is handed over."""

    def withdraw(self) -> None:
        """Breaks the offer off, if it still stands."""
        if self.offer is not None:
            self.offer.withdraw()
            self.offer = None


def job_of(entry: Entry, spec: CodeExecutionSpec, tools: JobTools | None = None) -> Job:
    """What the execution's sandbox is asked to run."""
    return Job(
        id=entry.uid,
        code=spec.code,
        context=spec.context,
        timeout_seconds=spec.timeout_seconds,
        output_bytes=spec.limits.output_bytes,
        tools=tools,
    )


def longest_run(spec: CodeExecutionSpec) -> float:
    """Seconds after which a run that has not ended is ended here."""
    return spec.timeout_seconds + _BACKSTOP_SECONDS


@dataclass(frozen=True, kw_only=True)
class Binder:
    """Takes pods for executions."""

    pools: PoolRegistry
    writer: StatusWriter
    sandboxes: SupervisorClient
    tooling: Tooling
    checks: CodeChecks
    bind_timeout_seconds: float
    clock: Callable[[], datetime] = now

    async def bind(self, entry: Entry) -> Lease:
        """The execution's pod, recorded in its status. Raises Decided and Superseded, and what the writer raises."""
        spec = self.checked(entry)
        if spec.tools:
            self.tooling.check()
        pool = self.pools.get(entry.pool)
        self._check_pool(spec, pool)
        checked = await self.checks.check(spec, pool)
        pool = self.pools.get(entry.pool)  # it may have been deleted and made anew meanwhile
        partition = pool.assign(entry.variant_key)
        pod, start = partition.take(), Start.WARM
        if pod is None:
            start = Start.COLD
            partition, pod = await self._wait(entry, pool, partition, spec.priority)
        entry.pod = pod.name
        lease = Lease(pool=partition, pod=pod, spec=spec)
        try:
            self._check_pool(spec, partition)
            checked = await self.checks.check(spec, partition, before=checked)
            if spec.tools:
                lease.tools = await self.tooling.equip(
                    entry, spec, pool=partition, pod=pod, run_seconds=longest_run(spec)
                )
            began = monotonic()
            sandbox = self.sandboxes.get_connection(namespace=partition.namespace, pod=pod.name, address=pod.address)
            lease.offer = sandbox.prepare_run(job_of(entry, spec, lease.tools), timeout_seconds=longest_run(spec))
            await self._record(entry, pod, start, partition.variant, checked)
        except BaseException as error:
            lease.withdraw()
            # after a cancellation nobody knows whether it is recorded, so nobody else may have the pod
            if isinstance(error, Exception):
                entry.pod = None
                partition.release(pod)
            raise
        lease.bound = monotonic()
        lease.bind_milliseconds = (lease.bound - began) * 1000
        return lease

    def adopt(self, entry: Entry) -> Lease:
        """The pod that the execution's status names."""
        pool = self.pools.get(entry.pool)
        entry.pod = str(entry.status.get("podName") or "")
        partition, pod = pool.adopt(entry.pod, now=monotonic())
        return Lease(pool=partition, pod=pod)

    def checked(self, entry: Entry) -> CodeExecutionSpec:
        """The execution's spec. Raises Decided where it can't run, or is not wanted any more."""
        if entry.cancel_requested:
            raise Decided(cancelled())
        try:
            return CodeExecutionSpec.model_validate(entry.spec)
        except ValidationError as error:
            text = "; ".join(f"spec.{found.field}: {found.message}" for found in field_errors(error))
            raise Decided(failed(Reason.REJECTED, text)) from error

    def _check_pool(self, spec: CodeExecutionSpec, pool: WarmPool | Partition) -> None:
        if pool.spec is not None and spec.timeout_seconds > pool.spec.max_timeout_seconds:
            most = pool.spec.max_timeout_seconds
            message = f"spec.timeoutSeconds: {spec.timeout_seconds} is more than the {most} of pool {pool.name}"
            raise Decided(failed(Reason.REJECTED, message))

    async def _record(self, entry: Entry, pod: Pod, start: Start, variant: str, checked: Checked) -> None:
        moment = self.clock()
        created = created_at(entry.body, first_seen=entry.first_seen)
        ready_seconds = monotonic() - pod.ready_at

        def decide(body: Object) -> Object | None:
            status = body.get("status") or {}
            if phase_of(body) is not Phase.PENDING:
                if phase_of(body) is Phase.RUNNING and status.get("podName") == pod.name:
                    return None  # an earlier attempt got through
                raise Superseded
            self._still_wanted(entry)
            return bound_status(
                status,
                pod=pod.name,
                node=pod.node,
                start=start,
                ready_seconds=ready_seconds,
                digest=entry.digest,
                variant=variant,
                code_findings=checked.findings,
                moment=moment,
                created=created,
            )

        await self.writer.write(entry, decide, what="bind")

    async def _wait(
        self, entry: Entry, pool: WarmPool, partition: Partition, priority: Priority
    ) -> tuple[Partition, Pod]:
        """Wait for a pod. Return it and its partition, which is another one if the first variant was ejected meanwhile.

        Updates the reason and the position in the status as often as is useful.
        """
        waiter = self._join(entry, pool, partition, priority)
        began = monotonic()
        told, tell_at = QueueUpdate.from_status(entry.status), began + first_update_after(len(partition.queue))
        try:
            while not waiter.future.done():
                next_at = min(self._deadline(began, partition), tell_at)
                await waiter.pause(min(_LOOK_SECONDS, max(0.0, next_at - monotonic())))
                if waiter.future.done():
                    break
                entry.wakeup.clear()
                self._still_wanted(entry)
                if not partition.allocation.accepting:
                    partition.leave(waiter)
                    partition = pool.assign(entry.variant_key)
                    waiter = self._join(entry, pool, partition, priority)
                at = monotonic()
                if at >= self._deadline(began, partition):
                    problem = pool.explain_shortage(partition)
                    raise Decided(failed(problem.reason, problem.message))
                if at >= tell_at:
                    tell_at = at + next_update_after(len(partition.queue))
                    problem, place = pool.explain_shortage(partition), partition.queue.place(waiter, at)
                    news = QueueUpdate(reason=problem.reason, place=place)
                    if news.differs_enough_from(told):
                        told = news
                        await self._tell(entry, problem, place)
        except BaseException:
            partition.leave(waiter)
            self.pools.discard(pool)
            raise
        return partition, waiter.future.result()

    def _join(self, entry: Entry, pool: WarmPool, partition: Partition, priority: Priority) -> Waiter:
        try:
            waiter = pool.wait(partition, caller=entry.caller, priority=priority)
        except QueueFull as error:
            problem = pool.explain_shortage(partition)
            raise Decided(failed(Reason.QUEUE_FULL, f"{error}: {problem.message}")) from error
        waiter.wakeup = entry.wakeup
        return waiter

    def _deadline(self, began: float, partition: Partition) -> float:
        """Return until when it waits: longer in a queue that moves, but not forever."""
        longest = began + _MOST_WAITS * self.bind_timeout_seconds
        return min(max(began, partition.served_at) + self.bind_timeout_seconds, longest)

    async def _tell(self, entry: Entry, problem: PodProblem, place: QueuePlace) -> None:
        def decide(body: Object) -> Object | None:
            if phase_of(body) is not Phase.PENDING:
                raise Superseded
            return pending_status(
                body.get("status") or {},
                reason=problem.reason,
                message=problem.message,
                place=place,
                moment=self.clock(),
                created=created_at(body, first_seen=entry.first_seen),
            )

        await self.writer.write(entry, decide, what="pending")

    def _still_wanted(self, entry: Entry) -> None:
        if entry.cancel_requested:
            raise Decided(cancelled())
        if entry.changed:
            names = " and ".join(f"spec.{name}" for name in entry.changed)
            raise Decided(failed(Reason.REJECTED, f"{names} was changed after creation"))
