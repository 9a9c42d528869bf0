"""Binding of executions to pods: a warm pod or a wait for one, recorded in the status before any code runs."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from math import inf
from time import monotonic
from typing import Final

from pydantic import ValidationError

from mcp_exec_api.code_execution import CodeExecutionSpec, Phase, Priority, Start
from mcp_exec_api.execution_state import read_phase
from mcp_exec_api.meta import now
from mcp_exec_api.owner import Owner
from mcp_exec_api.reasons.execution import Reason
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.supervisor.client import SupervisorClient
from mcp_exec_common.supervisor.protocol import JobSkills
from mcp_exec_operator.executions.admission import Admission, CodeCheckResult, check_still_wanted, parse_spec
from mcp_exec_operator.executions.binding import (
    Binding,
    build_job,
    longest_run_seconds,
    run_deadline_seconds,
    strip_spec,
)
from mcp_exec_operator.executions.files import FilesIssuer, WorkspaceTurns
from mcp_exec_operator.executions.outcome import EndedBeforeRun, Superseded, build_failure
from mcp_exec_operator.executions.record import ExecutionRecord
from mcp_exec_operator.executions.session_turns import SessionTurns
from mcp_exec_operator.executions.spec_cache import SpecCache, SpecHold
from mcp_exec_operator.executions.status import build_bound_status, build_pending_status
from mcp_exec_operator.executions.status_writer import ExecutionStatusWriter
from mcp_exec_operator.executions.tools import GrantIssuer
from mcp_exec_operator.pods.cache import Pod
from mcp_exec_operator.pools.pool import Pool
from mcp_exec_operator.pools.registry import PoolRegistry
from mcp_exec_operator.pools.reuse import reuses_pods
from mcp_exec_operator.queueing.turns import QueueUpdate, first_update_after, next_update_after
from mcp_exec_operator.queueing.wait_queue import QueueFull, Waiter
from mcp_exec_operator.sessions.record import SessionRecord
from mcp_exec_operator.sessions.status import SessionGone
from mcp_exec_operator.skills.resolver import SkillResolver, SkillsRefused

_MAX_TIMEOUTS: Final = 20
"""How many bind timeouts an execution waits at most in a queue that moves."""
_REPORT_SECONDS: Final = 30.0
"""How long an execution waits for a pod before an Event reports it."""
_CHECK_SECONDS: Final = 1.0
"""How often a waiting execution checks its pool and its deadline."""


@dataclass(frozen=True, kw_only=True)
class Binder:
    """Claims pods for executions."""

    pools: PoolRegistry
    writer: ExecutionStatusWriter
    supervisors: SupervisorClient
    specs: SpecCache
    tools: GrantIssuer
    skills: SkillResolver
    files: FilesIssuer
    writers: WorkspaceTurns
    admission: Admission
    turns: SessionTurns
    bind_timeout_seconds: float
    clock: Callable[[], datetime] = now

    async def bind(self, record: ExecutionRecord) -> Binding:
        """Claim a pod, record it in the status, and begin to send the job.

        Raises EndedBeforeRun, Superseded and what ExecutionStatusWriter raises.
        """
        hold = await self.specs.acquire(record)
        try:
            session = None
            if record.session is not None:
                parse_spec(record, hold.spec)
                session = await self.turns.enter(record, on_wait=lambda: self.specs.release(hold))
                await self._restore(record, hold)
            checked, priority = await self._admit(record, hold)
            if record.workspace is not None:
                await self.writers.wait(record, on_wait=lambda: self.specs.release(hold))
            if session is not None and session.pod is not None:
                kept = self.pools.get(session.pool), session.pod
                return await self._bind_to(record, *kept, start=Start.SESSION, checked=checked, hold=hold)
            # the registry is asked again: the pool may have been deleted and created meanwhile
            pool = self.pools.get(record.pool)
            cold = False
            pod = pool.take(_find_owner(record, pool))
            if pod is None:
                self.specs.release(hold)  # thousands may wait
                cold = True
                pod = await self._wait(record, pool, priority)
            if session is not None:
                await self._keep(record, session, pool, pod)
            start = Start.REUSED if pod.uses else Start.COLD if cold else Start.WARM
            return await self._bind_to(record, pool, pod, start=start, checked=checked, hold=hold)
        except BaseException:
            self.specs.release(hold)
            if record.binding is None:
                self.turns.leave(record)
            raise

    async def _restore(self, record: ExecutionRecord, hold: SpecHold) -> None:
        """Hold the spec again, if it was released during a wait."""
        if hold.spec is None:
            hold.take(await self.specs.acquire(record))

    async def _keep(self, record: ExecutionRecord, session: SessionRecord, pool: Pool, pod: Pod) -> None:
        """Keep the pod that an execution took for its session, or for a new one if that was deleted meanwhile."""
        try:
            try:
                await self.turns.claims.keep(session, pool, pod)
            except SessionGone:
                await self.turns.claims.keep(await self.turns.claim(record), pool, pod)
        except (SessionGone, EndedBeforeRun):
            self.pools.retire(pool, pod)
            raise

    async def _admit(self, record: ExecutionRecord, hold: SpecHold) -> tuple[CodeCheckResult, Priority]:
        """Check the spec, and return the findings in the code and the priority."""
        spec = parse_spec(record, hold.spec)
        if spec.tools:
            await self.tools.check_broker()
        self.files.check(spec)
        checked = await self.admission.check(spec, self.pools.get(record.pool))
        await self._find_skills(record, spec)
        return checked, spec.priority

    async def _bind_to(
        self,
        record: ExecutionRecord,
        pool: Pool,
        pod: Pod,
        *,
        start: Start,
        checked: CodeCheckResult,
        hold: SpecHold,
    ) -> Binding:
        record.pod = pod.name
        binding: Binding | None = None
        try:
            await self._restore(record, hold)
            spec = parse_spec(record, hold.spec)
            binding = Binding(
                pool=pool,
                pod=pod,
                spec=strip_spec(spec),
                release_job=lambda: self.specs.release(hold),
            )
            owner = record.owner if record.session is not None else _find_owner(record, pool)
            binding.owner = owner.digest if owner is not None else None
            pod.caller = record.caller
            checked = await self.admission.check(spec, pool, earlier=checked)
            if spec.tools:
                seconds = run_deadline_seconds(spec)
                binding.tools = await self.tools.grant(record, binding, run_seconds=seconds)
            skills = await self._find_skills(record, spec)
            await self.admission.check_skills(skills, pool)
            binding.skills = sorted(skills.sources) if skills is not None else []
            binding.files = self.files.grant(record, binding)
            began = monotonic()
            connection = self.supervisors.get_connection(namespace=pool.namespace, pod=pod.name, address=pod.address)
            binding.pending_run = connection.prepare_run(
                build_job(
                    record.uid,
                    spec,
                    binding.tools,
                    files=binding.files,
                    owner=binding.owner,
                    skills=skills,
                    libraries=binding.find_missing_libraries(),
                ),
                timeout_seconds=longest_run_seconds(spec),
            )
            await self._record_both(record, binding, start, checked)
        except BaseException as error:
            if binding is not None:
                binding.withdraw()
            # after a cancellation it is unknown whether the binding was recorded, so the pod is not released
            if isinstance(error, Exception):
                record.pod = None
                if record.session is None:
                    pool.release(pod)
            raise
        binding.bound = monotonic()
        binding.bind_milliseconds = (binding.bound - began) * 1000
        return binding

    async def _record_both(
        self, record: ExecutionRecord, binding: Binding, start: Start, checked: CodeCheckResult
    ) -> None:
        """Record the binding in the status, and meanwhile the owner of a pod that may be used again in its label."""
        pod = binding.pod
        if binding.owner is None or pod.owner:
            await self._record(record, binding, start, checked)
        else:
            pool, owner = binding.pool, binding.owner
            recorded, claimed = await asyncio.gather(
                self._record(record, binding, start, checked),
                self.pools.claim(pool, pod, owner=owner),
                return_exceptions=True,
            )
            if isinstance(recorded, BaseException):
                raise recorded
            if claimed is not True:
                binding.owner = None  # the pod is deleted after this execution
            pod.owned_since = monotonic()
        pod.uses += 1

    async def adopt(self, record: ExecutionRecord) -> Binding:
        """Return the binding to the pod that the status names.

        Raises EndedBeforeRun if the spec is invalid now, and what SpecCache raises.
        """
        record.pod = str(record.status.get("podName") or "")
        if record.turn is None:
            self.turns.adopt(record)  # an earlier attempt has bound it after all
        pool = self.pools.get(record.pool)
        pod = pool.pods.adopt(record.pod, uid=record.pod_uid, now=monotonic())
        hold = await self.specs.acquire(record)
        try:
            spec = strip_spec(CodeExecutionSpec.model_validate(hold.spec))
        except ValidationError as error:
            message = "the spec was changed after its binding and is invalid"
            raise EndedBeforeRun(build_failure(Reason.REJECTED, message)) from error
        finally:
            self.specs.release(hold)
        owner = record.owner.digest
        if record.session is not None:
            return Binding(pool=pool, pod=pod, spec=spec, owner=owner)
        # without the label another operator may not have recorded the owner: the pod serves this execution only
        return Binding(pool=pool, pod=pod, spec=spec, owner=owner if pod.owner == owner else None)

    async def _find_skills(self, record: ExecutionRecord, spec: CodeExecutionSpec) -> JobSkills | None:
        try:
            return await self.skills.resolve(spec, namespace=record.namespace, caller=record.skills_caller)
        except SkillsRefused as error:
            raise EndedBeforeRun(build_failure(Reason.REJECTED, str(error))) from error

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
                uses=pod.uses,
                digest=record.digest,
                code_findings=checked.findings,
                skills=binding.skills,
                moment=moment,
                created=created,
            )

        await self.writer.write(record, decide, what="bind")

    async def _wait(self, record: ExecutionRecord, pool: Pool, priority: Priority) -> Pod:
        """Wait for a pod, and write the reason and the queue position to the status meanwhile."""
        waiter = self._join(record, pool, priority)
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

    def _join(self, record: ExecutionRecord, pool: Pool, priority: Priority) -> Waiter:
        try:
            owner = _find_owner(record, pool)
            waiter = pool.join(caller=record.caller, priority=priority, owner=owner)
        except QueueFull as error:
            message = f"{error}: {pool.explain_shortage().message}"
            raise EndedBeforeRun(build_failure(Reason.QUEUE_FULL, message)) from error
        waiter.wakeup = record.wakeup
        return waiter

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
