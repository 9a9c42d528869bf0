"""One writer at a time for each workspace: executions that write to it wait for their turn before they have a pod."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from time import monotonic
from typing import Final

from mcp_exec_api.code_execution import Phase, QueuePlace
from mcp_exec_api.execution_state import read_phase
from mcp_exec_api.meta import now
from mcp_exec_api.reasons.execution import Reason
from mcp_exec_common.kube.objects import Object
from mcp_exec_operator.executions.admission import check_still_wanted
from mcp_exec_operator.executions.outcome import EndedBeforeRun, Superseded, build_failure
from mcp_exec_operator.executions.record import ExecutionRecord, WorkspaceKey
from mcp_exec_operator.executions.status import build_pending_status
from mcp_exec_operator.executions.status_writer import ExecutionStatusWriter
from mcp_exec_operator.queueing.turns import SerialQueue, Turn, first_update_after, next_update_after
from mcp_exec_operator.queueing.wait_queue import QueueFull

MAX_WAITING: Final = 100
"""Executions that wait for one workspace."""
WAIT_SECONDS: Final = 900.0
"""How long an execution waits at most."""
_CHECK_SECONDS: Final = 1.0


@dataclass(kw_only=True, eq=False)
class WorkspaceTurns:
    """Turns at workspaces. An execution has its turn until its end is written and its grant is void."""

    writer: ExecutionStatusWriter
    wait_seconds: float = WAIT_SECONDS
    clock: Callable[[], datetime] = now
    _queue: SerialQueue[WorkspaceKey] = field(default_factory=SerialQueue)
    _turns: dict[str, Turn[WorkspaceKey]] = field(default_factory=dict)
    """By uid of the execution."""

    def hold(self, record: ExecutionRecord) -> None:
        """Take the turn of an execution that another operator has bound. It never waits."""
        if record.workspace is not None and record.uid not in self._turns:
            self._turns[record.uid] = self._queue.hold(record.workspace)

    def leave(self, record: ExecutionRecord) -> None:
        """End the turn of an execution, or its wait."""
        if (turn := self._turns.pop(record.uid, None)) is not None:
            self._queue.leave(turn)

    async def wait(self, record: ExecutionRecord, *, on_wait: Callable[[], None]) -> None:
        """Return when the execution has its turn. The status has the reason and its position meanwhile.

        `on_wait` is called before a wait, to release memory.

        Raises EndedBeforeRun if too many wait or it waits too long, and what ExecutionStatusWriter raises.
        """
        if record.workspace is None or record.uid in self._turns:
            return
        try:
            turn = self._queue.join(record.workspace, limit=MAX_WAITING, wakeup=record.wakeup)
        except QueueFull as error:
            message = f"{error}: too many executions write to workspace {record.workspace.name}"
            raise EndedBeforeRun(build_failure(Reason.WORKSPACE_BUSY, message)) from error
        self._turns[record.uid] = turn
        if not turn.is_granted:
            on_wait()
            await self._wait(record, turn)

    async def _wait(self, record: ExecutionRecord, turn: Turn[WorkspaceKey]) -> None:
        began = monotonic()
        written: QueuePlace | None = None
        write_at = began + first_update_after(self._queue.count_waiting(turn.key))
        while not turn.is_granted:
            next_at = min(began + self.wait_seconds, write_at)
            await turn.pause(min(_CHECK_SECONDS, max(0.0, next_at - monotonic())))
            record.wakeup.clear()
            check_still_wanted(record)
            at = monotonic()
            if turn.is_granted:
                return
            if at >= began + self.wait_seconds:
                message = (
                    f"another execution has written to workspace {turn.key.name} for {self.wait_seconds:.0f} s, "
                    f"{self._queue.place(turn)}"
                )
                raise EndedBeforeRun(build_failure(Reason.WORKSPACE_BUSY, message))
            if at >= write_at:
                write_at = at + next_update_after(self._queue.count_waiting(turn.key))
                place = self._queue.place(turn)
                if place != written:
                    await self._write(record, turn.key, place)
                    written = place

    async def _write(self, record: ExecutionRecord, key: WorkspaceKey, place: QueuePlace) -> None:
        def decide(body: Object) -> Object | None:
            if read_phase(body) is not Phase.PENDING:
                raise Superseded
            return build_pending_status(
                body.get("status") or {},
                reason=Reason.WORKSPACE_BUSY,
                message=f"another execution writes to workspace {key.name}",
                place=place,
                moment=self.clock(),
                created=record.created_at(),
            )

        await self.writer.write(record, decide, what="pending")
