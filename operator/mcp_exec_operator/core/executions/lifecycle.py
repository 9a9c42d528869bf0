"""The steps of an execution: admit, bind, dispatch, follow, finish."""

import asyncio
import logging
from contextlib import AsyncExitStack, closing
from dataclasses import dataclass
from time import monotonic
from typing import Final

from mcp_exec_api.code_execution import CodeExecutionSpec, Phase, is_finished
from mcp_exec_api.reasons.event import EventReason
from mcp_exec_api.reasons.execution import Reason
from mcp_exec_common.process.tasks import TaskRegistry
from mcp_exec_common.supervisor.client import SupervisorClient
from mcp_exec_common.util.backoff import delay_after
from mcp_exec_operator.cluster.kube.api import OperatorApi
from mcp_exec_operator.core.executions.attempt import Attempt, Feature
from mcp_exec_operator.core.executions.binder import Binder
from mcp_exec_operator.core.executions.outcome import (
    EndedBeforeRun,
    ExecutionGone,
    ExecutionOutcome,
    Superseded,
    build_failure,
    find_saving,
    with_tokens,
)
from mcp_exec_operator.core.executions.record import ExecutionRecord
from mcp_exec_operator.core.executions.run import ExecutionRun
from mcp_exec_operator.core.executions.specs import SpecCache, SpecInUse
from mcp_exec_operator.core.executions.writer import ExecutionStatusWriter
from mcp_exec_operator.core.pools.registry import PoolRegistry
from mcp_exec_operator.core.ttl import TTLController
from mcp_exec_operator.metrics import Metrics

log = logging.getLogger(__name__)

_FIRST_RETRY_SECONDS: Final = 1.0
_LAST_RETRY_SECONDS: Final = 60.0
_MAX_FAILURES: Final = 5
"""Failures in a row, over about 15 s, after which an execution is ended as Failed."""


