"""Binding of executions to pods: a warm pod or a wait for one, recorded in the status before any code runs."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from math import inf
from time import monotonic
from typing import Final

from mcp_exec_api.code_execution import Phase, Start, read_phase
from mcp_exec_api.files import Owner
from mcp_exec_api.meta import now
from mcp_exec_api.reasons.execution import Reason
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.supervisor.client import SupervisorClient
from mcp_exec_operator.executions.features import Attempt, longest_run_seconds
from mcp_exec_operator.executions.outcome import EndedBeforeRun, Superseded, build_failure
from mcp_exec_operator.executions.record import BoundPod, ExecutionRecord
from mcp_exec_operator.executions.specs import check_still_wanted
from mcp_exec_operator.executions.status import ExecutionStatusWriter, build_bound_status, build_pending_status
from mcp_exec_operator.pods.pod import Pod
from mcp_exec_operator.pools.pool import Pool
from mcp_exec_operator.pools.registry import PoolRegistry
from mcp_exec_operator.pools.reuse import reuses_pods
from mcp_exec_operator.queueing.turns import QueueUpdate, first_update_after, next_update_after
from mcp_exec_operator.queueing.wait_queue import QueueFull, Waiter

_MAX_TIMEOUTS: Final = 20
"""How many bind timeouts an execution waits at most in a queue that moves."""
_REPORT_SECONDS: Final = 30.0
"""How long an execution waits for a pod before an Event reports it."""
_CHECK_SECONDS: Final = 1.0
"""How often a waiting execution checks its pool and its deadline."""


@dataclass(frozen=True, kw_only=True)
class Binder:
    """Claims pods for executions, and records which pod an execution has."""

    pools: PoolRegistry
    writer: ExecutionStatusWriter
    supervisors: SupervisorClient
    bind_timeout_seconds: float
    clock: Callable[[], datetime] = now

    async def claim(self, attempt: Attempt) -> Start:
        """Claim a pod: that of the session, a warm one, or after a wait a new one. Return which.

        Raises EndedBeforeRun, Superseded and what ExecutionStatusWriter raises.
        """
        record, session = attempt.record, attempt.session
        # the registry is asked only now: the pool may have been deleted and created meanwhile
        attempt.pool = pool = self.pools.get(record.pool)
        if session is not None and session.pod is not None:
            pod, start = session.pod, Start.SESSION
        else:
            taken = pool.take(_find_owner(record, pool))
            if taken is None:
                attempt.held.release()  # thousands may wait
                pod, start = await self._wait(attempt, pool), Start.COLD
            else:
                pod, start = taken, Start.WARM
            start = Start.REUSED if pod.uses else start
        attempt.pod, record.pod = pod, pod.name
        owner = record.owner if record.session is not None else _find_owner(record, pool)
        attempt.owner = owner.digest if owner is not None else None
        pod.caller = record.caller
        return start

    async def bind(self, attempt: Attempt, *, start: Start) -> None:
        """Record the claimed pod in the status, and begin to send the job meanwhile. Raises what `claim` raises."""
        pool, pod = attempt.pool, attempt.pod
        skills = sorted(attempt.skills.sources) if attempt.skills is not None else []
        spec = await attempt.held.load()
        began = monotonic()
        connection = self.supervisors.get_connection(namespace=pool.namespace, pod=pod.name, address=pod.address)
        attempt.pending_run = connection.prepare_run(
            attempt.build_job(spec), timeout_seconds=longest_run_seconds(attempt.spec)
        )
        if attempt.owner is None or pod.owner:
            await self._record(attempt, start, skills)
        else:
            # the owner of a pod that may be used again stands in its label
            recorded, claimed = await asyncio.gather(
                self._record(attempt, start, skills),
                self.pools.claim(pool, pod, owner=attempt.owner),
                return_exceptions=True,
            )
            if isinstance(recorded, BaseException):
                raise recorded
            if claimed is not True:
                attempt.owner = None  # the pod is deleted after this execution
            pod.owned_since = monotonic()
        pod.uses += 1
        attempt.bound = monotonic()
        attempt.bind_milliseconds = (attempt.bound - began) * 1000
        attempt.record.bound = BoundPod(pod, attempt.owner)

    def adopt(self, attempt: Attempt) -> None:
        """Take over the pod that the status names."""
        record = attempt.record
        name = record.pod = str(record.status.get("podName") or "")
        attempt.pool = self.pools.get(record.pool)
        attempt.pod = pod = attempt.pool.pods.adopt(name, uid=record.pod_uid, now=monotonic())
        owner = record.owner.digest
        # without the label another operator may not have recorded the owner: the pod serves this execution only
        attempt.owner = owner if record.session is not None or pod.owner == owner else None
        attempt.needs_job = False
        record.bound = BoundPod(pod, attempt.owner)

    async def _record(self, attempt: Attempt, start: Start, skills: list[str]) -> None:
        record, pod = attempt.record, attempt.pod
        moment, created, ready_seconds = self.clock(), record.created_at(), monotonic() - pod.ready_at

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
                uses=pod.uses,
                digest=record.digest,
                code_findings=attempt.findings,
                skills=skills,
                moment=moment,
                created=created,
            )

        await self.writer.write(record, decide, what="bind")

    async def _wait(self, attempt: Attempt, pool: Pool) -> Pod:
        """Wait for a pod, and write the reason and the queue position to the status meanwhile."""
        record = attempt.record
        waiter = self._join(attempt, pool)
        began = monotonic()
        report_at = began + _REPORT_SECONDS
        written, write_at = QueueUpdate.from_status(record.status), began + first_update_after(len(pool.queue))
        try:
            while not waiter.future.done():
                next_at = min(self._deadline(began, pool), write_at)
                await waiter.pause(min(_CHECK_SECONDS, max(0.0, next_at - monotonic())))
                if waiter.future.done():
                    break
                record.wakeup.clear()
                check_still_wanted(record)
                at = monotonic()
                if at >= self._deadline(began, pool):
                    problem = pool.explain_shortage()
                    raise EndedBeforeRun(build_failure(problem.reason, problem.message))
                if at >= report_at:
                    report_at = inf
                    problem, place = pool.explain_shortage(), pool.queue.place(waiter, at)
                    message = f"has no pod after {_REPORT_SECONDS:.0f} s: {problem.message}; {place}"
                    self.writer.report(record, reason=problem.reason.value or "Queued", message=message)
                if at >= write_at:
                    write_at = at + next_update_after(len(pool.queue))
                    written = await self._write_pending(record, pool, waiter, written)
        except BaseException:
            pool.leave(waiter)
            self.pools.discard(pool)
            raise
        return waiter.future.result()

    def _join(self, attempt: Attempt, pool: Pool) -> Waiter:
        record = attempt.record
        try:
            owner = _find_owner(record, pool)
            return pool.join(caller=record.caller, priority=attempt.spec.priority, owner=owner, wakeup=record.wakeup)
        except QueueFull as error:
            message = f"{error}: {pool.explain_shortage().message}"
            raise EndedBeforeRun(build_failure(Reason.QUEUE_FULL, message)) from error

    def _deadline(self, began: float, pool: Pool) -> float:
        """Return when the wait ends: later while the queue moves, but not without limit."""
        latest = began + _MAX_TIMEOUTS * self.bind_timeout_seconds
        return min(max(began, pool.served_at) + self.bind_timeout_seconds, latest)

    async def _write_pending(
        self, record: ExecutionRecord, pool: Pool, waiter: Waiter, written: QueueUpdate
    ) -> QueueUpdate:
        """Write why the execution waits, if that differs enough from what is written. Return what is written now."""
        problem, place = pool.explain_shortage(), pool.queue.place(waiter, monotonic())
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


def _find_owner(record: ExecutionRecord, pool: Pool) -> Owner | None:
    """Return the owner whose used pods the execution may get; None if it needs one that nobody has used."""
    return record.owner if record.session is None and reuses_pods(pool.spec) else None
