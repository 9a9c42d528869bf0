"""The CodeExecution controller: one task for each unfinished execution, fed by watches and resyncs."""

import asyncio
import logging
from dataclasses import dataclass, field
from datetime import datetime
from time import monotonic
from typing import Final

from mcp_exec_api.code_execution import Phase, read_phase, spec_digest
from mcp_exec_api.reasons.event import EventReason
from mcp_exec_common.broker.attestations import CLAIMED, drop_claim
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.reflector import ObjectKey
from mcp_exec_common.process.tasks import TaskRegistry
from mcp_exec_operator.cluster.kube.api import ExecutionRow
from mcp_exec_operator.cluster.kube.observations import CallerProofs, DeletedUids, is_older
from mcp_exec_operator.core.executions.lifecycle import ExecutionLifecycle
from mcp_exec_operator.core.executions.outcome import ExecutionGone
from mcp_exec_operator.core.executions.record import ExecutionRecord
from mcp_exec_operator.core.executions.specs import SpecCache
from mcp_exec_operator.core.executions.status import has_condition
from mcp_exec_operator.core.executions.writer import ExecutionStatusWriter
from mcp_exec_operator.core.pools.pool import Pool
from mcp_exec_operator.core.pools.registry import PoolRegistry
from mcp_exec_operator.core.ttl import TTLController
from mcp_exec_operator.features.sessions.registry import SessionRegistry
from mcp_exec_operator.metrics import Metrics

log = logging.getLogger(__name__)

_MAX_CHANGES: Final = 2
"""Reports of changed specs at the same time: each reads the whole object."""


