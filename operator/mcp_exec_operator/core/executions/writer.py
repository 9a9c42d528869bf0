"""Writer of the statuses and Events of executions."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Final

from mcp_exec_api.code_execution import Phase, QueuePlace, Start, read_phase
from mcp_exec_api.meta import now
from mcp_exec_api.reasons.event import EventReason
from mcp_exec_api.reasons.execution import Reason
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.process.tasks import TaskRegistry
from mcp_exec_common.util.backoff import delay_after
from mcp_exec_operator.cluster.kube.api import EventBudget, OperatorApi, WritePriority, build_event
from mcp_exec_operator.core.executions.outcome import ExecutionGone, ExecutionOutcome, StatusTooLarge, Superseded
from mcp_exec_operator.core.executions.record import ExecutionRecord, measure_stored_bytes
from mcp_exec_operator.core.executions.status import (
    SMALL_STATUS_BYTES,
    build_approvals_status,
    build_bound_status,
    build_changed_status,
    build_finished_status,
    build_pending_status,
    count_spare_bytes,
    has_condition,
)
from mcp_exec_operator.core.pods.pod import Pod

log = logging.getLogger(__name__)

_FIRST_DELAY: Final = 0.05
_LAST_DELAY: Final = 5.0
_ATTEMPTS_BEFORE_EVENT: Final = 8
"""Failed attempts of one write, about 11 s, after which an Event reports them."""
_EVENT_SECONDS: Final = 2.0
"""How long an Event may take: what it reports goes on."""
_TOO_LARGE: Final = ("too large", "larger than max")


@dataclass(frozen=True, kw_only=True)
class ExecutionStatusWriter:
    """Writes status so that no write is lost, repeated, or made over another writer's.

    Every write names the resource version that it was decided for. After a conflict it is decided again.
    """

    api: OperatorApi
    priority: WritePriority
    tasks: TaskRegistry
    """Tasks that create Events."""
    budget: EventBudget = field(default_factory=EventBudget)
    """Rate of the Events of `report`."""

    async def write_pending(self, record: ExecutionRecord, *, reason: Reason, message: str, place: QueuePlace) -> None:
        """Write why an execution waits, and its queue position. Raises Superseded and what `_write` raises."""

        def decide(body: Object) -> Object | None:
            if read_phase(body) is not Phase.PENDING:
                raise Superseded
            return build_pending_status(
                body.get("status") or {},
                reason=reason,
                message=message,
                place=place,
                moment=now(),
                created=record.created_at(),
            )

        await self._write(record, decide, what="pending")

    async def write_bound(
        self, record: ExecutionRecord, pod: Pod, *, start: Start, code_findings: list[Object], skills: Sequence[str]
    ) -> None:
        """Write which pod an execution has. Raises Superseded, EndedBeforeRun and what `_write` raises."""
        moment, created, ready_seconds = now(), record.created_at(), monotonic() - pod.ready_at

        def decide(body: Object) -> Object | None:
            status, phase = body.get("status") or {}, read_phase(body)
            if phase is Phase.RUNNING and status.get("podName") == pod.name:
                return None  # an earlier attempt succeeded
            if phase is not Phase.PENDING:
                raise Superseded
            record.check_wanted()
            return build_bound_status(
                status,
                pod=pod.name,
                pod_uid=pod.uid,
                node=pod.node,
                start=start,
                ready_seconds=ready_seconds,
                uses=pod.uses,
                digest=record.digest,
                code_findings=code_findings,
                skills=skills,
                moment=moment,
                created=created,
            )

        await self._write(record, decide, what="bind")

    async def write_approvals(self, record: ExecutionRecord, approvals: list[Object], *, waited_seconds: float) -> None:
        """Write the approvals of a running execution. Raises Superseded and what `_write` raises."""

        def decide(body: Object) -> Object | None:
            if read_phase(body) is not Phase.RUNNING:
                raise Superseded
            return build_approvals_status(body.get("status") or {}, approvals, waited_seconds=waited_seconds)

        await self._write(record, decide, what="approvals")

    async def write_finished(self, record: ExecutionRecord, outcome: ExecutionOutcome) -> None:
        """Write the end, cut if the API server rejects it for its size. Raises Superseded and what `_write` raises."""
        moment, created = now(), record.created_at()
        limit = count_spare_bytes(record.rest_bytes)

        def decide(body: Object) -> Object | None:
            phase = read_phase(body)
            if phase is None:
                raise Superseded
            if phase.finished:
                return None  # an earlier attempt succeeded
            return build_finished_status(body.get("status") or {}, outcome, moment=moment, created=created, limit=limit)

        try:
            await self._write(record, decide, what="finish")
        except StatusTooLarge as error:
            log.warning("a status is too large and is cut: %s", error, extra=record.log_fields)
            limit = SMALL_STATUS_BYTES
            await self._write(record, decide, what="finish")

    async def write_changed(self, record: ExecutionRecord) -> bool:
        """Write that the spec is not the one that ran. Return False if the status says so already.

        Raises what `_write` raises.
        """

        def decide(body: Object) -> Object | None:
            status = body.get("status") or {}
            if has_condition(status, "SpecUnchanged"):
                return None
            fields = record.list_changes(body.get("spec") or {})
            return build_changed_status(status, fields=fields, moment=now())

        return await self._write(record, decide, what="changed", whole=True)

    def report(self, record: ExecutionRecord, *, reason: EventReason | Reason, message: str) -> None:
        """Create a Warning Event in the background, unless the namespace had too many. Nothing waits for it.

        `message` must have nothing that code wrote: whoever reads Events need not be allowed to read executions.
        """
        if not self.budget.take(record.namespace):
            self.api.metrics.events_dropped.labels(reason).inc()
            return
        coroutine = self.record_event(record, reason, message)
        self.tasks.spawn(coroutine, name=f"Event of {record.name}")

    async def record_event(self, record: ExecutionRecord, reason: EventReason | Reason, message: str) -> None:
        """Create an Event of the execution. If that fails or takes long, it is logged."""
        event = build_event(
            "CodeExecution",
            key=record.key,
            uid=record.uid,
            kind=reason.type if isinstance(reason, EventReason) else "Warning",
            reason=reason,
            message=message,
            moment=now(),
        )
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(_EVENT_SECONDS):
                    await self.api.create_event(event)
        except ApiError as error:
            log.warning("no Event was created for an execution: %s", error, extra=record.log_fields)

    async def _write(
        self, record: ExecutionRecord, decide: Callable[[Object], Object | None], *, what: str, whole: bool = False
    ) -> bool:
        """Write the status that `decide` returns for the newest object, with the bytes that the object then has.

        Return False if it returns None.

        With `whole`, `decide` gets the object as the API server has it, else as the record keeps it.

        After a conflict or a lost response the object is read and `decide` is called again, since the write may have
        been made. An exception of `decide` ends the attempts. Raises ExecutionGone, StatusTooLarge, and ApiError if
        the API server rejects the status for another reason.
        """
        failures = 0
        record.writing += 1
        try:
            read = await self._read(record) if whole else None
            while True:
                body = record.body if read is None else read
                status = decide(body)
                if status is None:
                    return False
                status["storedBytes"] = record.rest_bytes + measure_stored_bytes(status)
                try:
                    with self.priority.writing():
                        version = str(body["metadata"]["resourceVersion"])
                        written = await self.api.replace_execution_status(
                            record.namespace, record.name, version=version, status=status, what=what
                        )
                    record.observe(written)
                except ApiError as error:
                    failures += 1
                    _raise_if_final(error)
                    if error.code != 409:
                        log.warning(
                            "a status write may have failed and is repeated: %s", error, extra=record.log_fields
                        )
                    if failures == _ATTEMPTS_BEFORE_EVENT:
                        await self.record_event(
                            record, EventReason.STATUS_WRITE_DELAYED, f"status writes fail: {error}"
                        )
                else:
                    return True
                newest = await self._read(record)
                record.observe(newest)
                read = newest if whole else None
                del newest
                await asyncio.sleep(delay_after(failures, first=_FIRST_DELAY, last=_LAST_DELAY))
        finally:
            record.writing -= 1

    async def _read(self, record: ExecutionRecord) -> Object:
        failures = 0
        while True:
            try:
                body = await self.api.get_execution(record.namespace, record.name)
            except ApiError as error:
                failures += 1
                log.warning("an execution can't be read: %s", error, extra=record.log_fields)
                await asyncio.sleep(delay_after(failures, first=_FIRST_DELAY, last=_LAST_DELAY))
                continue
            if body is None or body["metadata"]["uid"] != record.uid:
                raise ExecutionGone
            return body


def _raise_if_final(error: ApiError) -> None:
    """Raise if another attempt can't succeed."""
    if error.code == 404:
        raise ExecutionGone from error
    if error.code == 413 or any(words in error.message for words in _TOO_LARGE):
        raise StatusTooLarge(error.message) from error
    # 0 is a lost response; after a server error the write may have been made
    if error.code not in (0, 409, 429) and error.code < 500:
        raise error
