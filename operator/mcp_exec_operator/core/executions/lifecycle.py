"""The steps of an execution: admit, bind, dispatch, follow, finish."""

import asyncio
import logging
from contextlib import AsyncExitStack
from dataclasses import dataclass
from time import monotonic
from typing import Final

from mcp_exec_api.code_execution import Phase, is_finished
from mcp_exec_api.reasons.event import EventReason
from mcp_exec_api.reasons.execution import Reason
from mcp_exec_common.process.tasks import TaskRegistry
from mcp_exec_common.supervisor.client import PendingRun, SupervisorClient
from mcp_exec_common.util.backoff import delay_after
from mcp_exec_operator.cluster.kube.api import OperatorApi
from mcp_exec_operator.core.executions.binder import Binder, check_time_limit
from mcp_exec_operator.core.executions.execution import Binding, Execution
from mcp_exec_operator.core.executions.outcome import (
    EndedBeforeRun,
    ExecutionGone,
    ExecutionOutcome,
    Superseded,
    build_failure,
    with_tokens,
)
from mcp_exec_operator.core.executions.output import OutputCollector
from mcp_exec_operator.core.executions.run import Run
from mcp_exec_operator.core.executions.writer import ExecutionStatusWriter
from mcp_exec_operator.core.pools.registry import PoolRegistry
from mcp_exec_operator.core.ttl import TTLController
from mcp_exec_operator.metrics import Metrics
from mcp_exec_tools.text import shorten

log = logging.getLogger(__name__)

_FIRST_RETRY_SECONDS: Final = 1.0
_LAST_RETRY_SECONDS: Final = 60.0
_MAX_FAILURES: Final = 5
"""Failures in a row, over about 15 s, after which an execution is ended as Failed."""
_MAX_LOGGED: Final = 500
"""Characters of a failure's message in the log."""


