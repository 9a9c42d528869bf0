"""The CodeExecution controller: one task for each unfinished execution, fed by watches and resyncs."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from time import monotonic
from typing import Final

from mcp_exec_api.code_execution import Phase, spec_digest
from mcp_exec_api.execution_state import is_finished, read_phase
from mcp_exec_api.meta import now
from mcp_exec_api.reasons.execution import Reason
from mcp_exec_common.broker.attestations import CLAIMED
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.reflector import ObjectKey
from mcp_exec_common.process.tasks import TaskRegistry
from mcp_exec_common.supervisor.client import SupervisorClient
from mcp_exec_common.util.backoff import delay_after
from mcp_exec_operator.executions.binder import Binder
from mcp_exec_operator.executions.files import FilesIssuer, WorkspaceTurns
from mcp_exec_operator.executions.outcome import (
    EndedBeforeRun,
    ExecutionGone,
    ExecutionOutcome,
    StatusTooLarge,
    Superseded,
    build_failure,
    find_saving,
    with_tokens,
)
from mcp_exec_operator.executions.record import ExecutionRecord
from mcp_exec_operator.executions.run import ExecutionRun
from mcp_exec_operator.executions.session_turns import SessionTurns
from mcp_exec_operator.executions.spec_cache import SpecCache
from mcp_exec_operator.executions.status import (
    SMALL_STATUS_BYTES,
    build_changed_status,
    build_finished_status,
    count_spare_bytes,
    has_condition,
    read_waited_seconds,
)
from mcp_exec_operator.executions.status_writer import ExecutionStatusWriter
from mcp_exec_operator.executions.tools import ApprovalWaits, GrantIssuer, ToolCallTracker
from mcp_exec_operator.kube.api import ExecutionRow, OperatorApi
from mcp_exec_operator.kube.observations import CallerProofs, DeletedUids, is_older
from mcp_exec_operator.metrics import Metrics
from mcp_exec_operator.pools.pool import Pool
from mcp_exec_operator.pools.registry import PoolRegistry
from mcp_exec_operator.skills.authoring import SavedBy, SavedSkills
from mcp_exec_operator.skills.controller import SkillComponent
from mcp_exec_operator.ttl import TTLController

log = logging.getLogger(__name__)

_FIRST_RETRY_SECONDS: Final = 1.0
_LAST_RETRY_SECONDS: Final = 60.0
_CODES_OWN: Final = (Reason.USER_ERROR, Reason.EXIT_CODE)
"""Failures that the code itself chose: frequent, and no event for the cluster."""
_MAX_CHANGES: Final = 2
"""Reports of changed specs at the same time: each reads the whole object."""
_MAX_FAILURES: Final = 5
"""Failures in a row, over about 15 s, after which an execution is ended as Failed."""
_MAX_APPROVAL_WRITES: Final = 8
"""Statuses and Events about approvals that are written at once, of the 64 connections to the API server."""


@dataclass(kw_only=True, eq=False)
class ExecutionController:
    """Reconciles all executions. `observe` and `replace` never wait."""

    api: OperatorApi
    pools: PoolRegistry
    binder: Binder
    writer: ExecutionStatusWriter
    supervisors: SupervisorClient
    callers: CallerProofs
    specs: SpecCache
    tools: GrantIssuer
    turns: SessionTurns
    skills: SkillComponent
    files: FilesIssuer
    writers: WorkspaceTurns
    ttl: TTLController
    tasks: TaskRegistry
    metrics: Metrics
    clock: Callable[[], datetime] = now
    _records: dict[str, ExecutionRecord] = field(default_factory=dict)
    """Unfinished executions by uid."""
    _ignored: dict[str, ObjectKey] = field(default_factory=dict)
    """Pods of executions in an unknown phase, by the execution's uid."""
    _deleted: DeletedUids = field(default_factory=DeletedUids)
    _unknown_phases: set[str] = field(default_factory=set)
    """Unknown phases that were logged."""
    _stopping: bool = False
    _approval_writes: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_MAX_APPROVAL_WRITES))
    _changes: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_MAX_CHANGES))

    def observe(self, body: Object, *, deleted: bool) -> bool:
        """Take in an execution's object. Return whether it was not known before."""
        uid = body["metadata"]["uid"]
        record = self._records.get(uid)
        if deleted:
            self._deleted.add(uid)
            self._ignored.pop(uid, None)
            self.ttl.forget(uid, body["metadata"]["namespace"])
            if record is not None:
                self._abandon(record)
            return False
        if record is not None:
            record.observe(body)
            if record.changed:
                self._report_change(record, changed=lambda body: record.list_changes(body.get("spec") or {}))
            return False
        is_known = uid in self._ignored or uid in self.ttl
        if (new := self.prepare(body)) is not None:
            self.start(new)
        return not is_known

    def prepare(self, body: Object) -> ExecutionRecord | None:
        """Return the record of an unfinished execution that was not known, to be started. Take in any other object."""
        uid = body["metadata"]["uid"]
        self._ignored.pop(uid, None)
        if uid in self._records:
            self.observe(body, deleted=False)
            return None
        if uid in self._deleted:
            return None
        phase = read_phase(body)
        if phase is None:
            self._ignore(body)
        elif phase.finished:
            self._observe_finished(body)
        elif uid not in self.ttl:  # else it is a late event of an execution that has ended since
            record = ExecutionRecord.from_object(body, caller=self.callers.read_caller(body))
            self.specs.keep(record)
            return record
        return None

    def start(self, record: ExecutionRecord) -> bool:
        """Start the task of a prepared execution. Return whether it was not known before."""
        if record.uid in self._records or record.uid in self.ttl:
            return False
        if record.uid in self._deleted:  # since it was read
            self.specs.forget(record)
            return False
        if self._stopping:
            self.specs.forget(record)
            return True
        self._records[record.uid] = record
        if record.phase is Phase.RUNNING and record.pod:
            # before the task's first step: no other execution may claim the pod
            pool = self.pools.get(record.pool)
            pool.pods.adopt(record.pod, uid=record.pod_uid, now=monotonic())
            self.turns.adopt(record)
            self.writers.hold(record)
            if pool.body is None:
                record.withdraw(f"the pool {pool.name} was deleted")
        if record.namespace in self.pools.closed:
            record.withdraw(f"the namespace {record.namespace} is being deleted")
        self.metrics.active.inc()
        record.task = self.tasks.spawn(self._reconcile(record), name=f"execution {record.name}")
        return True

    def needs_reading(self, row: ExecutionRow) -> bool:
        """Take in an execution of a list. Return whether the list does not show enough of it."""
        if (record := self._records.get(row.uid)) is not None:
            return is_older(record.version, row.version)
        if row.uid in self._deleted:
            return False
        if row.uid in self._ignored:
            return row.phase is not None
        if row.is_expirable:
            self.ttl.observe_row(row, read_caller=self._read_listed_caller)
            return False
        return row.uid not in self.ttl

    def retain(self, namespace: str, uids: set[str], *, listed_at: datetime) -> None:
        """Forget the executions of a namespace that are not in a fresh list."""
        for uid, record in list(self._records.items()):
            if record.namespace == namespace and uid not in uids and record.first_seen < listed_at:
                self._abandon(record)
        for uid, (owner, _) in list(self._ignored.items()):
            if owner == namespace and uid not in uids:
                del self._ignored[uid]
        self.ttl.retain(namespace, uids, listed_at=listed_at)

    def withdraw_pool(self, pool: Pool) -> None:
        """Cancel the runs in pods of a pool that was deleted: Kubernetes deletes its pods, then its NetworkPolicy."""
        for record in self._records.values():
            if record.pool == (pool.namespace, pool.name) and record.pod:
                record.withdraw(f"the pool {pool.name} was deleted")

    def withdraw_session(self, key: ObjectKey, why: str) -> None:
        """Cancel the run in a session that was reset or deleted. Those that wait start in a new one."""
        for record in self._records.values():
            if record.session is not None and record.session.key == key and record.pod:
                record.withdraw(why)

    def withdraw_namespace(self, namespace: str) -> None:
        """Cancel all executions of a namespace that is being deleted."""
        for record in self._records.values():
            if record.namespace == namespace:
                record.withdraw(f"the namespace {namespace} is being deleted")

    def list_pods(self) -> set[ObjectKey]:
        """Return namespace and name of the pods that executions have."""
        pods = {(record.namespace, record.pod) for record in self._records.values() if record.pod}
        return pods | {key for key in self._ignored.values() if key[1]}

    async def close(self, *, grace_seconds: float) -> None:
        """Stop. Writes in flight end; what waits or runs stays as its status says, for the next operator."""
        self._stopping = True
        tasks = []
        for record in self._records.values():
            if record.task is not None:
                tasks.append(record.task)
                if not record.writing:
                    record.task.cancel()
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=grace_seconds)
            for task in late:
                task.cancel()

    def _ignore(self, body: Object) -> None:
        """Leave an execution alone whose phase a newer version wrote, and keep its pod busy."""
        record = ExecutionRecord.from_object(body)
        self._ignored[record.uid] = (record.namespace, record.pod or "")
        if record.pod:
            self.pools.get(record.pool).pods.adopt(record.pod, uid=record.pod_uid, now=monotonic())
        if (phase := str(record.status["phase"])) not in self._unknown_phases:
            self._unknown_phases.add(phase)
            log.warning(
                "executions with the unknown phase %r are left alone: a newer version of the operator wrote it",
                phase,
                extra=record.log_fields,
            )

    def _abandon(self, record: ExecutionRecord) -> None:
        """End the task of a deleted execution."""
        record.deleted = True
        if record.task is not None and record.started:
            record.task.cancel()

    async def _reconcile(self, record: ExecutionRecord) -> None:
        """Bring one execution to its end, then return its pod. A pod of an unfinished execution is kept."""
        over, record.started = False, True
        try:
            over = record.deleted or await self._finish_or_yield(record)
        except ExecutionGone:
            record.deleted = over = True
        except asyncio.CancelledError:
            over = record.deleted
            if not record.deleted:
                raise
        finally:
            self._records.pop(record.uid, None)
            self.specs.forget(record)
            self.writers.leave(record)
            self.metrics.active.dec()
            if over and not self.turns.leave(record, record.outcome):
                self._return_pod(record)
            elif not over and not self._stopping:
                self.turns.abandon(record)

    async def _finish_or_yield(self, record: ExecutionRecord) -> bool:
        """Execute until the end is written. Return False if another operator has written it, or an unknown phase.

        Return False, too, if this operator stops and cannot write the end: the next one goes on from the status.
        After an exception it backs off and goes on from the status. An Event reports the first failure. From the
        second failure on, a known outcome is written without its details; after the fifth, the execution fails.
        """
        outcome: ExecutionOutcome | None = None
        failures = 0
        while record.phase in (Phase.PENDING, Phase.RUNNING) and not self._stopping:
            try:
                if outcome is None:
                    outcome = record.outcome = await self._execute(record)
                await self._finish(record, outcome)
                return True
            except ExecutionGone:
                raise
            except Superseded:
                log.info("another operator has the execution", extra=record.log_fields)
            except Exception as error:
                failures += 1
                log.exception("the reconciliation of an execution failed", extra=record.log_fields)
                if self._stopping:
                    return False
                outcome = _reduce(outcome, record, error, failures)
                if failures == 1:
                    message = f"the operator can't reconcile the execution and tries again: {error}"
                    await self.writer.record_event(record, "Warning", "ReconcileFailed", message)
                await asyncio.sleep(delay_after(failures, first=_FIRST_RETRY_SECONDS, last=_LAST_RETRY_SECONDS))
        if is_finished(record.body):
            self.ttl.observe(record.body, caller=record.caller)
        return False

    async def _execute(self, record: ExecutionRecord) -> ExecutionOutcome:
        """Bind the execution to a pod, unless it is bound, and run it there. Raises Superseded and ExecutionGone."""
        try:
            if record.phase is Phase.PENDING:
                record.binding = await self.binder.bind(record)
                if self._stopping:
                    raise asyncio.CancelledError
            else:
                record.binding = await self.binder.adopt(record)
            return with_tokens(await self._run(record), code_tokens=record.code_tokens)
        except EndedBeforeRun as ended:
            return with_tokens(ended.outcome, code_tokens=record.code_tokens)
        finally:
            if record.binding is not None:
                record.binding.withdraw()

    async def _run(self, record: ExecutionRecord) -> ExecutionOutcome:
        assert record.binding is not None  # noqa: S101 - _execute has set it
        tracker: ToolCallTracker | None = None
        if record.binding.spec.tools and self.tools.broker is not None:
            client = self.tools.broker.client
            tracker = ToolCallTracker(
                record=record,
                broker=client,
                writer=self.writer,
                tasks=self.tasks,
                approval_writes=self._approval_writes,
                waits=ApprovalWaits(
                    limit_seconds=record.binding.spec.approval_timeout_seconds,
                    recorded_seconds=read_waited_seconds(record.status),
                ),
            )
        run = ExecutionRun(
            record=record,
            binding=record.binding,
            api=self.api,
            supervisors=self.supervisors,
            tasks=self.tasks,
            nodes=self.pools.nodes,
            specs=self.specs,
            tools=self.tools,
            files=self.files,
            tracker=tracker,
            skills=self.skills.resolver,
            saved=self._build_saved(record),
        )
        if tracker is None:
            return await self._run_without_tools(record, run)
        try:
            outcome = await self._execute_run(run)
        except asyncio.CancelledError:
            if record.deleted:  # the counts have no reader any more, but no call may go on
                self.tasks.spawn(tracker.abandon(), name=f"end the calls of {record.name}")
            raise
        finally:
            await tracker.stop()
        return await tracker.close(outcome)

    def _build_saved(self, record: ExecutionRecord) -> SavedSkills:
        assert record.binding is not None  # noqa: S101 - _execute has set it
        by = SavedBy(
            namespace=record.namespace,
            name=record.name,
            uid=record.uid,
            caller=record.caller,
            is_claimed=bool(record.claimed_caller),
            user=record.binding.spec.user,
        )
        return SavedSkills(writer=self.skills.drafts, tasks=self.tasks, by=by)

    async def _execute_run(self, run: ExecutionRun) -> ExecutionOutcome:
        """Return the outcome of a run, with the skills that it used and saved."""
        outcome = await run.execute()
        used = (run.record.status.get("skills") or {}).get("used") or []
        skills = await run.saved.finish(used)
        self.skills.controller.count(run.record.namespace, used, succeeded=outcome.phase is Phase.SUCCEEDED)
        return (
            outcome
            if skills is None
            else replace(outcome, skills={name: each for name, each in skills.to_api().items() if each})
        )

    async def _run_without_tools(self, record: ExecutionRecord, run: ExecutionRun) -> ExecutionOutcome:
        """Run, and end the grant of its files if it has no end: its sandbox might still commit."""
        try:
            outcome = await self._execute_run(run)
        except asyncio.CancelledError:
            if record.deleted and record.workspace is not None:
                self.tasks.spawn(self.files.revoke(record), name=f"revoke the files of {record.name}")
            raise
        if record.workspace is not None and run.output.end is None:
            await self.files.revoke(record)
        elif record.workspace is not None:
            self.tasks.spawn(self.files.close(record), name=f"close the files of {record.name}")
        return outcome

    async def _finish(self, record: ExecutionRecord, outcome: ExecutionOutcome) -> None:
        """Write the final status, and measure the execution. Raises ExecutionGone."""
        moment, created = self.clock(), record.created_at()
        limit = count_spare_bytes(record.rest_bytes)

        def decide(body: Object) -> Object | None:
            phase = read_phase(body)
            if phase is None:
                raise Superseded
            if phase.finished:
                return None  # an earlier attempt succeeded
            return build_finished_status(body.get("status") or {}, outcome, moment=moment, created=created, limit=limit)

        try:
            await self.writer.write(record, decide, what="finish")
        except StatusTooLarge as error:
            log.warning("a status is too large and is cut: %s", error, extra=record.log_fields)
            limit = SMALL_STATUS_BYTES
            await self.writer.write(record, decide, what="finish")
        record.left_clean = outcome.left_clean
        self.ttl.observe(record.body, caller=record.caller)
        self._measure(record, outcome)
        if outcome.phase in (Phase.FAILED, Phase.TIMED_OUT) and outcome.reason not in _CODES_OWN:
            # without the outcome's message, which may quote what the code wrote
            message = f"{outcome.phase}: {outcome.reason.meaning}"
            self.writer.report(record, reason=outcome.reason.value, message=message)

    def _measure(self, record: ExecutionRecord, outcome: ExecutionOutcome) -> None:
        status = record.status
        known = self.pools.get(record.pool)
        # names of pools that do not exist are unbounded
        pool = known.name if known.body is not None else ""
        known.health.record_run(outcome.reason, now=monotonic())
        start = status.get("start") or ""
        labels = (outcome.phase, outcome.reason, start, record.namespace, pool)
        self.metrics.executions.labels(*labels).inc()
        if outcome.usage is not None:
            self.metrics.observe_usage(outcome.usage, namespace=record.namespace, pool=pool)
            self._measure_tokens(record, outcome)
        for stage, milliseconds in (status.get("durations") or {}).items():
            self.metrics.stages.labels(stage).observe(milliseconds / 1000)
        fields = {**record.log_fields, "reason": outcome.reason, "durations": status.get("durations")}
        log.info("execution %s", outcome.phase, extra=fields)

    def _measure_tokens(self, record: ExecutionRecord, outcome: ExecutionOutcome) -> None:
        tokens = outcome.usage.tokens if outcome.usage else None
        if tokens is None:
            return
        saving = find_saving(tokens, calls=(outcome.tool_calls or {}).get("total") or 0)
        self.metrics.observe_tokens(
            namespace=record.namespace, use_case=record.use_case, kept=tokens.kept or 0, saving=saving
        )

    def _return_pod(self, record: ExecutionRecord) -> None:
        """Delete the pod, which has served its one execution, or clean it for the next execution of its owner."""
        pool, binding = self.pools.get(record.pool), record.binding
        if binding is not None and binding.owner is not None and record.left_clean and not record.deleted:
            self.pools.give_back(pool, binding.pod, uid=record.uid)
        elif binding is not None:
            self.pools.retire(pool, binding.pod)
        elif record.pod and (pod := pool.pods.get(record.pod)) is not None:
            self.pools.retire(pool, pod)
        self.pools.discard(pool)

    def _read_listed_caller(self, metadata: Object) -> str:
        """Return the proven caller of an execution by its metadata, or an empty text."""
        caller = self.callers.read_listed_caller(metadata)
        return "" if caller.startswith(CLAIMED) else caller

    def _observe_finished(self, body: Object) -> None:
        self.ttl.observe(body, caller=self._read_listed_caller(body["metadata"]))
        recorded = (body.get("status") or {}).get("specDigest")
        touched = int(body["metadata"].get("generation", 1)) > 1
        if touched and recorded and not self._stopping and recorded != spec_digest(body.get("spec") or {}):
            record = ExecutionRecord.from_object(body)
            record.drop_spec()
            self._report_change(record, changed=lambda body: [])

    def _report_change(self, record: ExecutionRecord, *, changed: Callable[[Object], list[str]]) -> None:
        """Write once to the status that the spec is not the one that ran. `changed` names the changed fields."""
        if record.phase in (Phase.PENDING, None) or has_condition(record.status, "SpecUnchanged"):
            return

        def decide(body: Object) -> Object | None:
            status = body.get("status") or {}
            if has_condition(status, "SpecUnchanged"):
                return None
            return build_changed_status(status, fields=changed(body), moment=self.clock())

        self.tasks.spawn(self._write_change(record, decide), name=f"change of {record.name}")

    async def _write_change(self, record: ExecutionRecord, decide: Callable[[Object], Object | None]) -> None:
        try:
            async with self._changes:
                if await self.writer.write(record, decide, what="changed", whole=True):
                    message = "the spec was changed after creation; what ran, or runs, is the original one"
                    self.writer.report(record, reason="SpecChanged", message=message)
        except ExecutionGone:
            log.info("the execution was deleted meanwhile", extra=record.log_fields)
        except ApiError as error:
            log.warning("a change of a spec was not written to the status: %s", error, extra=record.log_fields)


def _reduce(
    outcome: ExecutionOutcome | None, record: ExecutionRecord, error: Exception, failures: int
) -> ExecutionOutcome | None:
    """Return what to write after so many failures in a row; None to execute again from the status."""
    if outcome is not None:
        why = f"the API server rejects its details: {error}"
        details = outcome.output, outcome.tool_calls, outcome.code_findings, outcome.approvals
        return outcome.drop_details(why) if failures > 1 and any(details) else outcome
    if failures < _MAX_FAILURES:
        return None
    reason = Reason.REJECTED if record.phase is Phase.PENDING else Reason.SANDBOX_LOST
    return build_failure(reason, f"the operator can't reconcile the execution: {error}")
