"""Turns of executions in their sessions: one runs at a time, and the others wait in a bounded queue."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from time import monotonic
from typing import Final

from mcp_exec_api.code_execution import Phase
from mcp_exec_api.constants import MAX_APPROVAL_SECONDS, MAX_TIMEOUT_SECONDS
from mcp_exec_api.execution_state import read_phase
from mcp_exec_api.meta import now
from mcp_exec_api.reasons.execution import Reason
from mcp_exec_common.kube.objects import Object
from mcp_exec_operator.executions.admission import check_still_wanted
from mcp_exec_operator.executions.outcome import EndedBeforeRun, ExecutionOutcome, Superseded, build_failure
from mcp_exec_operator.executions.record import ExecutionRecord
from mcp_exec_operator.executions.status import build_pending_status
from mcp_exec_operator.executions.status_writer import ExecutionStatusWriter
from mcp_exec_operator.queueing.turns import QueueUpdate, first_update_after, next_update_after
from mcp_exec_operator.queueing.wait_queue import QueueFull
from mcp_exec_operator.sessions.claims import SessionClaims, SessionRequest, SessionTurn, SessionUnusable
from mcp_exec_operator.sessions.record import SessionRecord

_LONGEST_WAIT_SECONDS: Final = MAX_TIMEOUT_SECONDS + MAX_APPROVAL_SECONDS + 60.0
"""How long an execution waits for its turn: as long as the longest run takes."""
_CHECK_SECONDS: Final = 5.0
_CLEAN: Final = (Reason.NONE, Reason.USER_ERROR, Reason.EXIT_CODE)
"""Reasons of ends after which the interpreter lives for certain."""


@dataclass(frozen=True, kw_only=True)
class SessionTurns:
    """Lets executions into their sessions and out of them."""

    claims: SessionClaims
    writer: ExecutionStatusWriter
    clock: Callable[[], datetime] = now

    async def enter(self, record: ExecutionRecord, *, on_wait: Callable[[], None]) -> SessionRecord:
        """Return the execution's session once it has its turn. `on_wait` is called before it waits.

        Raises EndedBeforeRun if it can't run there, and what the API server's client raises.
        """
        assert record.session is not None  # noqa: S101 - the caller has checked it
        try:
            turn = record.turn = self.claims.join(record.session, wakeup=record.wakeup)
            if not turn.is_granted:
                on_wait()
                await self._wait(record, turn, record.session)
            return await self.claim(record)
        except QueueFull as error:
            message = f"the session {record.session.name} is busy: {error}"
            raise EndedBeforeRun(build_failure(Reason.SESSION_BUSY, message)) from error
        except SessionUnusable as error:
            raise EndedBeforeRun(build_failure(error.reason, str(error))) from error

    async def claim(self, record: ExecutionRecord) -> SessionRecord:
        """Return the session of an execution that has its turn. Raises what `enter` raises."""
        assert record.session is not None  # noqa: S101 - the caller has checked it
        try:
            return await self.claims.claim(record.session)
        except SessionUnusable as error:
            raise EndedBeforeRun(build_failure(error.reason, str(error))) from error

    def adopt(self, record: ExecutionRecord) -> None:
        """Take the turn of an execution that an earlier operator bound."""
        if record.session is not None:
            record.turn = self.claims.hold(record.session.key)

    def leave(self, record: ExecutionRecord, outcome: ExecutionOutcome | None = None) -> bool:
        """End the turn of an execution. Return whether its pod belongs to the session.

        `outcome` is None if the run was interrupted, or did not begin.
        """
        if record.turn is None:
            return False
        turn, record.turn = record.turn, None
        binding = record.binding
        return self.claims.release(
            turn,
            uid=record.uid,
            pod=binding.pod if binding is not None else None,
            ran=binding is not None,
            clean=binding is None or (outcome is not None and outcome.reason in _CLEAN),
            reported_lost=outcome is not None and outcome.reason is Reason.SESSION_LOST,
        )

    def abandon(self, record: ExecutionRecord) -> None:
        """Leave the turn of an execution that another operator has."""
        if record.turn is not None:
            turn, record.turn = record.turn, None
            self.claims.abandon(turn)

    async def _wait(self, record: ExecutionRecord, turn: SessionTurn, session: SessionRequest) -> None:
        """Wait for the turn, and write the queue position to the status meanwhile."""
        began = monotonic()
        written, write_at = QueueUpdate.from_status(record.status), began + first_update_after(1)
        while not turn.is_granted:
            await turn.pause(min(_CHECK_SECONDS, max(0.0, write_at - monotonic())))
            record.wakeup.clear()
            check_still_wanted(record)
            if turn.is_granted:
                return
            at = monotonic()
            if at - began >= _LONGEST_WAIT_SECONDS:
                message = f"the session {session.name} was busy for {_LONGEST_WAIT_SECONDS:.0f} s"
                raise EndedBeforeRun(build_failure(Reason.SESSION_BUSY, message))
            if at >= write_at:
                place = self.claims.sessions.turns.place(turn)
                write_at = at + next_update_after(place.of)
                written = await self._write_pending(
                    record, session, QueueUpdate(reason=Reason.SESSION_BUSY, place=place), written
                )

    async def _write_pending(
        self, record: ExecutionRecord, session: SessionRequest, update: QueueUpdate, written: QueueUpdate
    ) -> QueueUpdate:
        """Write the position, if it differs enough from what is written. Return what is written now."""
        place = update.place
        if place is None or not update.differs_enough_from(written):
            return written

        def decide(body: Object) -> Object | None:
            if read_phase(body) is not Phase.PENDING:
                raise Superseded
            return build_pending_status(
                body.get("status") or {},
                reason=Reason.SESSION_BUSY,
                message=f"the session {session.name} runs another execution",
                place=place,
                moment=self.clock(),
                created=record.created_at(),
            )

        await self.writer.write(record, decide, what="pending")
        return update
