"""The controller of sessions: ends them in time, notices what is lost, and writes their status off the hot path."""

import asyncio
import logging
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from math import inf
from time import monotonic
from typing import Final

from mcp_exec_api.meta import now
from mcp_exec_api.reasons.execution import SessionReason
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.process.tasks import TaskRegistry
from mcp_exec_common.supervisor.protocol import SandboxError
from mcp_exec_operator.cluster.kube.api import OperatorApi, WritePriority
from mcp_exec_operator.features.sessions.limits import find_disposable
from mcp_exec_operator.features.sessions.record import SessionRecord
from mcp_exec_operator.features.sessions.registry import SessionRegistry, SessionSettler
from mcp_exec_operator.features.sessions.status import (
    SessionGone,
    SessionStatusWriter,
    build_session_status,
    find_phase,
    is_urgent,
)
from mcp_exec_operator.metrics import Metrics

log = logging.getLogger(__name__)

_GATHER_SECONDS: Final = 0.05
"""How long changes are gathered before a reconcile, which looks at all sessions."""
_SETTLE_SECONDS: Final = 1.0
"""Delay between a change that is not urgent and its write."""
_WRITE_SECONDS: Final = 5.0
"""Shortest time between two such writes of one session: many executions share one."""
_PROBE_SECONDS: Final = 60.0
"""Interval of requests to the sandbox of an idle session: for its memory, and whether its interpreter lives."""
_RETRY_SECONDS: Final = 10.0


@dataclass(kw_only=True, eq=False)
class SessionController:
    """Reconciles all sessions of a namespace."""

    namespace: str
    api: OperatorApi
    sessions: SessionRegistry
    settler: SessionSettler
    writer: SessionStatusWriter
    tasks: TaskRegistry
    metrics: Metrics
    max_unused: int
    """Sessions without a pod that are kept for one owner."""
    write_priority: WritePriority

    async def run(self) -> None:
        """Reconcile until cancelled."""
        while True:
            self.sessions.wakeup.clear()
            seconds = self.reconcile()
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self.sessions.wakeup.wait()
                    await asyncio.sleep(_GATHER_SECONDS)

    def reconcile(self) -> float | None:
        """Reconcile once. Return the seconds until something changes without an event, or None."""
        at, moment = monotonic(), now()
        for record in self.sessions:
            if record.schedule.dirty or record.schedule.due <= at or (record.pod is not None and record.pod.lost):
                record.schedule.dirty = False
                record.schedule.due = at + self._reconcile(record, at, moment)
        self._measure()
        shortest = min((record.schedule.due - at for record in self.sessions), default=inf)
        disposable, due = find_disposable(
            [each for each in self.sessions if not self.sessions.turns.is_held(each.key)],
            moment=moment,
            max_unused=self.max_unused,
        )
        for record in disposable:
            if not record.schedule.writing:
                record.schedule.writing = True
                self.tasks.spawn(self._delete(record), name=f"delete session {record.name}")
        if due is not None:
            shortest = min(shortest, (due - moment).total_seconds())
        return None if shortest == inf else max(shortest, 0.01)

    def _measure(self) -> None:
        self.metrics.sessions.remove_by_labels({"namespace": self.namespace})
        held = self.sessions.turns.is_held
        for (namespace, phase), count in Counter(
            (record.key[0], find_phase(record, held=held(record.key))) for record in self.sessions
        ).items():
            self.metrics.sessions.labels(namespace, phase).set(count)

    def _reconcile(self, record: SessionRecord, at: float, moment: datetime) -> float:
        """Reconcile a session. Return the seconds until it has to be reconciled again."""
        delay = inf
        if not self.sessions.turns.is_held(record.key):
            delay = self._reconcile_idle(record, at, moment)
        return min(delay, self._plan_write(record, at, moment))

    def _reconcile_idle(self, record: SessionRecord, at: float, moment: datetime) -> float:
        """Reset, end or check a session that no execution uses."""
        if record.is_reset:
            self.sessions.reset(record)
        if record.pod is None or self.sessions.end_if_lost(record):
            return inf
        if record.unsettled:
            self.settler.start(record)  # before its time can end: something may still run in it
            return inf
        if self.sessions.end_if_due(record, moment=moment):
            return inf
        if record.schedule.probe_at <= at and not record.schedule.probing:
            record.schedule.probing = True
            self.tasks.spawn(self._probe(record), name=f"probe session {record.name}")
        expiry = record.find_expiry()
        rest = (expiry[0] - moment).total_seconds() if expiry is not None else inf
        return min(rest, max(record.schedule.probe_at - at, 0.0) if not record.schedule.probing else inf)

    async def _probe(self, record: SessionRecord) -> None:
        """Ask the sandbox for the session's memory. One that does not answer is asked again later."""
        pod = record.pod
        record.schedule.probe_at = monotonic() + _PROBE_SECONDS
        try:
            if pod is None or not pod.seen.address:
                return
            state = await self.settler.connect(record, pod).get_session()
        except SandboxError as error:
            log.info("the sandbox of a session did not answer: %s", error, extra=record.log_fields)
            record.schedule.probe_at = monotonic() + _RETRY_SECONDS
            return
        finally:
            record.schedule.probing = False
            self.sessions.touch(record.key)
        if record.pod is not pod:
            return
        record.use.memory_bytes = state.memory_bytes
        if not state.alive and not self.sessions.turns.is_held(record.key):
            self.sessions.lose(record, SessionReason.INTERPRETER_LOST, "its interpreter ended while nothing ran")

    def _plan_write(self, record: SessionRecord, at: float, moment: datetime) -> float:
        """Start a write of the status if it is due. Return the seconds until it is."""
        if record.schedule.writing or record.starting:
            return inf  # what is being written has the newest state, or wakes the controller at its end
        wanted = self._build(record, moment)
        if wanted == record.seen.status:
            record.schedule.write_at = inf
            return inf
        if is_urgent(record.seen.status, wanted):
            record.schedule.write_at = min(record.schedule.write_at, at)
        elif record.schedule.write_at == inf:
            record.schedule.write_at = max(at + _SETTLE_SECONDS, record.schedule.written_at + _WRITE_SECONDS)
        if record.schedule.write_at > at:
            return record.schedule.write_at - at
        record.schedule.writing = True
        self.tasks.spawn(self._write(record), name=f"status of session {record.name}")
        return inf

    def _build(self, record: SessionRecord, moment: datetime) -> Object:
        turns = self.sessions.turns
        return build_session_status(
            record, held=turns.is_held(record.key), queued=turns.count_waiting(record.key), moment=moment
        )

    async def _write(self, record: SessionRecord) -> None:
        try:
            await self.write_priority.wait_until_idle()
            await self.writer.write(record, lambda: self._build(record, now()), what="session-status")
        except SessionGone:
            self.sessions.discard(record)
        except ApiError as error:
            log.warning("the status of a session was not written: %s", error, extra=record.log_fields)
        finally:
            record.schedule.writing, record.schedule.written_at, record.schedule.write_at = False, monotonic(), inf
            self.sessions.touch(record.key)

    async def _delete(self, record: SessionRecord) -> None:
        try:
            await self.api.delete("SandboxSession", *record.key, uid=record.seen.uid, what="session-delete")
            self.sessions.discard(record)
        except ApiError as error:
            log.warning("a session was not deleted: %s", error, extra=record.log_fields)
            await asyncio.sleep(_RETRY_SECONDS)
        finally:
            record.schedule.writing = False
            self.sessions.touch(record.key)
