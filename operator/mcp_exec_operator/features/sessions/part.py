"""Executions in sessions: one runs at a time, the others wait in a bounded queue, and the session keeps the pod."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from mcp_exec_api.constants import DEFAULT_MAX_TIMEOUT_SECONDS, MAX_APPROVAL_SECONDS
from mcp_exec_api.reasons.execution import Reason
from mcp_exec_operator.core.executions.attempt import Attempt, Feature
from mcp_exec_operator.core.executions.outcome import EndedBeforeRun, build_failure
from mcp_exec_operator.core.executions.record import ExecutionRecord
from mcp_exec_operator.core.executions.waiting import wait_for_turn
from mcp_exec_operator.core.executions.writer import ExecutionStatusWriter
from mcp_exec_operator.features.sessions.claims import SessionClaims, SessionUnusable
from mcp_exec_operator.features.sessions.status import SessionGone

_GRACE_SECONDS: Final = 60.0
"""How long an execution waits for its turn, beyond the longest run of the pool and its waits for approvals."""


@dataclass(frozen=True, kw_only=True)
class Sessions(Feature):
    """Lets executions into their sessions and out of them."""

    claims: SessionClaims
    writer: ExecutionStatusWriter

    def adopt(self, record: ExecutionRecord) -> None:
        """Hold the turn of an execution that an earlier operator bound."""
        if record.session is not None and record.session_turn is None:
            record.session_turn = self.claims.hold(record.session.key)

    async def admit(self, attempt: Attempt) -> None:
        """Wait for the turn, and claim the session."""
        record, request = attempt.record, attempt.record.session
        if request is None:
            return
        if record.session_turn is None:
            with _ending_before_run():
                record.session_turn = self.claims.join(request, wakeup=record.wakeup)
        spec = self.claims.sessions.pools.get(record.pool).spec
        longest = DEFAULT_MAX_TIMEOUT_SECONDS if spec is None else spec.max_timeout_seconds
        await wait_for_turn(
            attempt,
            record.session_turn,
            self.claims.sessions.turns,
            writer=self.writer,
            reason=Reason.SESSION_BUSY,
            message=f"the session {request.name} runs another execution",
            timeout_seconds=longest + MAX_APPROVAL_SECONDS + _GRACE_SECONDS,
            timeout_message=f"the session {request.name} was busy",
        )
        with _ending_before_run():
            attempt.session = await self.claims.claim(request)

    async def prepare(self, attempt: Attempt) -> None:
        """Keep the pod for the session if it has none, or for a new one if that was deleted meanwhile."""
        record, session = attempt.record, attempt.session
        if session is None or session.pod is not None or record.session is None:
            return
        # until the session has the pod: that it is deleted does not end the execution
        record.pod_name = ""
        try:
            try:
                await self.claims.keep(session, attempt.pool, attempt.pod)
            except SessionGone:
                with _ending_before_run():
                    attempt.session = await self.claims.claim(record.session)
                await self.claims.keep(attempt.session, attempt.pool, attempt.pod)
        except (SessionGone, EndedBeforeRun):
            self.claims.sessions.pools.release(attempt.pool, attempt.pod)
            raise
        record.pod_name = attempt.pod.name

    def leave(self, record: ExecutionRecord, *, decided: bool) -> bool:
        """End the turn of an execution. Return whether its pod belongs to the session."""
        if record.session_turn is None:
            return False
        turn, record.session_turn = record.session_turn, None
        if not decided:
            self.claims.leave_undecided(turn)
            return False
        bound, outcome = record.bound_pod, record.outcome
        return self.claims.leave(
            turn,
            uid=record.uid,
            pod=bound.pod if bound is not None else None,
            reason=outcome.reason if outcome is not None else None,
        )


@contextmanager
def _ending_before_run() -> Iterator[None]:
    """End the execution with the reason why it can't run in its session."""
    try:
        yield
    except SessionUnusable as error:
        raise EndedBeforeRun(build_failure(error.reason, str(error))) from error
