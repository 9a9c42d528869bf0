"""Features of executions: their hooks, and what they share of one execution: an attempt, its job, its time limit."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, fields
from datetime import datetime
from math import inf
from time import monotonic
from typing import Any, Final

from mcp_exec_api.code_execution import CodeExecutionSpec, Phase, read_phase
from mcp_exec_api.meta import now
from mcp_exec_api.reasons.execution import Reason
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.supervisor.client import PendingRun, SupervisorConnection
from mcp_exec_common.supervisor.protocol import (
    Event,
    Job,
    JobFiles,
    JobSkills,
    JobTools,
    LibraryHints,
    SandboxError,
)
from mcp_exec_operator.executions.outcome import (
    EndedBeforeRun,
    ExecutionOutcome,
    Superseded,
    build_failure,
    with_tokens,
)
from mcp_exec_operator.executions.record import ExecutionRecord
from mcp_exec_operator.executions.specs import SpecInUse, check_still_wanted
from mcp_exec_operator.executions.status import ExecutionStatusWriter, build_pending_status
from mcp_exec_operator.pods.pod import Pod
from mcp_exec_operator.pools.pool import Pool
from mcp_exec_operator.queueing.turns import QueueUpdate, SerialQueue, Turn, first_update_after, next_update_after
from mcp_exec_operator.sessions.record import SessionRecord

log = logging.getLogger(__name__)

_GRACE_SECONDS: Final = 15.0
"""How long after its timeout a run that has not ended is ended by the operator."""
_WORKSPACE_SECONDS: Final = 120.0
"""How long a sandbox may take to put a workspace in place before the run, and to save it afterwards."""
_NO_OPTIONS: Final = ("id", "code", "tools", "files", "owner", "session", "skills", "libraries")
_OPTIONS: Final = tuple(field.name for field in fields(Job) if field.name not in _NO_OPTIONS)
"""Fields of a job that a field of the spec or of its limits fills by the same name."""
_CHECK_SECONDS: Final = 5.0
"""How often an execution that waits for a turn checks whether it still waits."""


@dataclass(kw_only=True, eq=False)
class RunDeadline:
    """When a run ends at the latest. Waits for approvals extend it; a cancellation or a loss shortens it."""

    uid: str
    """Uid of the execution."""
    seconds: float
    """The limit without waits."""
    over: bool = False
    """Whether the run has ended."""
    _connection: SupervisorConnection | None = None
    _timeout: asyncio.Timeout | None = None
    _base: float = 0.0
    """The limit without waits, by the loop's clock."""
    _extension_seconds: float = 0.0
    """How long calls wait for approvals, as the broker confirmed it."""
    _cut: float = inf
    """When a run ends at the latest that was cancelled or lost, by the loop's clock."""

    @asynccontextmanager
    async def running(self, connection: SupervisorConnection) -> AsyncIterator[None]:
        """End the context with TimeoutError when the time is over. `connection` is that to the run's sandbox."""
        self._connection = connection
        async with asyncio.timeout(self.seconds) as self._timeout:
            self._base = self._timeout.when() or 0.0
            self._apply()
            try:
                yield
            finally:
                # before the context ends, whose time cannot be changed afterwards
                self.over = True

    async def extend(self, seconds: float) -> bool:
        """Let the run take so much longer for its waits, in all. Return whether the sandbox has it, too."""
        self._extension_seconds = seconds
        self._apply()
        if self._connection is None:
            return False
        try:
            await self._connection.extend(self.uid, seconds)
        except SandboxError as error:
            log.info("the clock of a run was not set: %s", error, extra={"uid": self.uid})
            return False
        return True

    def cut(self, seconds: float) -> None:
        """Let the run end at most so many seconds from now."""
        self._cut = min(self._cut, asyncio.get_running_loop().time() + seconds)
        self._apply()

    def _apply(self) -> None:
        if self._timeout is not None and not self.over and not self._timeout.expired():
            self._timeout.reschedule(min(self._base + self._extension_seconds, self._cut))