@dataclass(kw_only=True, eq=False)
class ExecutionLifecycle:
    """Brings executions to their end, each in one coroutine."""

    api: OperatorApi
    pools: PoolRegistry
    binder: Binder
    writer: ExecutionStatusWriter
    supervisors: SupervisorClient
    ttl: TTLController
    tasks: TaskRegistry
    metrics: Metrics
    stopping: bool = False
    """Whether this operator stops. Executions stay as their statuses say, for the next one."""

    def stop(self) -> None:
        """Begin nothing more."""
        self.stopping = True

    async def run(self, execution: Execution) -> None:
        """Bring one execution to its end, then release its pod. A pod of an unfinished execution is kept."""
        decided = False
        try:
            decided = execution.deleted or await self._finish_or_yield(execution)
        except ExecutionGone:
            execution.deleted = decided = True
        except asyncio.CancelledError:
            decided = execution.deleted
            if not execution.deleted:
                raise
        finally:
            if decided or not self.stopping:
                is_kept = [part.leave(decided=decided) for part in execution.parts]
                if decided and not any(is_kept):
                    self._release_pod(execution)

    async def _finish_or_yield(self, execution: Execution) -> bool:
        """Execute until the end is written. Return False if another operator has written it, or an unknown phase.

        Return False, too, if this operator stops and cannot write the end: the next one goes on from the status.
        After an exception it backs off and goes on from the status. An Event reports the first failure. From the
        second failure on, a known outcome is written without its details; after the fifth, the execution fails.
        """
        outcome: ExecutionOutcome | None = None
        failures = 0
        while execution.seen.phase in (Phase.PENDING, Phase.RUNNING) and not self.stopping:
            try:
                if outcome is None:
                    outcome = execution.outcome = await self._execute(execution)
                await self.writer.write_finished(execution, outcome)
                self._conclude(execution, outcome)
                return True
            except ExecutionGone:
                raise
            except Superseded:
                log.info("another operator has the execution", extra=execution.log_fields)
            except Exception as error:
                failures += 1
                log.exception("the reconciliation of an execution failed", extra=execution.log_fields)
                if self.stopping:
                    return False
                outcome = _reduce(outcome, error, failures, phase=execution.seen.phase)
                if failures == 1:
                    message = f"the operator can't reconcile the execution and tries again: {error}"
                    await self.writer.record_event(execution, EventReason.RECONCILE_FAILED, message)
                await asyncio.sleep(delay_after(failures, first=_FIRST_RETRY_SECONDS, last=_LAST_RETRY_SECONDS))
        if is_finished(execution.seen.body):
            self.ttl.observe(execution.seen.body, caller=execution.facts.owner.caller)
        return False

    async def _execute(self, execution: Execution) -> ExecutionOutcome:
        """Bind the execution to a pod, unless it is bound, and run it there. Raises Superseded and ExecutionGone."""
        try:
            # The order matters. A bound execution holds its pod and its turns before anything is waited for, so that
            # none of them is given away meanwhile. What will be refused is refused before it takes a turn or a pod.
            # Turns come before the pod: whoever waits for a session or a workspace keeps no pod from others. From the
            # binding on, the status says that code may run, and this execution never gets another pod.
            is_bound = execution.seen.phase is not Phase.PENDING
            if is_bound and execution.binding is None:
                self.binder.adopt(execution)
            await execution.begin()
            if is_bound:
                return await self._run(execution, self.binder.resume(execution), None)
            check_time_limit(execution, self.pools.get(execution.facts.pool))
            for part in execution.parts:
                await part.admit()
            return await self._run(execution, *await self.binder.bind(execution))
        except EndedBeforeRun as ended:
            return ended.outcome
        finally:
            execution.source.release()

    async def _run(self, execution: Execution, binding: Binding, pending: PendingRun | None) -> ExecutionOutcome:
        """Dispatch the job and follow its run, then let the parts add to the outcome."""
        run = Run(
            execution=execution,
            binding=binding,
            output=OutputCollector(limit=execution.spec.limits.output_bytes),
            pending=pending,
            features=self.binder.features,
            api=self.api,
            supervisors=self.supervisors,
            tasks=self.tasks,
            nodes=self.pools.nodes,
        )
        try:
            if self.stopping:
                raise asyncio.CancelledError
            outcome = await run.execute()
            for part in execution.parts:
                outcome = await part.finish(outcome)
        finally:
            if run.pending is not None:
                run.pending.withdraw()  # it is not dispatched: it never runs
            async with AsyncExitStack() as stack:  # each also if another fails
                for part in reversed(execution.parts):
                    stack.push_async_callback(part.stop)
        return with_tokens(outcome, code_tokens=execution.facts.code_tokens)

    def _conclude(self, execution: Execution, outcome: ExecutionOutcome) -> None:
        """Follow up the end that was written: its TTL, metrics, and an Event if it is a failure of others."""
        self.ttl.observe(execution.seen.body, caller=execution.facts.owner.caller)
        self._measure(execution, outcome)
        fields = {**execution.log_fields, "reason": outcome.reason, "durations": execution.seen.status.get("durations")}
        if outcome.phase in (Phase.FAILED, Phase.TIMED_OUT):
            # the message of a run, or of a refused spec, may quote the code or what it wrote
            quotes = outcome.started_at is not None or outcome.reason is Reason.REJECTED
            fields["error"] = outcome.reason.meaning if quotes else shorten(outcome.message, _MAX_LOGGED)
        log.info("execution %s", outcome.phase, extra=fields)
        # failures that the code itself chose are frequent, and no event for the cluster
        if outcome.phase in (Phase.FAILED, Phase.TIMED_OUT) and not outcome.reason.is_clean:
            # without the outcome's message, which may quote what the code wrote
            message = f"{outcome.phase}: {outcome.reason.meaning}"
            self.writer.report(execution, reason=outcome.reason, message=message)

    def _measure(self, execution: Execution, outcome: ExecutionOutcome) -> None:
        status, namespace, known = (
            execution.seen.status,
            execution.facts.namespace,
            self.pools.get(execution.facts.pool),
        )
        known.health.record_run(outcome.reason, now=monotonic())
        # names of pools that do not exist are unbounded
        pool = known.name if known.shape.body is not None else ""
        start = status.get("start") or ""
        self.metrics.executions.labels(outcome.phase, outcome.reason, start, namespace, pool).inc()
        for stage, milliseconds in (status.get("durations") or {}).items():
            self.metrics.stages.labels(stage, namespace, pool).observe(milliseconds / 1000)
        if outcome.usage is not None:
            self.metrics.observe_usage(
                outcome.usage,
                namespace=namespace,
                pool=pool,
                use_case=execution.facts.use_case,
                saving=outcome.saving,
            )

    def _release_pod(self, execution: Execution) -> None:
        """Delete the pod, which has served its one execution, or clean it for the next execution of its owner."""
        binding, outcome = execution.binding, execution.outcome
        if binding is not None:
            is_clean = outcome is not None and outcome.left_clean and not execution.deleted
            is_reusable = binding.is_recorded and binding.owner is not None and is_clean
            self.pools.release(binding.pool, binding.pod, reuse_after=execution.facts.uid if is_reusable else "")
        self.pools.discard(self.pools.get(execution.facts.pool))


def _reduce(
    outcome: ExecutionOutcome | None, error: Exception, failures: int, *, phase: Phase | None
) -> ExecutionOutcome | None:
    """Return what to write after so many failures in a row; None to execute again from the status."""
    if outcome is not None:
        why = f"the API server rejects its details: {error}"
        details = outcome.output, outcome.tool_calls, outcome.code_findings, outcome.approvals
        return outcome.without_details(why) if failures > 1 and any(details) else outcome
    if failures < _MAX_FAILURES:
        return None
    reason = Reason.REJECTED if phase is Phase.PENDING else Reason.SANDBOX_LOST
    return build_failure(reason, f"the operator can't reconcile the execution: {error}")
