"""Binding of executions to pods: a warm pod or a wait for one, recorded in the status before any code runs."""

import asyncio
from dataclasses import dataclass, fields, replace
from math import inf
from time import monotonic
from typing import Any, Final

from mcp_exec_api.code_execution import Start
from mcp_exec_api.files import Owner
from mcp_exec_api.reasons.event import EventReason
from mcp_exec_api.reasons.execution import Reason
from mcp_exec_common.supervisor.client import PendingRun, SupervisorClient
from mcp_exec_common.supervisor.protocol import Job
from mcp_exec_operator.core.executions.execution import Binding, Execution, ExecutionFeature
from mcp_exec_operator.core.executions.outcome import EndedBeforeRun, build_failure
from mcp_exec_operator.core.executions.part import JobDraft
from mcp_exec_operator.core.executions.writer import ExecutionStatusWriter, WaitReport
from mcp_exec_operator.core.pods.pod import Pod
from mcp_exec_operator.core.pools.pool import Pool
from mcp_exec_operator.core.pools.registry import PoolRegistry
from mcp_exec_operator.core.queueing.wait_queue import QueueFull

_MAX_TIMEOUTS: Final = 20
"""How many bind timeouts an execution waits at most in a queue that moves."""
_REPORT_SECONDS: Final = 30.0
"""How long an execution waits for a pod before an Event reports it. That there is no such pool is reported at once."""
_NO_OPTIONS: Final = ("id", "code", "tools", "files", "owner", "session", "skills", "libraries")
_OPTIONS: Final = tuple(field.name for field in fields(Job) if field.name not in _NO_OPTIONS)
"""Fields of a job that a field of the spec or of its limits fills by the same name."""
_CHECK_SECONDS: Final = 1.0
"""How often a waiting execution checks its pool and its deadline."""


