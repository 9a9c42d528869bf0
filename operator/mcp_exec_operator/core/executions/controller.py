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
from mcp_exec_operator.core.executions.execution import Execution, ExecutionFeature
from mcp_exec_operator.core.executions.lifecycle import ExecutionLifecycle
from mcp_exec_operator.core.executions.outcome import ExecutionGone
from mcp_exec_operator.core.executions.specs import SpecCache
from mcp_exec_operator.core.executions.status import has_condition
from mcp_exec_operator.core.executions.writer import ExecutionStatusWriter
from mcp_exec_operator.core.pools.pool import Pool
from mcp_exec_operator.core.pools.registry import PoolRegistry
from mcp_exec_operator.core.ttl import TTLController
from mcp_exec_operator.metrics import Metrics

log = logging.getLogger(__name__)

_MAX_CHANGES: Final = 2
"""Reports of changed specs at the same time: each reads the whole object."""


@dataclass(kw_only=True, eq=False)
class ExecutionController:
    """Reconciles all executions. `observe` and `replace` never wait."""

    lifecycle: ExecutionLifecycle
    pools: PoolRegistry
    writer: ExecutionStatusWriter
    callers: CallerProofs
    specs: SpecCache
    features: tuple[ExecutionFeature, ...]
    """What takes part in executions. Their parts are called in this order."""
    ttl: TTLController
    tasks: TaskRegistry
    metrics: Metrics
    _executions: dict[str, Execution] = field(default_factory=dict)
    """Unfinished executions by uid."""
    _ignored: dict[str, ObjectKey] = field(default_factory=dict)
    """Pods of executions in an unknown phase, by the execution's uid."""
    _deleted: DeletedUids = field(default_factory=DeletedUids)
    _unknown_phases: set[str] = field(default_factory=set)
    """Unknown phases that were logged."""
    _changes: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_MAX_CHANGES))

    def __post_init__(self) -> None:
        self.pools.removed.connect(self.cancel_pool)

    def observe(self, body: Object, *, deleted: bool) -> bool:
        """Take in an execution's object. Return whether it was not known before."""
        uid = body["metadata"]["uid"]
        execution = self._executions.get(uid)
        if deleted:
            self._deleted.add(uid)
            self._ignored.pop(uid, None)
            self.ttl.discard(uid, body["metadata"]["namespace"])
            if execution is not None:
                self._cancel(execution)
            return False
        if execution is not None:
            execution.observe(body)
            if execution.source.changed:
                self._report_change(execution)
            return False
        is_known = uid in self._ignored or uid in self.ttl
        if (new := self.prepare(body)) is not None:
            self.start(new)
        return not is_known

    def prepare(self, body: Object) -> Execution | None:
        """Return an unfinished execution that was not known, to be started. Take in any other object."""
        uid = body["metadata"]["uid"]
        self._ignored.pop(uid, None)
        if uid in self._executions:
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
            execution = Execution.from_object(body, specs=self.specs, caller=self.callers.read_caller(body))
            execution.ask_features(self.features, self.pools.get(execution.facts.pool))
            self.specs.keep(execution.source)
            return execution
        return None

    def start(self, execution: Execution) -> bool:
        """Start the task of a prepared execution. Return whether it was not known before."""
        facts = execution.facts
        if facts.uid in self._executions or facts.uid in self.ttl:
            return False
        is_gone = facts.uid in self._deleted  # since it was read
        if is_gone or self.lifecycle.stopping:
            self.specs.discard(execution.source)
            self.pools.discard(self.pools.get(facts.pool))
            return not is_gone
        self._executions[facts.uid] = execution
        if execution.seen.phase is Phase.RUNNING and execution.seen.status.get("podName"):
            self.lifecycle.binder.adopt(execution)
            if (pool := self.pools.get(facts.pool)).shape.body is None:
                execution.cancel(f"the pool {pool.name} was deleted")
        if facts.namespace in self.pools.closed:
            execution.cancel(f"the namespace {facts.namespace} is being deleted")
        self.metrics.active.inc()
        execution.task = self.tasks.spawn(self._run(execution), name=f"execution {facts.name}")
        return True

    def needs_reading(self, row: ExecutionRow) -> bool:
        """Take in an execution of a list. Return whether the list does not show enough of it."""
        if (execution := self._executions.get(row.uid)) is not None:
            return is_older(execution.seen.version, row.version)
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
        for uid, execution in list(self._executions.items()):
            if execution.facts.namespace == namespace and uid not in uids and execution.facts.first_seen < listed_at:
                self._cancel(execution)
        for uid, (owner, _) in list(self._ignored.items()):
            if owner == namespace and uid not in uids:
                del self._ignored[uid]
        self.ttl.discard_missing(namespace, uids, listed_at=listed_at)

    def cancel_pool(self, pool: Pool) -> None:
        """Cancel the runs in pods of a pool that was deleted: Kubernetes deletes its pods, then its NetworkPolicy."""
        for execution in self._executions.values():
            if execution.facts.pool == (pool.namespace, pool.name) and execution.binding is not None:
                execution.cancel(f"the pool {pool.name} was deleted")

    def cancel_namespace(self, namespace: str) -> None:
        """Cancel all executions of a namespace that is being deleted."""
        for execution in self._executions.values():
            if execution.facts.namespace == namespace:
                execution.cancel(f"the namespace {namespace} is being deleted")

    def cancel_withdrawn(self) -> None:
        """Cancel the executions whose caller or whose pod is proven by a key that is not accepted any more."""
        for execution in self._executions.values():
            bound = execution.binding
            is_withdrawn = bound is not None and self.pools.has_withdrawn_key(execution.facts.namespace, bound.pod)
            if is_withdrawn or self._has_withdrawn_proof(execution):
                execution.cancel("the key that its caller or its sandbox was proven with was withdrawn; run it again")

    def _has_withdrawn_proof(self, execution: Execution) -> bool:
        proof = execution.facts.proof
        return proof is not None and self.callers.attestor.read_listed_caller(proof).startswith(CLAIMED)

    def list_pods(self) -> set[ObjectKey]:
        """Return namespace and name of the pods that executions have."""
        pods = {
            (execution.facts.namespace, execution.binding.pod.name)
            for execution in self._executions.values()
            if execution.binding is not None
        }
        return pods | {key for key in self._ignored.values() if key[1]}

    async def close(self, *, grace_seconds: float) -> None:
        """Stop. Writes in flight end; what waits or runs stays as its status says, for the next operator."""
        self.lifecycle.stop()
        tasks = []
        for execution in self._executions.values():
            if execution.task is not None:
                tasks.append(execution.task)
                if not execution.writing:
                    execution.task.cancel()
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=grace_seconds)
            for task in late:
                task.cancel()

    def _ignore(self, body: Object) -> None:
        """Ignore an execution whose phase a newer version wrote, and keep its pod busy."""
        execution = Execution.from_object(body, specs=self.specs)
        pod_name = str(execution.seen.status.get("podName") or "")
        self._ignored[execution.facts.uid] = (execution.facts.namespace, pod_name)
        if pod_name:
            self.pools.get(execution.facts.pool).pods.adopt(pod_name, uid=execution.pod_uid, now=monotonic())
        if (phase := str(execution.seen.status["phase"])) not in self._unknown_phases:
            self._unknown_phases.add(phase)
            log.warning(
                "executions with the unknown phase %r are left alone: a newer version of the operator wrote it",
                phase,
                extra=execution.log_fields,
            )

    def _cancel(self, execution: Execution) -> None:
        """End the task of a deleted execution."""
        execution.deleted = True
        if execution.task is not None and execution.started:
            execution.task.cancel()

    async def _run(self, execution: Execution) -> None:
        execution.started = True
        try:
            await self.lifecycle.run(execution)
        finally:
            self._executions.pop(execution.facts.uid, None)
            execution.parts, execution.holder = (), None  # they refer to it: memory is released without a collection
            self.specs.discard(execution.source)
            self.metrics.active.dec()

    def _read_listed_caller(self, metadata: Object) -> str:
        """Return the proven caller of an execution by its metadata, or an empty text."""
        return drop_claim(self.callers.read_listed_caller(metadata))

    def _observe_finished(self, body: Object) -> None:
        self.ttl.observe(body, caller=self._read_listed_caller(body["metadata"]))
        recorded = (body.get("status") or {}).get("specDigest")
        touched = int(body["metadata"].get("generation", 1)) > 1
        if touched and recorded and not self.lifecycle.stopping and recorded != spec_digest(body.get("spec") or {}):
            execution = Execution.from_object(body, specs=self.specs)
            execution.source.discard()
            self._report_change(execution)

    def _report_change(self, execution: Execution) -> None:
        """Write once to the status that the spec is not the one that ran."""
        if execution.seen.phase not in (Phase.PENDING, None) and not has_condition(
            execution.seen.status, "SpecUnchanged"
        ):
            self.tasks.spawn(self._write_change(execution), name=f"change of {execution.facts.name}")

    async def _write_change(self, execution: Execution) -> None:
        try:
            async with self._changes:
                if await self.writer.write_changed(execution):
                    message = "the spec was changed after creation; what ran, or runs, is the original one"
                    self.writer.report(execution, reason=EventReason.SPEC_CHANGED, message=message)
        except ExecutionGone:
            log.info("the execution was deleted meanwhile", extra=execution.log_fields)
        except ApiError as error:
            log.warning("a change of a spec was not written to the status: %s", error, extra=execution.log_fields)