@dataclass(kw_only=True, eq=False)
class ExecutionLifecycle:
    """Brings executions to their end, each in one coroutine. `features` add what is not needed by all of them."""

    api: OperatorApi
    pools: PoolRegistry
    binder: Binder
    writer: ExecutionStatusWriter
    supervisors: SupervisorClient
    specs: SpecCache
    features: tuple[Feature, ...]
    ttl: TTLController
    tasks: TaskRegistry
    metrics: Metrics
    stopping: bool = False
    """Whether this operator stops. Executions stay as their statuses say, for the next one."""

    def stop(self) -> None:
        """Begin nothing more."""
        self.stopping = True

    def adopt(self, record: ExecutionRecord) -> None:
        """Hold what an execution has that is bound, before any other execution may claim it."""
        record.pod_name = str(record.status.get("podName") or "")
        self.pools.get(record.pool).pods.adopt(record.pod_name, uid=record.pod_uid, now=monotonic())
        for feature in self.features:
            feature.adopt(record)

    async def run(self, record: ExecutionRecord) -> None:
        """Bring one execution to its end, then release its pod. A pod of an unfinished execution is kept."""
        decided = False
        try:
            decided = record.deleted or await self._finish_or_yield(record)
        except ExecutionGone:
            record.deleted = decided = True
        except asyncio.CancelledError:
            decided = record.deleted
            if not record.deleted:
                raise
        finally:
            if decided or not self.stopping:
                is_kept = [feature.leave(record, decided=decided) for feature in self.features]
                if decided and not any(is_kept):
                    self._release_pod(record)

    async def _finish_or_yield(self, record: ExecutionRecord) -> bool:
        """Execute until the end is written. Return False if another operator has written it, or an unknown phase.

        Return False, too, if this operator stops and cannot write the end: the next one goes on from the status.
        After an exception it backs off and goes on from the status. An Event reports the first failure. From the
        second failure on, a known outcome is written without its details; after the fifth, the execution fails.
        """
        outcome: ExecutionOutcome | None = None
        failures = 0
        while record.phase in (Phase.PENDING, Phase.RUNNING) and not self.stopping:
            try:
                if outcome is None:
                    outcome = record.outcome = await self._execute(record)
                await self.writer.write_finished(record, outcome)
                self._conclude(record, outcome)
                return True
            except ExecutionGone:
                raise
            except Superseded:
                log.info("another operator has the execution", extra=record.log_fields)
            except Exception as error:
                failures += 1
                log.exception("the reconciliation of an execution failed", extra=record.log_fields)
                if self.stopping:
                    return False
                outcome = _reduce(outcome, error, failures, phase=record.phase)
                if failures == 1:
                    message = f"the operator can't reconcile the execution and tries again: {error}"
                    await self.writer.record_event(record, EventReason.RECONCILE_FAILED, message)
                await asyncio.sleep(delay_after(failures, first=_FIRST_RETRY_SECONDS, last=_LAST_RETRY_SECONDS))
        if is_finished(record.body):
            self.ttl.observe(record.body, caller=record.caller)
        return False

    async def _execute(self, record: ExecutionRecord) -> ExecutionOutcome:
        """Bind the execution to a pod, unless it is bound, and run it there. Raises Superseded and ExecutionGone."""
        is_bound = record.phase is not Phase.PENDING
        if is_bound:
            self.adopt(record)
        async with SpecInUse(cache=self.specs, record=record) as held:
            try:
                with closing(Attempt(record=record, held=held, spec=strip_spec(await held.load()))) as attempt:
                    if is_bound:
                        await self.binder.resume(attempt)
                    else:
                        for feature in self.features:
                            await feature.admit(attempt)
                        await self.binder.bind(attempt)
                        if self.stopping:
                            raise asyncio.CancelledError
                    return await self._run(attempt)
            except EndedBeforeRun as ended:
                return ended.outcome

    async def _run(self, attempt: Attempt) -> ExecutionOutcome:
        """Dispatch the job and follow its run, then let features add to the outcome."""
        run = ExecutionRun(
            attempt=attempt,
            features=self.features,
            api=self.api,
            supervisors=self.supervisors,
            tasks=self.tasks,
            nodes=self.pools.nodes,
        )
        async with AsyncExitStack() as stack:
            for feature in reversed(self.features):
                stack.push_async_callback(feature.finish, attempt)
            attempt.outcome = await run.execute()
        assert attempt.outcome is not None  # noqa: S101 - set above
        return with_tokens(attempt.outcome, code_tokens=attempt.record.code_tokens)

    def _conclude(self, record: ExecutionRecord, outcome: ExecutionOutcome) -> None:
        """Follow up the end that was written: its TTL, metrics, and an Event if it is a failure of others."""
        self.ttl.observe(record.body, caller=record.caller)
        self._measure(record, outcome)
        fields = {**record.log_fields, "reason": outcome.reason, "durations": record.status.get("durations")}
        log.info("execution %s", outcome.phase, extra=fields)
        # failures that the code itself chose are frequent, and no event for the cluster
        if outcome.phase in (Phase.FAILED, Phase.TIMED_OUT) and not outcome.reason.is_clean:
            # without the outcome's message, which may quote what the code wrote
            message = f"{outcome.phase}: {outcome.reason.meaning}"
            self.writer.report(record, reason=outcome.reason, message=message)

    def _measure(self, record: ExecutionRecord, outcome: ExecutionOutcome) -> None:
        status, namespace, known = record.status, record.namespace, self.pools.get(record.pool)
        known.health.record_run(outcome.reason, now=monotonic())
        # names of pools that do not exist are unbounded
        pool = known.name if known.body is not None else ""
        start = status.get("start") or ""
        self.metrics.executions.labels(outcome.phase, outcome.reason, start, namespace, pool).inc()
        for stage, milliseconds in (status.get("durations") or {}).items():
            self.metrics.stages.labels(stage).observe(milliseconds / 1000)
        if outcome.usage is None:
            return
        self.metrics.observe_usage(outcome.usage, namespace=namespace, pool=pool)
        if (tokens := outcome.usage.tokens) is not None:
            saving = find_saving(tokens, calls=(outcome.tool_calls or {}).get("total") or 0)
            self.metrics.observe_tokens(
                namespace=namespace, use_case=record.use_case, kept=tokens.kept or 0, saving=saving
            )

    def _release_pod(self, record: ExecutionRecord) -> None:
        """Delete the pod, which has served its one execution, or clean it for the next execution of its owner."""
        pool, bound, outcome = self.pools.get(record.pool), record.bound_pod, record.outcome
        pod = bound.pod if bound is not None else pool.pods.get(record.pod_name)
        if pod is not None:
            has_owner = bound is not None and bound.owner is not None
            is_clean = outcome is not None and outcome.left_clean and not record.deleted
            self.pools.release(pool, pod, reuse_after=record.uid if has_owner and is_clean else "")
        self.pools.discard(pool)


def strip_spec(spec: CodeExecutionSpec) -> CodeExecutionSpec:
    """Return a spec without code and context."""
    return spec.model_copy(update={"code": "", "context": {}})


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