@dataclass(frozen=True, kw_only=True)
class Binder:
    """Claims pods for executions, and records which pod an execution has."""

    pools: PoolRegistry
    writer: ExecutionStatusWriter
    features: tuple[ExecutionFeature, ...]
    supervisors: SupervisorClient
    bind_timeout_seconds: float

    def adopt(self, execution: Execution) -> None:
        """Hold what an execution has that is bound, before any other execution may claim it."""
        execution.binding = self._read_binding(execution)
        for part in execution.parts:
            part.adopt()

    def resume(self, execution: Execution) -> Binding:
        """Go on with an execution whose binding is recorded, by this operator or another. Return the binding."""
        execution.source.release()
        execution.binding = binding = self._read_binding(execution)
        for part in execution.parts:
            part.resume()
        return binding

    def _read_binding(self, execution: Execution) -> Binding:
        """Return the binding that the status names."""
        facts = execution.facts
        pool, name = self.pools.get(facts.pool), str(execution.seen.status.get("podName") or "")
        pod = pool.pods.adopt(name, uid=execution.pod_uid, now=monotonic())
        # without the label another operator may not have recorded the owner: the pod serves this execution only
        is_owned = pod.use.owner == facts.owner.digest and not facts.owner.is_nobody
        owner = facts.owner.digest if is_owned or execution.holder is not None else None
        return Binding(pool=pool, pod=pod, owner=owner, is_recorded=True)

    async def bind(self, execution: Execution) -> tuple[Binding, PendingRun]:
        """Claim a pod, let the parts join the job, and record the binding. Return it and the job on its way to the pod.

        Raises EndedBeforeRun, Superseded and what ExecutionStatusWriter raises.
        """
        execution.binding = binding = await self._claim(execution)
        try:
            if binding.pool.shape.spec is not execution.asked_for:
                execution.ask_features(self.features, binding.pool)
            check_time_limit(execution, binding.pool)
            return await self._send(execution, binding)
        except Exception:
            # not after a cancellation: then it is unknown whether the binding was recorded
            execution.binding = None
            if execution.holder is None:
                binding.pool.release(binding.pod)
            raise

    async def _claim(self, execution: Execution) -> Binding:
        """Claim a pod: that which a part keeps, a warm one, or after a wait a new one."""
        # the registry is asked only now: the pool may have been deleted and created meanwhile
        pool, holder = self.pools.get(execution.facts.pool), execution.holder
        owner = execution.facts.owner
        reusing = None if holder is not None or owner.is_nobody or pool.shape.reuse is None else owner
        if holder is not None and (kept := holder.kept_pod) is not None:
            pod, start = kept, Start.SESSION
        else:
            taken = pool.take(reusing)
            if taken is None:
                execution.source.release()  # thousands may wait
                pod, start = await self._wait(execution, pool, reusing), Start.COLD
            else:
                pod, start = taken, Start.WARM
            start = Start.REUSED if pod.use.count else start
        pod.use.caller = owner.caller
        is_owned = holder is not None or reusing is not None
        return Binding(pool=pool, pod=pod, owner=owner.digest if is_owned else None, start=start)

    async def _send(self, execution: Execution, binding: Binding) -> tuple[Binding, PendingRun]:
        """Record the binding, and begin to send the job meanwhile, whose code does not begin before."""
        pool, pod, owner = binding.pool, binding.pod, binding.owner
        job, draft = await build_job(execution, binding)
        began = monotonic()
        connection = self.supervisors.get_connection(
            namespace=pool.namespace, pod=pod.name, address=pod.seen.address, digest=pod.seen.token_sha256
        )
        pending = connection.prepare_run(job, timeout_seconds=execution.longest_seconds)
        try:
            recording = self.writer.write_bound(execution, binding, draft)
            if owner is None or pod.use.owner:
                await recording
            else:
                # the owner of a pod that may be used again stands in its label
                recorded, claimed = await asyncio.gather(
                    recording, self.pools.claim(pool, pod, owner=owner), return_exceptions=True
                )
                if isinstance(recorded, BaseException):
                    raise recorded
                if claimed is not True:
                    owner = None  # the pod is deleted after this execution
                pod.use.owned_since = monotonic()
        except BaseException:
            pending.withdraw()
            raise
        pod.use.count += 1
        now = monotonic()
        execution.binding = binding = replace(
            binding, owner=owner, is_recorded=True, recorded=now, record_milliseconds=(now - began) * 1000
        )
        return binding, pending

    async def _wait(self, execution: Execution, pool: Pool, owner: Owner | None) -> Pod:
        """Wait for a pod, and write the reason and the queue position to the status meanwhile."""
        try:
            waiter = pool.join(
                caller=execution.facts.owner.caller,
                priority=execution.spec.priority,
                owner=owner,
                wakeup=execution.wakeup,
            )
        except QueueFull as error:
            message = f"{error}: {pool.explain_shortage().message}"
            raise EndedBeforeRun(build_failure(Reason.QUEUE_FULL, message)) from error
        began = monotonic()
        event_at = began + _REPORT_SECONDS
        report = WaitReport.begin(execution, self.writer, waiting=len(pool.queue))
        try:
            while not waiter.future.done():
                next_at = min(self._deadline(began, pool.queue.served_at), report.due)
                await waiter.pause(min(_CHECK_SECONDS, max(0.0, next_at - monotonic())))
                if waiter.future.done():
                    break
                execution.wakeup.clear()
                execution.check_wanted()
                at, ends = monotonic(), self._deadline(began, pool.queue.served_at)
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
                    self.writer.report(execution, reason=problem.reason or EventReason.QUEUED, message=message)
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


def check_time_limit(execution: Execution, pool: Pool) -> None:
    """Raise EndedBeforeRun if the execution's time limit is above its pool's. An unknown pool has none yet."""
    seconds = execution.spec.timeout_seconds
    if pool.shape.spec is not None and seconds > pool.shape.spec.max_timeout_seconds:
        limit = pool.shape.spec.max_timeout_seconds
        message = f"spec.timeoutSeconds: {seconds} is more than the {limit} of pool {pool.name}"
        raise EndedBeforeRun(build_failure(Reason.REJECTED, message))


async def build_job(execution: Execution, binding: Binding) -> tuple[Job, JobDraft]:
    """Return the job of an execution, and what the parts add to it. Raises what `Execution.load` and `Part.join` raise.

    An option of spec or limits reaches the job if Job has a field of that name.
    """
    draft = JobDraft()
    for part in execution.parts:
        await part.join(draft)
    spec = await execution.load()
    options: dict[str, Any] = {**vars(spec.limits), **vars(spec)}
    job = Job(
        id=execution.facts.uid,
        code=spec.build_source(spec.language or binding.pool.shape.language),
        tools=draft.tools,
        files=draft.files,
        owner=binding.owner,
        session=execution.holder is not None,
        skills=draft.skills,
        libraries=binding.pool.libraries.find_missing(binding.pod.seen.template),
        **{name: options[name] for name in _OPTIONS},
    )
    return job, draft
