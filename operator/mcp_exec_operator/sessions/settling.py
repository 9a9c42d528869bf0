"""Finds out what a sandbox still has of its session, after a run that may have cost its interpreter."""

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from mcp_exec_api.reasons.execution import SessionReason
from mcp_exec_common.kube.reflector import ObjectKey
from mcp_exec_common.process.tasks import TaskRegistry
from mcp_exec_common.supervisor.client import SupervisorClient
from mcp_exec_common.supervisor.protocol import SandboxError
from mcp_exec_common.util.backoff import delays
from mcp_exec_operator.queueing.turns import Turn
from mcp_exec_operator.sessions.record import SessionRecord
from mcp_exec_operator.sessions.registry import SessionRegistry

log = logging.getLogger(__name__)

_SECONDS: Final = 15.0
"""How long a sandbox may take to answer, and to end a run."""
_FIRST_DELAY: Final = 0.02
_LAST_DELAY: Final = 1.0


@dataclass(frozen=True, kw_only=True)
class SessionSettler:
    """Asks sandboxes. Nothing runs in a session meanwhile."""

    sessions: SessionRegistry
    supervisors: SupervisorClient
    tasks: TaskRegistry
    seconds: float = _SECONDS

    def start(self, record: SessionRecord) -> None:
        """Settle an idle session in the background, with its turn."""
        turn = self.sessions.turns.hold(record.key)
        self.tasks.spawn(self.finish(record, turn), name=f"settle session {record.name}")

    async def finish(self, record: SessionRecord, turn: Turn[ObjectKey]) -> None:
        """Settle a session and end the turn of the execution that had it."""
        try:
            await self.settle(record)
        finally:
            self.sessions.turns.leave(turn)
            self.sessions.watch_pod(record)
            self.sessions.touch(record.key)

    async def settle(self, record: SessionRecord) -> None:
        """End what may still run in the session's sandbox. If its interpreter is gone, the session is lost."""
        pod = record.pod
        if pod is None:
            return
        lost: tuple[SessionReason, str] | None = SessionReason.POD_LOST, "its sandbox did not answer"
        with suppress(TimeoutError):
            async with asyncio.timeout(self.seconds):
                lost = await self._ask(record)
        if record.pod is not pod or pod.lost:
            return  # the controller finds the cause
        if lost is not None:
            log.warning("a session was lost: %s", lost[1], extra=record.log_fields)
            self.sessions.lose(record, *lost)
        record.unsettled = False

    async def _ask(self, record: SessionRecord) -> tuple[SessionReason, str] | None:
        """Return why the session is lost, or None once its sandbox is idle and has its interpreter."""
        for delay in delays(first=_FIRST_DELAY, last=_LAST_DELAY):
            pod = record.pod
            if pod is None or pod.lost:
                return None
            if pod.address:
                connection = self.supervisors.get_connection(namespace=record.key[0], pod=pod.name, address=pod.address)
                try:
                    state, uid = await connection.get_execution()
                    if uid is None and state == "idle":
                        return None  # nothing ran in it yet
                    if state == "running" and uid is not None:
                        await connection.cancel(uid)
                    elif state in ("idle", "finished"):
                        found = await connection.get_session()
                        if state == "idle" and found.alive:
                            record.memory_bytes = found.memory_bytes
                            return None
                        return SessionReason.INTERPRETER_LOST, SessionReason.INTERPRETER_LOST.meaning
                except SandboxError as error:
                    log.info("the sandbox of a session did not answer: %s", error, extra=record.log_fields)
            await asyncio.sleep(delay)
        return None
