"""Binding of executions to pods: a warm pod or a wait for one, recorded in the status before any code runs."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from time import monotonic
from typing import Final

from pydantic import ValidationError

from mcp_exec_api.code_execution import CodeExecutionSpec, Phase, Priority, Start
from mcp_exec_api.execution_state import read_phase
from mcp_exec_api.meta import now
from mcp_exec_api.reasons import Reason
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.supervisor.client import SupervisorClient
from mcp_exec_operator.executions.admission import Admission, CodeCheckResult, check_still_wanted, parse_spec
from mcp_exec_operator.executions.binding import Binding, build_job, run_deadline_seconds, strip_spec
from mcp_exec_operator.executions.outcome import EndedBeforeRun, Superseded, build_failure
from mcp_exec_operator.executions.record import ExecutionRecord
from mcp_exec_operator.executions.spec_cache import SpecCache, SpecHold
from mcp_exec_operator.executions.status import build_bound_status, build_pending_status
from mcp_exec_operator.executions.status_writer import ExecutionStatusWriter
from mcp_exec_operator.executions.tools import GrantIssuer
from mcp_exec_operator.pods.cache import Pod
from mcp_exec_operator.pools.partition import Partition
from mcp_exec_operator.pools.pool import WarmPool
from mcp_exec_operator.pools.registry import PoolRegistry
from mcp_exec_operator.queueing.updates import QueueUpdate, first_update_after, next_update_after
from mcp_exec_operator.queueing.wait_queue import QueueFull, Waiter

_MAX_TIMEOUTS: Final = 20
"""How many bind timeouts an execution waits at most in a queue that moves."""
_CHECK_SECONDS: Final = 1.0
"""How often a waiting execution checks its partition and its deadline."""


@dataclass(frozen=True, kw_only=True)
class Binder:
    """Claims pods for executions."""

    pools: PoolRegistry
    writer: ExecutionStatusWriter
    supervisors: SupervisorClient
    specs: SpecCache
    tools: GrantIssuer
    admission: Admission
    bind_timeout_seconds: float
    clock: Callable[[], datetime] = now

    async def bind(self, record: ExecutionRecord) -> Binding:
        """Claim a pod, record it in the status, and begin to send the job.

        Raises EndedBeforeRun, Superseded and what ExecutionStatusWriter raises.
        """
        hold = await self.specs.acquire(record)
        try:
            spec = parse_spec(record, hold.spec)
            if spec.tools:
                await self.tools.check_broker()
            checked = await self.admission.check(spec, self.pools.get(record.pool))
            # the registry is asked again: the pool may have been deleted and created meanwhile
            pool = self.pools.get(record.pool)
            partition = pool.assign(record.variant_key)
            pod, start, priority = partition.take(), Start.WARM, spec.priority
            if pod is None:
                del spec
                self.specs.release(hold)  # thousands may wait
                start = Start.COLD
                partition, pod = await self._wait(record, pool, partition, priority)
            return await self._bind_to(record, partition, pod, start=start, checked=checked, hold=hold)
        except BaseException:
            self.specs.release(hold)
            raise

    async def _bind_to(
        self,
        record: ExecutionRecord,
        partition: Partition,
        pod: Pod,
        *,
        start: Start,
        checked: CodeCheckResult,
        hold: SpecHold,
    ) -> Binding:
        record.pod = pod.name
        binding: Binding | None = None
        try:
            if hold.spec is None:
                hold.take(await self.specs.acquire(record))
            spec = parse_spec(record, hold.spec)
            binding = Binding(
                partition=partition,
                pod=pod,
                spec=strip_spec(spec),
                release_job=lambda: self.specs.release(hold),
            )
            checked = await self.admission.check(spec, partition, earlier=checked)
            seconds = run_deadline_seconds(spec)
            if spec.tools:
                binding.tools = await self.tools.grant(record, binding, run_seconds=seconds)
            began = monotonic()
            connection = self.supervisors.get_connection(
                namespace=partition.namespace, pod=pod.name, address=pod.address
            )
            binding.pending_run = connection.prepare_run(
                build_job(record.uid, spec, binding.tools), timeout_seconds=seconds
            )
            await self._record(record, binding, start, checked)
        except BaseException as error:
            if binding is not None:
                binding.withdraw()
            # after a cancellation it is unknown whether the binding was recorded, so the pod is not released
            if isinstance(error, Exception):
                record.pod = None
                partition.release(pod)
            raise
        binding.bound = monotonic()
        binding.bind_milliseconds = (binding.bound - began) * 1000
        return binding

    async def adopt(self, record: ExecutionRecord) -> Binding:
        """Return the binding to the pod that the status names.

        Raises EndedBeforeRun if the spec is invalid now, and what SpecCache raises.
        """
        record.pod = str(record.status.get("podName") or "")
        partition, pod = self.pools.get(record.pool).adopt(record.pod, uid=record.pod_uid, now=monotonic())
        hold = await self.specs.acquire(record)
        try:
            spec = strip_spec(CodeExecutionSpec.model_validate(hold.spec))
        except ValidationError as error:
            message = "the spec was changed after its binding and is invalid"
            raise EndedBeforeRun(build_failure(Reason.REJECTED, message)) from error
        finally:
            self.specs.release(hold)
        return Binding(partition=partition, pod=pod, spec=spec)

    async def _record(self, record: ExecutionRecord, binding: Binding, start: Start, checked: CodeCheckResult) -> None:
        pod, moment, created = binding.pod, self.clock(), record.created_at()
        ready_seconds = monotonic() - pod.ready_at

        def decide(body: Object) -> Object | None:
            status, phase = body.get("status") or {}, read_phase(body)
            if phase is Phase.RUNNING and status.get("podName") == pod.name:
                return None  # an earlier attempt succeeded
            if phase is not Phase.PENDING:
                raise Superseded
            check_still_wanted(record)
            return build_bound_status(
                status,
                pod=pod.name,
                pod_uid=pod.uid,
                node=pod.node,
                start=start,
                ready_seconds=ready_seconds,
                digest=record.digest,
                variant=binding.partition.variant,
                code_findings=checked.findings,
                moment=moment,
                created=created,
            )

        await self.writer.write(record, decide, what="bind")

    async def _wait(
        self, record: ExecutionRecord, pool: WarmPool, partition: Partition, priority: Priority
    ) -> tuple[Partition, Pod]:
        """Wait for a pod, and write the reason and the queue position to the status meanwhile.

        Returns the pod with its partition, which is another one if the first was ejected meanwhile.
        """
        waiter = self._join(record, pool, partition, priority)
        began = monotonic()
        written, write_at = QueueUpdate.from_status(record.status), began + first_update_after(len(partition.queue))
        try:
            while not waiter.future.done():
                next_at = min(self._deadline(began, partition), write_at)
                await waiter.pause(min(_CHECK_SECONDS, max(0.0, next_at - monotonic())))
                if waiter.future.done():
                    break
                record.wakeup.clear()
                check_still_wanted(record)
                if not partition.allocation.accepting:
                    partition.leave(waiter)
                    partition = pool.assign(record.variant_key)
                    waiter = self._join(record, pool, partition, priority)
                at = monotonic()
                if at >= self._deadline(began, partition):
                    problem = pool.explain_shortage(partition)
                    raise EndedBeforeRun(build_failure(problem.reason, problem.message))
                if at >= write_at:
                    write_at = at + next_update_after(len(partition.queue))
                    written = await self._write_pending(record, pool, partition, waiter, written)
        except BaseException:
            partition.leave(waiter)
            self.pools.discard(pool)
            raise
        return partition, waiter.future.result()

    def _join(self, record: ExecutionRecord, pool: WarmPool, partition: Partition, priority: Priority) -> Waiter:
        try:
            waiter = pool.wait(partition, caller=record.caller, priority=priority)
        except QueueFull as error:
            message = f"{error}: {pool.explain_shortage(partition).message}"
            raise EndedBeforeRun(build_failure(Reason.QUEUE_FULL, message)) from error
        waiter.wakeup = record.wakeup
        return waiter

    def _deadline(self, began: float, partition: Partition) -> float:
        """Return when the wait ends: later while the queue moves, but not without limit."""
        latest = began + _MAX_TIMEOUTS * self.bind_timeout_seconds
        return min(max(began, partition.served_at) + self.bind_timeout_seconds, latest)

    async def _write_pending(
        self, record: ExecutionRecord, pool: WarmPool, partition: Partition, waiter: Waiter, written: QueueUpdate
    ) -> QueueUpdate:
        """Write why the execution waits, if that differs enough from what is written. Return what is written now."""
        problem, place = pool.explain_shortage(partition), partition.queue.place(waiter, monotonic())
        update = QueueUpdate(reason=problem.reason, place=place)
        if not update.differs_enough_from(written):
            return written

        def decide(body: Object) -> Object | None:
            if read_phase(body) is not Phase.PENDING:
                raise Superseded
            return build_pending_status(
                body.get("status") or {},
                reason=problem.reason,
                message=problem.message,
                place=place,
                moment=self.clock(),
                created=record.created_at(),
            )

        await self.writer.write(record, decide, what="pending")
        return update
