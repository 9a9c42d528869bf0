"""The stream of a run: dispatch of the job to the supervisor, and its events up to the last."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from mcp_exec_api.reasons.execution import Reason
from mcp_exec_common.supervisor.client import SupervisorConnection
from mcp_exec_common.supervisor.protocol import EndEvent, Event, InterpreterLost, SandboxError, SandboxUsed
from mcp_exec_operator.executions.attempt import Attempt, Feature
from mcp_exec_operator.executions.outcome import EndedBeforeRun, build_cancellation, build_failure
from mcp_exec_operator.executions.output import OutputCollector

log = logging.getLogger(__name__)

_RECONNECT_DELAYS: Final = (0.05, 0.2, 0.5, 1.0, 2.0, 2.0)


class StreamLost(Exception):
    """The sandbox does not respond."""


@dataclass(kw_only=True, eq=False)
class RunStream:
    """Sends the job of an attempt once, follows the events of its run, and collects its output."""

    attempt: Attempt
    features: Sequence[Feature]
    connection: SupervisorConnection
    output: OutputCollector
    _accepted: bool = False
    """Whether the sandbox has accepted the job, so that it must not be dispatched again."""
    _is_idle: bool = False
    """Whether nothing can have run, because the sandbox said so just now."""

    async def check_dispatch(self) -> None:
        """Check what another operator may have left undone, or what has changed since the binding.

        A sandbox that is not idle has accepted what was bound: its events are followed and nothing is dispatched.
        Raises EndedBeforeRun if the code has not begun and must not.
        """
        attempt, record = self.attempt, self.attempt.record
        changed = record.status.get("specDigest") != record.digest
        lacks_grants = not attempt.pending_run and bool(attempt.spec.tools or attempt.spec.workspace)
        if not changed and not lacks_grants and not record.is_unwanted:
            return
        try:
            state, last = await self.connection.get_execution()
            self._is_idle = state == "idle" and last != record.uid
        except SandboxError:
            self._is_idle = False
        if not self._is_idle:
            self._accepted = self.output.replayed = True
            return
        if record.is_unwanted:
            raise EndedBeforeRun(build_cancellation(record.cancelled))
        if changed:
            message = "the spec was changed between its binding and its run"
            raise EndedBeforeRun(build_failure(Reason.REJECTED, message))

    async def follow(self) -> EndEvent:
        """Return the last event, after as many connections as needed. Raises StreamLost and EndedBeforeRun."""
        failures = 0
        while True:
            before = self.output.seq
            try:
                async with aclosing(await self._open()) as events:
                    async for event in events:
                        if not self._accepted:
                            self._accepted = True
                            self.attempt.held.discard()
                        self.output.add(event)
                        if self.output.end is not None:
                            return self.output.end
                        for feature in self.features:
                            feature.on_event(self.attempt, event)
            except (InterpreterLost, SandboxUsed) as refusal:
                self._check_refusal(refusal)
                self._accepted = self.output.replayed = True
            except SandboxError as error:
                failures = failures + 1 if self.output.seq == before else 1
                if self.attempt.pod.lost or failures > len(_RECONNECT_DELAYS):
                    raise StreamLost(str(error)) from error
                log.info("the stream of a run broke: %s", error, extra=self.attempt.record.log_fields)
                await asyncio.sleep(_RECONNECT_DELAYS[failures - 1])

    def _check_refusal(self, refusal: InterpreterLost | SandboxUsed) -> None:
        """Return if the sandbox refuses the job because it has accepted it already.

        Else nothing ran, or it is unknown what ran. Raises EndedBeforeRun in a session, which is lost, and StreamLost.
        """
        record = self.attempt.record
        if isinstance(refusal, SandboxUsed) and refusal.id == record.uid:
            return
        if record.session is None or self._accepted:
            raise StreamLost(str(refusal)) from refusal
        message = f"the session {record.session.name} was lost: its interpreter ended after the last execution"
        raise EndedBeforeRun(build_failure(Reason.SESSION_LOST, message)) from refusal

    async def _open(self) -> AsyncGenerator[Event, None]:
        attempt, record = self.attempt, self.attempt.record
        seconds = attempt.longest_seconds
        if self._accepted or self.output.seq:
            return self.connection.follow_events(record.uid, from_seq=self.output.seq + 1, timeout_seconds=seconds)
        if (pending := attempt.pending_run) is not None:
            attempt.pending_run = None
            return pending.run()
        # a sandbox accepts no execution twice: to send the same one again can't run anything twice
        try:
            spec = await attempt.held.load()
            if record.changed:
                raise StreamLost("the spec was changed meanwhile, so that the job can't be sent again")
            attempt.needs_job = True
            for feature in self.features:
                await feature.prepare(attempt)
        except EndedBeforeRun as ended:
            if self._is_idle:
                raise
            raise StreamLost(f"the job can't be sent again: {ended}") from ended
        return self.connection.run(attempt.build_job(spec), timeout_seconds=seconds)
