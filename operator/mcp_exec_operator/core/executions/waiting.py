"""Waits of executions: reports of them in the status, and the wait for a turn at a session or a workspace."""

from dataclasses import dataclass
from time import monotonic
from typing import Any, Final, Self

from mcp_exec_api.code_execution import QueuePlace
from mcp_exec_api.reasons.execution import Reason
from mcp_exec_operator.core.executions.attempt import Attempt
from mcp_exec_operator.core.executions.outcome import EndedBeforeRun, build_failure
from mcp_exec_operator.core.executions.record import ExecutionRecord
from mcp_exec_operator.core.executions.writer import ExecutionStatusWriter
from mcp_exec_operator.core.queueing.turns import QueueUpdate, SerialQueue, Turn, first_update_after, next_update_after

_CHECK_SECONDS: Final = 5.0
"""How often an execution that waits for a turn checks whether it still waits."""


@dataclass(kw_only=True, eq=False)
class WaitReport:
    """Writes why an execution waits to its status, if that differs enough from what is written."""

    record: ExecutionRecord
    writer: ExecutionStatusWriter
    written: QueueUpdate
    due: float
    """When the status is written next, by the monotonic clock."""

    @classmethod
    def begin(cls, record: ExecutionRecord, writer: ExecutionStatusWriter, *, waiting: int) -> Self:
        """Begin while so many executions wait in all."""
        due = monotonic() + first_update_after(waiting)
        return cls(record=record, writer=writer, written=QueueUpdate.from_status(record.status), due=due)

    async def update(self, reason: Reason, message: str, place: QueuePlace) -> None:
        """Write the reason and the queue position if it is time. Raises what ExecutionStatusWriter raises."""
        if (at := monotonic()) < self.due:
            return
        self.due = at + next_update_after(place.of)
        update = QueueUpdate(reason=reason, place=place)
        if update.differs_enough_from(self.written):
            await self.writer.write_pending(self.record, reason=reason, message=message, place=place)
            self.written = update


async def wait_for_turn(
    attempt: Attempt,
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
    attempt.held.release()  # thousands may wait
    ends = monotonic() + timeout_seconds
    report = WaitReport.begin(attempt.record, writer, waiting=1)
    while not turn.is_granted:
        await turn.pause(min(_CHECK_SECONDS, max(0.0, min(ends, report.due) - monotonic())))
        turn.wakeup.clear()
        attempt.record.check_wanted()
        if turn.is_granted:
            return
        place = queue.place(turn)
        if monotonic() >= ends:
            raise EndedBeforeRun(build_failure(reason, f"{timeout_message} for {timeout_seconds:.0f} s; {place}"))
        await report.update(reason, message, place)