@dataclass(kw_only=True, eq=False)
class ExecutionController:
    """Reconciles all executions. `observe` and `replace` never wait."""

    lifecycle: ExecutionLifecycle
    pools: PoolRegistry
    sessions: SessionRegistry
    writer: ExecutionStatusWriter
    callers: CallerProofs
    specs: SpecCache
    ttl: TTLController
    tasks: TaskRegistry
    metrics: Metrics
    _records: dict[str, ExecutionRecord] = field(default_factory=dict)
    """Unfinished executions by uid."""
    _ignored: dict[str, ObjectKey] = field(default_factory=dict)
    """Pods of executions in an unknown phase, by the execution's uid."""
    _deleted: DeletedUids = field(default_factory=DeletedUids)
    _unknown_phases: set[str] = field(default_factory=set)
    """Unknown phases that were logged."""
    _changes: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_MAX_CHANGES))

    def __post_init__(self) -> None:
        self.pools.removed.connect(self.cancel_pool)
        self.sessions.interrupted.connect(self.cancel_session)

    def observe(self, body: Object, *, deleted: bool) -> bool:
        """Take in an execution's object. Return whether it was not known before."""
        uid = body["metadata"]["uid"]
        record = self._records.get(uid)
        if deleted:
            self._deleted.add(uid)
            self._ignored.pop(uid, None)
            self.ttl.discard(uid, body["metadata"]["namespace"])
            if record is not None:
                self._cancel(record)
            return False
        if record is not None:
            record.observe(body)
            if record.changed:
                self._report_change(record)
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
            self.specs.discard(record)
            return False
        if self.lifecycle.stopping:
            self.specs.discard(record)
            return True
        self._records[record.uid] = record
        if record.phase is Phase.RUNNING and record.pod_name:
            self.lifecycle.adopt(record)
            if (pool := self.pools.get(record.pool)).body is None:
                record.cancel(f"the pool {pool.name} was deleted")
        if record.namespace in self.pools.closed:
            record.cancel(f"the namespace {record.namespace} is being deleted")
        self.metrics.active.inc()
        record.task = self.tasks.spawn(self._run(record), name=f"execution {record.name}")
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

    def discard_missing(self, namespace: str, uids: set[str], *, listed_at: datetime) -> None:
        """Discard the executions of a namespace that are not in a fresh list."""
        for uid, record in list(self._records.items()):
            if record.namespace == namespace and uid not in uids and record.first_seen < listed_at:
                self._cancel(record)
        for uid, (owner, _) in list(self._ignored.items()):
            if owner == namespace and uid not in uids:
                del self._ignored[uid]
        self.ttl.discard_missing(namespace, uids, listed_at=listed_at)

    def cancel_pool(self, pool: Pool) -> None:
        """Cancel the runs in pods of a pool that was deleted: Kubernetes deletes its pods, then its NetworkPolicy."""
        for record in self._records.values():
            if record.pool == (pool.namespace, pool.name) and record.pod_name:
                record.cancel(f"the pool {pool.name} was deleted")

    def cancel_session(self, key: ObjectKey, why: str) -> None:
        """Cancel the run in a session that was reset or deleted. Those that wait start in a new one."""
        for record in self._records.values():
            if record.session is not None and record.session.key == key and record.pod_name:
                record.cancel(why)

    def cancel_namespace(self, namespace: str) -> None:
        """Cancel all executions of a namespace that is being deleted."""
        for record in self._records.values():
            if record.namespace == namespace:
                record.cancel(f"the namespace {namespace} is being deleted")

    def cancel_withdrawn(self) -> None:
        """Cancel the executions whose caller or whose pod is proven by a key that is not accepted any more."""
        for record in self._records.values():
            pod = self.pools.get(record.pool).pods.get(record.pod_name)
            if self._has_withdrawn_proof(record) or (pod and self.pools.has_withdrawn_key(record.namespace, pod)):
                record.cancel("the key that its caller or its sandbox was proven with was withdrawn; run it again")

    def _has_withdrawn_proof(self, record: ExecutionRecord) -> bool:
        proof = record.proof
        return proof is not None and self.callers.attestor.read_listed_caller(proof).startswith(CLAIMED)

    def list_pods(self) -> set[ObjectKey]:
        """Return namespace and name of the pods that executions have."""
        pods = {(record.namespace, record.pod_name) for record in self._records.values() if record.pod_name}
        return pods | {key for key in self._ignored.values() if key[1]}

    async def close(self, *, grace_seconds: float) -> None:
        """Stop. Writes in flight end; what waits or runs stays as its status says, for the next operator."""
        self.lifecycle.stop()
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
        """Ignore an execution whose phase a newer version wrote, and keep its pod busy."""
        record = ExecutionRecord.from_object(body)
        self._ignored[record.uid] = (record.namespace, record.pod_name)
        if record.pod_name:
            self.pools.get(record.pool).pods.adopt(record.pod_name, uid=record.pod_uid, now=monotonic())
        if (phase := str(record.status["phase"])) not in self._unknown_phases:
            self._unknown_phases.add(phase)
            log.warning(
                "executions with the unknown phase %r are left alone: a newer version of the operator wrote it",
                phase,
                extra=record.log_fields,
            )

    def _cancel(self, record: ExecutionRecord) -> None:
        """End the task of a deleted execution."""
        record.deleted = True
        if record.task is not None and record.started:
            record.task.cancel()

    async def _run(self, record: ExecutionRecord) -> None:
        record.started = True
        try:
            await self.lifecycle.run(record)
        finally:
            self._records.pop(record.uid, None)
            self.specs.discard(record)
            self.metrics.active.dec()

    def _read_listed_caller(self, metadata: Object) -> str:
        """Return the proven caller of an execution by its metadata, or an empty text."""
        return drop_claim(self.callers.read_listed_caller(metadata))

    def _observe_finished(self, body: Object) -> None:
        self.ttl.observe(body, caller=self._read_listed_caller(body["metadata"]))
        recorded = (body.get("status") or {}).get("specDigest")
        touched = int(body["metadata"].get("generation", 1)) > 1
        if touched and recorded and not self.lifecycle.stopping and recorded != spec_digest(body.get("spec") or {}):
            record = ExecutionRecord.from_object(body)
            record.discard_spec()
            self._report_change(record)

    def _report_change(self, record: ExecutionRecord) -> None:
        """Write once to the status that the spec is not the one that ran."""
        if record.phase not in (Phase.PENDING, None) and not has_condition(record.status, "SpecUnchanged"):
            self.tasks.spawn(self._write_change(record), name=f"change of {record.name}")

    async def _write_change(self, record: ExecutionRecord) -> None:
        try:
            async with self._changes:
                if await self.writer.write_changed(record):
                    message = "the spec was changed after creation; what ran, or runs, is the original one"
                    self.writer.report(record, reason=EventReason.SPEC_CHANGED, message=message)
        except ExecutionGone:
            log.info("the execution was deleted meanwhile", extra=record.log_fields)
        except ApiError as error:
            log.warning("a change of a spec was not written to the status: %s", error, extra=record.log_fields)