@dataclass(kw_only=True, eq=False)
class Attempt:
    """One attempt of this operator to execute. Features read it and leave in it what the run needs of them."""

    record: ExecutionRecord
    held: SpecInUse
    """The whole spec, while it is in memory."""
    spec: CodeExecutionSpec
    """The spec that runs, without code and context."""
    pool: Pool = field(init=False)
    """The pool of the pod, from its claim on."""
    pod: Pod = field(init=False)
    """The pod, from its claim on."""
    needs_job: bool = True
    """Whether the job is still to be built: not if another operator sent it, as far as is known."""
    session: SessionRecord | None = None
    """The session that it runs in, once it has its turn."""
    findings: list[Object] = field(default_factory=list)
    """Findings in the code, as the status has them."""
    owner: str | None = None
    """Digest of the only owner that the sandbox serves; None if it serves one execution."""
    tools: JobTools | None = None
    """Tools of the job; None if it has none, or if another operator bound it."""
    files: JobFiles | None = None
    """Files of the job; None if nothing is kept, or if another operator bound it."""
    skills: JobSkills | None = None
    """Skills of the job, until the job is built."""
    pending_run: PendingRun | None = None
    """The job on its way to the pod; None once it is dispatched."""
    bound: float | None = None
    """When the binding was recorded, by the monotonic clock; None if another operator recorded it."""
    bind_milliseconds: float | None = None
    deadline: RunDeadline = field(init=False)
    ended: bool = False
    """Whether the sandbox has sent the end of the run."""
    outcome: ExecutionOutcome | None = None
    """How the run ended; None if it did not, because the execution was deleted or this operator stops."""

    def __post_init__(self) -> None:
        self.deadline = RunDeadline(uid=self.record.uid, seconds=run_deadline_seconds(self.spec))

    def find_missing_libraries(self) -> LibraryHints:
        """Return the libraries of other pools that the pod lacks."""
        return self.pool.libraries.find_missing(self.pod.template)

    def build_job(self, spec: CodeExecutionSpec) -> Job:
        """Return the job. An option of spec or limits reaches it if Job has a field of that name."""
        options: dict[str, Any] = {**vars(spec.limits), **vars(spec)}
        skills, self.skills = self.skills, None
        return Job(
            id=self.record.uid,
            code=spec.source,
            tools=self.tools,
            files=self.files,
            owner=self.owner,
            session=spec.session is not None,
            skills=skills,
            libraries=self.find_missing_libraries(),
            **{name: options[name] for name in _OPTIONS},
        )

    def discard_job(self) -> None:
        """Discard the job if it is not dispatched: it never runs."""
        if self.pending_run is not None:
            self.pending_run.withdraw()
            self.pending_run = None


class Feature:
    """What one feature adds to executions. The lifecycle calls its hooks in the order of all features.

    A hook that raises EndedBeforeRun ends the execution.
    """

    def adopt(self, record: ExecutionRecord) -> None:
        """Hold at once what an execution has that an earlier operator bound, so that no other gets it."""

    async def admit(self, attempt: Attempt) -> None:
        """Check the execution before it takes a pod, and wait for what it needs besides."""

    async def prepare(self, attempt: Attempt) -> None:
        """Prepare the run: the pod is known. Add to the job what it lacks, if `attempt.needs_job`."""

    def on_event(self, attempt: Attempt, event: Event) -> None:
        """React to an event of the run. Code may forge events."""

    async def finish(self, attempt: Attempt) -> None:
        """End what the run has begun, and add to the outcome if there is one, before it is written."""

    def release(self, record: ExecutionRecord, *, decided: bool) -> bool:
        """Release what the execution has. Return whether its pod stays in use.

        `decided` says whether this operator has written the end, or the execution was deleted; else another operator
        goes on with it.
        """
        return False


class Tokens(Feature):
    """Estimates the tokens that an execution cost and saved."""

    async def finish(self, attempt: Attempt) -> None:
        """Add the tokens to the outcome."""
        if attempt.outcome is not None:
            attempt.outcome = with_tokens(attempt.outcome, code_tokens=attempt.record.code_tokens)


async def wait_for_turn(
    record: ExecutionRecord,
    turn: Turn[Any],
    queue: SerialQueue[Any],
    *,
    writer: ExecutionStatusWriter,
    reason: Reason,
    message: str,
    timeout_seconds: float,
    timeout_message: str,
    clock: Callable[[], datetime] = now,
) -> None:
    """Return when a turn begins, and write reason and queue position to the status meanwhile.

    Raises EndedBeforeRun after so many seconds, Superseded, and what ExecutionStatusWriter raises.
    """
    began = monotonic()
    written, write_at = QueueUpdate.from_status(record.status), began + first_update_after(1)

    def decide(body: Object) -> Object | None:
        if read_phase(body) is not Phase.PENDING:
            raise Superseded
        return build_pending_status(
            body.get("status") or {},
            reason=reason,
            message=message,
            place=place,
            moment=clock(),
            created=record.created_at(),
        )

    while not turn.is_granted:
        next_at = min(began + timeout_seconds, write_at)
        await turn.pause(min(_CHECK_SECONDS, max(0.0, next_at - monotonic())))
        record.wakeup.clear()
        check_still_wanted(record)
        if turn.is_granted:
            return
        at, place = monotonic(), queue.place(turn)
        if at >= began + timeout_seconds:
            raise EndedBeforeRun(build_failure(reason, f"{timeout_message} for {timeout_seconds:.0f} s; {place}"))
        if at >= write_at:
            write_at = at + next_update_after(place.of)
            update = QueueUpdate(reason=reason, place=place)
            if update.differs_enough_from(written):
                await writer.write(record, decide, what="pending")
                written = update


def run_deadline_seconds(spec: CodeExecutionSpec) -> float:
    """Return the seconds after which the operator ends a run that has not ended, without waits for approvals."""
    return spec.timeout_seconds + _GRACE_SECONDS + (_WORKSPACE_SECONDS if spec.workspace is not None else 0)


def longest_run_seconds(spec: CodeExecutionSpec) -> float:
    """Return the longest time of a run: its deadline, and all the time that its calls may wait for approvals."""
    return run_deadline_seconds(spec) + (spec.approval_timeout_seconds if spec.tools else 0)
