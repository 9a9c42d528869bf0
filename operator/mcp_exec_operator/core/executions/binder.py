"""Binding of executions to pods: a warm pod or a wait for one, recorded in the status before any code runs."""

import asyncio
from dataclasses import dataclass
from math import inf
from time import monotonic
from typing import Final

from mcp_exec_api.code_execution import Start
from mcp_exec_api.reasons.event import EventReason
from mcp_exec_api.reasons.execution import Reason
from mcp_exec_common.supervisor.client import SupervisorClient
from mcp_exec_operator.core.executions.attempt import Attempt, Feature
from mcp_exec_operator.core.executions.outcome import EndedBeforeRun, build_failure
from mcp_exec_operator.core.executions.record import BoundPod
from mcp_exec_operator.core.executions.waiting import WaitReport
from mcp_exec_operator.core.executions.writer import ExecutionStatusWriter
from mcp_exec_operator.core.pods.pod import Pod
from mcp_exec_operator.core.pools.registry import PoolRegistry
from mcp_exec_operator.core.queueing.wait_queue import QueueFull

_MAX_TIMEOUTS: Final = 20
"""How many bind timeouts an execution waits at most in a queue that moves."""
_REPORT_SECONDS: Final = 30.0
"""How long an execution waits for a pod before an Event reports it. That there is no such pool is reported at once."""
_CHECK_SECONDS: Final = 1.0
"""How often a waiting execution checks its pool and its deadline."""


@dataclass(frozen=True, kw_only=True)
class Binder:
    """Claims pods for executions, and records which pod an execution has."""

    pools: PoolRegistry
    writer: ExecutionStatusWriter
    features: tuple[Feature, ...]
    supervisors: SupervisorClient
    bind_timeout_seconds: float

    async def bind(self, attempt: Attempt) -> None:
        """Claim a pod, prepare the run in it, and record the binding. Begin to send the job meanwhile.

        Raises EndedBeforeRun, Superseded and what ExecutionStatusWriter raises.
        """
        start = await self._claim(attempt)
        try:
            for feature in self.features:
                await feature.prepare(attempt)
            await self._record(attempt, start)
        except Exception:
            # not after a cancellation: then it is unknown whether the binding was recorded
            attempt.record.pod_name = ""
            if attempt.session is None:
                attempt.pool.release(attempt.pod)
            raise

    async def resume(self, attempt: Attempt) -> None:
        """Take over the pod that the status names, and prepare to follow the run in it."""
        attempt.held.release()
        record = attempt.record
        attempt.pool = self.pools.get(record.pool)
        attempt.pod = pod = attempt.pool.pods.adopt(record.pod_name, uid=record.pod_uid, now=monotonic())
        owner = record.owner.digest
        # without the label another operator may not have recorded the owner: the pod serves this execution only
        is_owned = pod.owner == owner and not record.owner.is_nobody
        attempt.sandbox_owner = owner if record.session is not None or is_owned else None
        attempt.needs_job = False
        record.bound_pod = BoundPod(pod, attempt.sandbox_owner)
        for feature in self.features:
            await feature.prepare(attempt)

    async def _claim(self, attempt: Attempt) -> Start:
        """Claim a pod: that of the session, a warm one, or after a wait a new one. Return which."""
        record, session = attempt.record, attempt.session
        # the registry is asked only now: the pool may have been deleted and created meanwhile
        attempt.pool = pool = self.pools.get(record.pool)
        if session is not None and session.pod is not None:
            pod, start = session.pod, Start.SESSION
        else:
            taken = pool.take(attempt.reusing_owner)
            if taken is None:
                attempt.held.release()  # thousands may wait
                pod, start = await self._wait(attempt), Start.COLD
            else:
                pod, start = taken, Start.WARM
            start = Start.REUSED if pod.uses else start
        attempt.pod, record.pod_name = pod, pod.name
        owner = record.owner if record.session is not None else attempt.reusing_owner
        attempt.sandbox_owner = owner.digest if owner is not None else None
        pod.caller = record.caller
        return start

    async def _record(self, attempt: Attempt, start: Start) -> None:
        pool, pod = attempt.pool, attempt.pod
        skills = sorted(attempt.skills.sources) if attempt.skills is not None else ()
        spec = await attempt.held.load()
        began = monotonic()
        connection = self.supervisors.get_connection(
            namespace=pool.namespace, pod=pod.name, address=pod.address, digest=pod.token_sha256
        )
        attempt.pending_run = connection.prepare_run(attempt.build_job(spec), timeout_seconds=attempt.longest_seconds)
        recording = self.writer.write_bound(
            attempt.record, pod, start=start, code_findings=attempt.findings, skills=skills
        )
        if attempt.sandbox_owner is None or pod.owner:
            await recording
        else:
            # the owner of a pod that may be used again stands in its label
            recorded, claimed = await asyncio.gather(
                recording, self.pools.claim(pool, pod, owner=attempt.sandbox_owner), return_exceptions=True
            )
            if isinstance(recorded, BaseException):
                raise recorded
            if claimed is not True:
                attempt.sandbox_owner = None  # the pod is deleted after this execution
            pod.owned_since = monotonic()
        pod.uses += 1
        attempt.bound = monotonic()
        attempt.bind_milliseconds = (attempt.bound - began) * 1000
        attempt.record.bound_pod = BoundPod(pod, attempt.sandbox_owner)

    async def _wait(self, attempt: Attempt) -> Pod:
        """Wait for a pod, and write the reason and the queue position to the status meanwhile."""
        record, pool = attempt.record, attempt.pool
        try:
            waiter = pool.join(
                caller=record.caller, priority=attempt.spec.priority, owner=attempt.reusing_owner, wakeup=record.wakeup
            )
        except QueueFull as error:
            message = f"{error}: {pool.explain_shortage().message}"
            raise EndedBeforeRun(build_failure(Reason.QUEUE_FULL, message)) from error
        began = monotonic()
        event_at = began + _REPORT_SECONDS
        report = WaitReport.begin(record, self.writer, waiting=len(pool.queue))
        try:
            while not waiter.future.done():
                next_at = min(self._deadline(began, pool.served_at), report.due)
                await waiter.pause(min(_CHECK_SECONDS, max(0.0, next_at - monotonic())))
                if waiter.future.done():
                    break
                record.wakeup.clear()
                record.check_wanted()
                at, ends = monotonic(), self._deadline(began, pool.served_at)
                if at < min(ends, event_at, report.due):
                    continue
                problem = pool.explain_shortage()
                if at >= ends:
                    raise EndedBeforeRun(build_failure(problem.reason, problem.message))
                place = pool.queue.place(waiter, at)
                is_missing = problem.reason is Reason.POOL_NOT_FOUND  # waiting does not help, unless somebody makes it
                if at >= event_at or (is_missing and event_at < inf):
                    event_at = inf
                    after = "" if is_missing else f" after {_REPORT_SECONDS:.0f} s"
                    message = f"has no pod{after}: {problem.message}; {place}"
                    self.writer.report(record, reason=problem.reason or EventReason.QUEUED, message=message)
                await report.update(problem.reason, problem.message, place)
        except BaseException:
            pool.leave(waiter)
            self.pools.discard(pool)
            raise
        return waiter.future.result()

    def _deadline(self, began: float, served_at: float) -> float:
        """Return when the wait ends: later while the queue moves, but not without limit."""
        latest = began + _MAX_TIMEOUTS * self.bind_timeout_seconds
        return min(max(began, served_at) + self.bind_timeout_seconds, latest)
