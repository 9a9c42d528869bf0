"""Writer of the statuses and Events of executions, and of why they wait."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final, Self

from mcp_exec_api.code_execution import Phase, QueuePlace, read_phase
from mcp_exec_api.meta import now
from mcp_exec_api.reasons.event import EventReason
from mcp_exec_api.reasons.execution import Reason
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.events import build_event
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.process.tasks import TaskRegistry
from mcp_exec_common.util.backoff import delay_after
from mcp_exec_operator.cluster.kube.api import EventBudget, OperatorApi, WritePriority
from mcp_exec_operator.core.executions.execution import Binding, Execution
from mcp_exec_operator.core.executions.facts import measure_stored_bytes
from mcp_exec_operator.core.executions.outcome import (
    EndedBeforeRun,
    ExecutionGone,
    ExecutionOutcome,
    StatusTooLarge,
    Superseded,
    build_failure,
)
from mcp_exec_operator.core.executions.part import JobDraft
from mcp_exec_operator.core.executions.status import (
    MAX_STATUS_BYTES,
    SMALL_STATUS_BYTES,
    build_approvals_status,
    build_bound_status,
    build_changed_status,
    build_finished_status,
    build_pending_status,
    has_condition,
)
from mcp_exec_operator.core.queueing.turns import QueueUpdate, SerialQueue, Turn, first_update_after, next_update_after

log = logging.getLogger(__name__)

_FIRST_DELAY: Final = 0.05
_LAST_DELAY: Final = 5.0
_ATTEMPTS_BEFORE_EVENT: Final = 8
"""Failed attempts of one write, about 11 s, after which an Event reports them."""
_EVENT_SECONDS: Final = 2.0
"""How long an Event may take: what it reports goes on."""
_CHECK_SECONDS: Final = 5.0
"""How often an execution that waits for a turn checks whether it still waits."""
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

    async def write_pending(self, execution: Execution, *, reason: Reason, message: str, place: QueuePlace) -> None:
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
                created=execution.facts.created,
            )

        await self._write(execution, decide, what="pending")

    async def write_bound(self, execution: Execution, binding: Binding, draft: JobDraft) -> None:
        """Write which pod an execution has. Raises Superseded, EndedBeforeRun and what `_write` raises."""
        pod, start, moment = binding.pod, binding.start, now()
        assert start is not None  # noqa: S101 - this operator has claimed the pod
        ready_seconds = monotonic() - pod.start.ready_at

        def decide(body: Object) -> Object | None:
            status, phase = body.get("status") or {}, read_phase(body)
            if phase is Phase.RUNNING and status.get("podName") == pod.name:
                return None  # an earlier attempt succeeded
            if phase is not Phase.PENDING:
                raise Superseded
            execution.check_wanted()
            return build_bound_status(
                status,
                pod=pod.name,
                pod_uid=pod.seen.uid,
                node=pod.seen.node,
                start=start,
                ready_seconds=ready_seconds,
                uses=pod.use.count,
                digest=execution.facts.digest,
                code_findings=draft.findings,
                skills=sorted(draft.skills.sources) if draft.skills is not None else (),
                moment=moment,
                created=execution.facts.created,
            )

        await self._write(execution, decide, what="bind")

    async def write_approvals(self, execution: Execution, approvals: list[Object], *, waited_seconds: float) -> None:
        """Write the approvals of a running execution. Raises Superseded and what `_write` raises."""

        def decide(body: Object) -> Object | None:
            if read_phase(body) is not Phase.RUNNING:
                raise Superseded
            return build_approvals_status(body.get("status") or {}, approvals, waited_seconds=waited_seconds)

        await self._write(execution, decide, what="approvals")

    async def write_finished(self, execution: Execution, outcome: ExecutionOutcome) -> None:
        """Write the end, cut if the API server rejects it for its size. Raises Superseded and what `_write` raises."""
        moment, created = now(), execution.facts.created
        limit, rest_bytes = MAX_STATUS_BYTES, execution.facts.rest_bytes
        digest = None if execution.source.changed else execution.facts.digest

        def decide(body: Object) -> Object | None:
            phase = read_phase(body)
            if phase is None:
                raise Superseded
            if phase.finished:
                return None  # an earlier attempt succeeded
            return build_finished_status(
                body.get("status") or {},
                outcome,
                moment=moment,
                created=created,
                digest=digest,
                limit=limit,
                rest_bytes=rest_bytes,
            )

        try:
            await self._write(execution, decide, what="finish")
        except StatusTooLarge as error:
            log.warning("a status is too large and is cut: %s", error, extra=execution.log_fields)
            limit = SMALL_STATUS_BYTES
            await self._write(execution, decide, what="finish")

    async def write_changed(self, execution: Execution) -> bool:
        """Write that the spec is not the one that ran. Return False if the status says so already.

        Raises what `_write` raises.
        """

        def decide(body: Object) -> Object | None:
            status = body.get("status") or {}
            if has_condition(status, "SpecUnchanged"):
                return None
            fields = execution.source.list_changes(body.get("spec") or {})
            return build_changed_status(status, fields=fields, moment=now())

        return await self._write(execution, decide, what="changed", whole=True)

    def report(self, execution: Execution, *, reason: EventReason | Reason, message: str) -> None:
        """Create a Warning Event in the background, unless the namespace had too many. Nothing waits for it.

        `message` must have nothing that code wrote: whoever reads Events need not be allowed to read executions.
        """
        if not self.budget.take(execution.facts.namespace):
            self.api.metrics.events_dropped.labels(reason).inc()
            return
        coroutine = self.record_event(execution, reason, message)
        self.tasks.spawn(coroutine, name=f"Event of {execution.facts.name}")

    async def record_event(self, execution: Execution, reason: EventReason | Reason, message: str) -> None:
        """Create an Event of the execution. If that fails or takes long, it is logged."""
        event = build_event(
            "CodeExecution",
            key=(execution.facts.namespace, execution.facts.name),
            uid=execution.facts.uid,
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
            log.warning("no Event was created for an execution: %s", error, extra=execution.log_fields)

    async def _write(
        self, execution: Execution, decide: Callable[[Object], Object | None], *, what: str, whole: bool = False
    ) -> bool:
        """Write the status that `decide` returns for the newest object, with the bytes that the object then has.

        Return False if it returns None.

        With `whole`, `decide` gets the object as the API server has it, else as the execution keeps it.

        After a conflict or a lost response the object is read and `decide` is called again, since the write may have
        been made. An exception of `decide` ends the attempts. Raises ExecutionGone, StatusTooLarge, and ApiError if
        the API server rejects the status for another reason.
        """
        failures = 0
        execution.writing += 1
        try:
            read = await self._read(execution) if whole else None
            # The order keeps each fact once. A status is decided for the version that its write names, so that it never
            # goes over another writer's. What was written is observed before anything else is decided. After a failure
            # the object is read first: if the write was made and only its response was lost, `decide` sees that and
            # writes nothing. The pause comes last, so that a deleted execution ends at once.
            while True:
                body = execution.seen.body if read is None else read
                status = decide(body)
                if status is None:
                    return False
                status["storedBytes"] = execution.facts.rest_bytes + measure_stored_bytes(status)
                try:
                    with self.priority.writing():
                        namespace, name = execution.facts.namespace, execution.facts.name
                        version = str(body["metadata"]["resourceVersion"])
                        written = await self.api.replace_status(
                            "CodeExecution", namespace, name, version=version, status=status, what=what
                        )
                    execution.observe(written)
                except ApiError as error:
                    failures += 1
                    _raise_if_final(error)
                    if error.code != 409:
                        log.warning(
                            "a status write may have failed and is repeated: %s", error, extra=execution.log_fields
                        )
                    if failures == _ATTEMPTS_BEFORE_EVENT:
                        await self.record_event(
                            execution, EventReason.STATUS_WRITE_DELAYED, f"status writes fail: {error}"
                        )
                else:
                    return True
                newest = await self._read(execution)
                execution.observe(newest)
                read = newest if whole else None
                del newest
                await asyncio.sleep(delay_after(failures, first=_FIRST_DELAY, last=_LAST_DELAY))
        finally:
            execution.writing -= 1

    async def _read(self, execution: Execution) -> Object:
        failures = 0
        while True:
            try:
                body = await self.api.get("CodeExecution", execution.facts.namespace, execution.facts.name)
            except ApiError as error:
                failures += 1
                log.warning("an execution can't be read: %s", error, extra=execution.log_fields)
                await asyncio.sleep(delay_after(failures, first=_FIRST_DELAY, last=_LAST_DELAY))
                continue
            if body is None or body["metadata"]["uid"] != execution.facts.uid:
                raise ExecutionGone
            return body


@dataclass(kw_only=True, eq=False)
class WaitReport:
    """Writes why an execution waits to its status, if that differs enough from what is written."""

    execution: Execution
    writer: ExecutionStatusWriter
    written: QueueUpdate
    due: float
    """When the status is written next, by the monotonic clock."""

    @classmethod
    def begin(cls, execution: Execution, writer: ExecutionStatusWriter, *, waiting: int) -> Self:
        """Begin while so many executions wait in all."""
        due = monotonic() + first_update_after(waiting)
        return cls(execution=execution, writer=writer, written=QueueUpdate.from_status(execution.seen.status), due=due)

    async def update(self, reason: Reason, message: str, place: QueuePlace) -> None:
        """Write the reason and the queue position if it is time. Raises what ExecutionStatusWriter raises."""
        if (at := monotonic()) < self.due:
            return
        self.due = at + next_update_after(place.of)
        update = QueueUpdate(reason=reason, place=place)
        if update.differs_enough_from(self.written):
            await self.writer.write_pending(self.execution, reason=reason, message=message, place=place)
            self.written = update


async def wait_for_turn(
    execution: Execution,
    turn: Turn[Any],
    queue: SerialQueue[Any],
    *,
    writer: ExecutionStatusWriter,
    reason: Reason,
    message: str,
    timeout_seconds: float,
    timeout_message: str,
) -> None:
    """Return when a turn begins, and write reason and queue position to the status meanwhile.

    Raises EndedBeforeRun after so many seconds, Superseded, and what ExecutionStatusWriter raises.
    """
    if turn.is_granted:
        return
    execution.source.release()  # thousands may wait
    ends = monotonic() + timeout_seconds
    report = WaitReport.begin(execution, writer, waiting=1)
    while not turn.is_granted:
        await turn.pause(min(_CHECK_SECONDS, max(0.0, min(ends, report.due) - monotonic())))
        turn.wakeup.clear()
        execution.check_wanted()
        if turn.is_granted:
            return
        place = queue.place(turn)
        if monotonic() >= ends:
            raise EndedBeforeRun(build_failure(reason, f"{timeout_message} for {timeout_seconds:.0f} s; {place}"))
        await report.update(reason, message, place)


def _raise_if_final(error: ApiError) -> None:
    """Raise if another attempt can't succeed."""
    if error.code == 404:
        raise ExecutionGone from error
    if error.code == 413 or any(words in error.message for words in _TOO_LARGE):
        raise StatusTooLarge(error.message) from error
    # 0 is a lost response; after a server error the write may have been made
    if error.code not in (0, 409, 429) and error.code < 500:
        raise error
