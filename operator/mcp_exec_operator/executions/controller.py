"""Brings every execution to its end: one task for each that is not finished, fed by watches and sweeps."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from time import monotonic
from typing import Final

from pydantic import ValidationError

from mcp_exec_api.code_execution import CodeExecutionSpec, Phase, Reason, spec_digest
from mcp_exec_api.meta import now
from mcp_exec_common.broker.client import BrokerClient
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.reflector import ObjectKey
from mcp_exec_common.process.tasks import TaskRegistry
from mcp_exec_common.supervisor.client import SupervisorClient
from mcp_exec_operator.executions.binder import Binder, Lease
from mcp_exec_operator.executions.outcome import Decided, Superseded
from mcp_exec_operator.executions.record import Entry, changed_fields, phase_of
from mcp_exec_operator.executions.run import Run
from mcp_exec_operator.executions.status import (
    Outcome,
    changed_status,
    created_at,
    failed,
    finished_status,
    spare_bytes,
)
from mcp_exec_operator.executions.status_writer import ExecutionGone, StatusTooLarge, StatusWriter
from mcp_exec_operator.executions.tool_calls import Calls
from mcp_exec_operator.executions.tools import Tooling
from mcp_exec_operator.kube.api import OperatorApi
from mcp_exec_operator.metrics import Metrics
from mcp_exec_operator.pools.registry import PoolRegistry
from mcp_exec_operator.ttl import Expiry

log = logging.getLogger(__name__)

_SMALL_STATUS_BYTES: Final = 64 * 1024
"""What a status is cut to where the API server refused a larger one."""


@dataclass(kw_only=True, eq=False)
class Reconciler:
    """All executions. `offer` is all that watches call: it never waits."""

    api: OperatorApi
    pools: PoolRegistry
    binder: Binder
    writer: StatusWriter
    sandboxes: SupervisorClient
    tooling: Tooling
    expiry: Expiry
    tasks: TaskRegistry
    metrics: Metrics
    clock: Callable[[], datetime] = now
    _entries: dict[str, Entry] = field(default_factory=dict)
    _stopping: bool = False

    def offer(self, body: Object, *, deleted: bool) -> bool:
        """Takes in an execution's object. True where it was not known before."""
        uid = body["metadata"]["uid"]
        entry = self._entries.get(uid)
        if deleted:
            self.expiry.forget(uid)
            if entry is not None:
                self._abandon(entry)
            return False
        if entry is not None:
            entry.take_in(body)
            if entry.changed:
                self._note_change(entry)
            return False
        if phase_of(body).finished:
            return self._note_finished(body)
        if uid in self.expiry:
            return False  # a late echo of what has ended since
        if not self._stopping:
            self._start(body)
        return True

    def held(self) -> set[ObjectKey]:
        """The pods that executions have."""
        return {(entry.namespace, entry.pod) for entry in self._entries.values() if entry.pod}

    def replace(self, namespace: str, items: list[Object], *, listed_at: datetime) -> int:
        """Takes in a fresh list of a namespace. Returns how many executions no watch had told of."""
        news = 0
        ordered = sorted(items, key=lambda item: str(item["metadata"]["creationTimestamp"]))
        for item in ordered:
            news += self.offer(item, deleted=False)
        uids = {item["metadata"]["uid"] for item in items}
        for uid, entry in list(self._entries.items()):
            if entry.namespace == namespace and uid not in uids and entry.first_seen < listed_at:
                self._abandon(entry)
        self.expiry.retain(namespace, uids)
        return news

    async def close(self, *, grace_seconds: float) -> None:
        """Stops: writes under way end, and whatever waits or runs stays as its status says, for the next operator."""
        self._stopping = True
        tasks = []
        for entry in self._entries.values():
            if entry.task is not None:
                tasks.append(entry.task)
                if not entry.writing:
                    entry.task.cancel()
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=grace_seconds)
            for task in late:
                task.cancel()

    def _start(self, body: Object) -> None:
        entry = self._entries[body["metadata"]["uid"]] = Entry.of(body)
        if entry.phase is Phase.RUNNING and entry.pod:
            # before its task has a turn: nobody else may take its pod
            self.pools.get(entry.pool).adopt(entry.pod, now=monotonic())
        self.metrics.active.inc()
        entry.task = self.tasks.spawn(self._reconcile(entry), name=f"execution {entry.name}")

    def _abandon(self, entry: Entry) -> None:
        """Its object is gone: nobody wants to know how it ends."""
        entry.deleted = True
        if entry.task is not None and entry.started:
            entry.task.cancel()

    async def _reconcile(self, entry: Entry) -> None:
        lease: Lease | None = None
        over = entry.started = True
        try:
            if not entry.deleted:
                lease = await self._to_its_end(entry)
        except ExecutionGone:
            entry.deleted = True
        except Superseded:
            log.info("somebody else has the execution", extra=entry.log_fields)
            over = False
        except asyncio.CancelledError:
            over = entry.deleted
            if not entry.deleted:
                raise
        except Exception:
            # nothing is decided: the next sweep finds it as its status says, and goes on from there
            log.exception("an execution failed to be reconciled", extra=entry.log_fields)
            over = False
        finally:
            self._entries.pop(entry.uid, None)
            self.metrics.active.dec()
            if over:
                self._release(entry, lease)
        if not over:
            self._again(entry)

    def _again(self, entry: Entry) -> None:
        """Another operator has bound or ended it: goes on from what its status says now."""
        if entry.phase.finished or entry.phase is Phase.RUNNING:
            self.offer(entry.body, deleted=False)

    def _release(self, entry: Entry, lease: Lease | None) -> None:
        """The pod has served: it is deleted, whatever became of it."""
        pool = self.pools.get(entry.pool)
        partition = pool.partition_with(entry.pod or "")
        pod = lease.pod if lease is not None else partition.pods.get(entry.pod or "") if partition is not None else None
        if pod is not None:
            self.pools.retire(pool, pod)
        self.pools.discard(pool)

    async def _to_its_end(self, entry: Entry) -> Lease | None:
        lease: Lease | None = None
        try:
            if entry.phase is Phase.PENDING:
                lease = await self.binder.bind(entry)
                if self._stopping:
                    raise asyncio.CancelledError
            else:
                lease = self.binder.adopt(entry)
            outcome = await self._run(entry, lease)
        except Decided as decided:
            outcome = decided.outcome
        finally:
            if lease is not None:
                lease.withdraw()
        await self._finish(entry, outcome)
        return lease

    async def _run(self, entry: Entry, lease: Lease) -> Outcome:
        try:
            spec = lease.spec or CodeExecutionSpec.model_validate(entry.spec)
        except ValidationError:
            return failed(Reason.REJECTED, "the spec was changed after its binding to what is no spec")
        run = Run(
            entry=entry,
            lease=lease,
            spec=spec,
            api=self.api,
            sandboxes=self.sandboxes,
            tasks=self.tasks,
            nodes=self.pools.nodes,
            tooling=self.tooling,
        )
        if not spec.tools or self.tooling.broker is None:
            return await run.outcome()
        return await self._run_with_tools(entry, run, self.tooling.broker.client)

    async def _run_with_tools(self, entry: Entry, run: Run, brokers: BrokerClient) -> Outcome:
        calls = Calls(
            entry=entry, brokers=brokers, api=self.api, writer=self.writer, tasks=self.tasks, clock=self.clock
        )
        run.calls = calls
        try:
            outcome = await run.outcome()
        except asyncio.CancelledError:
            if entry.deleted:  # nobody asks for the counts any more, but nothing may go on
                self.tasks.spawn(calls.abandon(), name=f"end the calls of {entry.name}")
            raise
        finally:
            await calls.stop()
        return await calls.closed(outcome)

    async def _finish(self, entry: Entry, outcome: Outcome) -> None:
        """The one last write. Raises ExecutionGone, and Superseded where somebody else has ended it."""
        moment = self.clock()
        created = created_at(entry.body, first_seen=entry.first_seen)
        limit: int | None = None

        def decide(body: Object) -> Object | None:
            status = body.get("status") or {}
            if phase_of(body).finished:
                return None  # an earlier attempt got through
            large = outcome.output is not None and sum(map(len, _texts(outcome.output))) > _SMALL_STATUS_BYTES // 8
            room = limit or (spare_bytes(body) if large else _SMALL_STATUS_BYTES)
            return finished_status(status, outcome, moment=moment, created=created, spare_bytes=room)

        try:
            await self.writer.write(entry, decide, what="finish")
        except StatusTooLarge as error:
            log.warning("a status was too large and is cut: %s", error, extra=entry.log_fields)
            limit = _SMALL_STATUS_BYTES
            await self.writer.write(entry, decide, what="finish")
        self.expiry.note(entry.body)
        self._measure(entry, outcome)

    def _measure(self, entry: Entry, outcome: Outcome) -> None:
        status = entry.status
        known = self.pools.get(entry.pool)
        # names that no pool has would be without bound
        pool = known.name if known.body is not None else ""
        variant = said if (said := str(status.get("variant") or "")) in known.weights else ""
        known.record_run(variant, outcome.reason, now=monotonic())
        start = status.get("start") or ""
        labels = (outcome.phase, outcome.reason, start, entry.namespace, pool, variant)
        self.metrics.executions.labels(*labels).inc()
        for stage, milliseconds in (status.get("durations") or {}).items():
            self.metrics.stages.labels(stage).observe(milliseconds / 1000)
        log.info(
            "execution %s",
            outcome.phase,
            extra={**entry.log_fields, "reason": outcome.reason, "durations": status.get("durations")},
        )

    def _note_finished(self, body: Object) -> bool:
        news = body["metadata"]["uid"] not in self.expiry
        self.expiry.note(body)
        recorded = (body.get("status") or {}).get("specDigest")
        touched = int(body["metadata"].get("generation", 1)) > 1
        if touched and recorded and not self._stopping and recorded != spec_digest(body.get("spec") or {}):
            self._note_change(Entry.of(body))
        return news

    def _note_change(self, entry: Entry) -> None:
        """Says in the status, once, that the spec is not what ran."""
        conditions = entry.status.get("conditions") or ()
        if entry.phase is Phase.PENDING or any(each.get("type") == "SpecUnchanged" for each in conditions):
            return

        def decide(body: Object) -> Object | None:
            status = body.get("status") or {}
            if any(each.get("type") == "SpecUnchanged" for each in status.get("conditions") or ()):
                return None
            fields = changed_fields(entry.spec, body.get("spec") or {})
            return changed_status(status, fields=fields, moment=self.clock())

        self.tasks.spawn(self._write_change(entry, decide), name=f"change of {entry.name}")

    async def _write_change(self, entry: Entry, decide: Callable[[Object], Object | None]) -> None:
        try:
            await self.writer.write(entry, decide, what="changed")
        except ExecutionGone:
            log.info("it was deleted meanwhile", extra=entry.log_fields)
        except ApiError as error:
            log.warning("a change of a spec was not noted: %s", error, extra=entry.log_fields)


def _texts(output: Object) -> tuple[str, str, str]:
    result = output.get("result")
    text = result if isinstance(result, str) else "" if result is None else str(result)
    return output["stdout"], output["stderr"], text
