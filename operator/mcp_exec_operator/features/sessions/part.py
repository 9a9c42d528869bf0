"""Executions in sessions: one runs at a time, the others wait in a bounded queue, and the session keeps the pod."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from mcp_exec_api.constants import DEFAULT_MAX_TIMEOUT_SECONDS, MAX_APPROVAL_SECONDS
from mcp_exec_api.reasons.execution import Reason
from mcp_exec_common.kube.reflector import ObjectKey
from mcp_exec_common.supervisor.protocol import Event
from mcp_exec_operator.core.executions.execution import Execution
from mcp_exec_operator.core.executions.outcome import EndedBeforeRun, build_failure
from mcp_exec_operator.core.executions.part import JobDraft, Part
from mcp_exec_operator.core.executions.writer import ExecutionStatusWriter, wait_for_turn
from mcp_exec_operator.core.pods.pod import Pod
from mcp_exec_operator.core.pools.pool import Pool
from mcp_exec_operator.features.sessions.claims import SessionClaims, SessionRequest, SessionTurn, SessionUnusable
from mcp_exec_operator.features.sessions.record import SessionRecord
from mcp_exec_operator.features.sessions.status import SessionGone

_GRACE_SECONDS: Final = 60.0
"""How long an execution waits for its turn, beyond the longest run of the pool and its waits for approvals."""


@dataclass(kw_only=True, eq=False)
class SessionPart(Part):
    """The turn of one execution at its session, which keeps its pod."""

    execution: Execution
    request: SessionRequest
    feature: "Sessions"
    name: str
    """What keeps the pod, for people."""
    _turn: SessionTurn | None = None
    """From joining the queue to its end."""
    _session: SessionRecord | None = None
    """The session, once it is claimed by this operator."""

    @property
    def kept_pod(self) -> Pod | None:
        """The pod of the session, if it has one."""
        return self._session.pod if self._session is not None else None

    def adopt(self) -> None:
        """Hold the turn of an execution that is bound."""
        self.execution.holder = self
        self.feature.running.add(self)
        if self._turn is None:
            self._turn = self.feature.claims.hold(self.request.key)

    async def admit(self) -> None:
        """Wait for the turn, and claim the session."""
        request, claims = self.request, self.feature.claims
        if self._turn is None:
            with _ending_before_run():
                self._turn = claims.join(request, wakeup=self.execution.wakeup)
        spec = claims.sessions.pools.get(self.execution.facts.pool).shape.spec
        longest = DEFAULT_MAX_TIMEOUT_SECONDS if spec is None else spec.max_timeout_seconds
        await wait_for_turn(
            self.execution,
            self._turn,
            claims.sessions.turns,
            writer=self.feature.writer,
            reason=Reason.SESSION_BUSY,
            message=f"the session {request.name} runs another execution",
            timeout_seconds=longest + MAX_APPROVAL_SECONDS + _GRACE_SECONDS,
            timeout_message=f"the session {request.name} was busy",
        )
        with _ending_before_run():
            self._session = await claims.claim(request)
        self.execution.holder = self

    async def join(self, job: JobDraft) -> None:
        """Keep the pod for the session if it has none, or for a new one if that was deleted meanwhile."""
        binding, session, claims = self.execution.binding, self._session, self.feature.claims
        if binding is None or session is None:
            return
        if session.pod is None:
            try:
                try:
                    await claims.keep(session, binding.pool, binding.pod)
                except SessionGone:
                    with _ending_before_run():
                        self._session = session = await claims.claim(self.request)
                    await claims.keep(session, binding.pool, binding.pod)
            except (SessionGone, EndedBeforeRun):
                claims.sessions.pools.release(binding.pool, binding.pod)
                raise
        # only from now on, what becomes of the session ends the execution
        self.feature.running.add(self)

    def resume(self) -> None:
        """Go on in the pod that the status names, whatever the session has now."""
        self._session = None

    def leave(self, *, decided: bool) -> bool:
        """End the turn of an execution. Return whether its pod belongs to the session."""
        self.feature.running.discard(self)
        if self._turn is None:
            return False
        turn, self._turn = self._turn, None
        if not decided:
            self.feature.claims.leave_undecided(turn)
            return False
        binding, outcome = self.execution.binding, self.execution.outcome
        return self.feature.claims.leave(
            turn,
            uid=self.execution.facts.uid,
            pod=binding.pod if binding is not None and binding.is_recorded else None,
            reason=outcome.reason if outcome is not None else None,
        )


@dataclass(frozen=True, kw_only=True)
class Sessions:
    """Lets executions into their sessions and out of them."""

    claims: SessionClaims
    writer: ExecutionStatusWriter
    events: tuple[type[Event], ...] = ()
    running: set[SessionPart] = field(default_factory=set)
    """Parts of the executions that run in the pods of sessions."""

    def __post_init__(self) -> None:
        self.claims.sessions.interrupted.connect(self.cancel)

    def take_part(self, execution: Execution, *, pool: Pool, event: Event | None = None) -> Part | None:
        """Take part if the execution names a session."""
        name, facts = str((execution.source.spec or {}).get("session") or ""), execution.facts
        if not name:
            return None
        owner = facts.owner
        key = owner.namespace, owner.qualify(name)
        request = SessionRequest(uid=facts.uid, key=key, name=name, owner=owner, pool=facts.pool[1])
        return SessionPart(execution=execution, request=request, feature=self, name=f"the session {name}")

    def cancel(self, key: ObjectKey, why: str) -> None:
        """Cancel the run in a session that was reset or deleted. Those that wait start in a new one."""
        for part in list(self.running):
            if part.request.key == key:
                part.execution.cancel(why)


@contextmanager
def _ending_before_run() -> Iterator[None]:
    """End the execution with the reason why it can't run in its session."""
    try:
        yield
    except SessionUnusable as error:
        raise EndedBeforeRun(build_failure(error.reason, str(error))) from error
