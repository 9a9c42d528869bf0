"""One attempt to execute, its job, and the hooks of features, which take part in it."""

from dataclasses import dataclass, field, fields
from typing import Any, Final

from mcp_exec_api.code_execution import CodeExecutionSpec
from mcp_exec_api.files import Owner
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.supervisor.client import PendingRun
from mcp_exec_common.supervisor.protocol import (
    Event,
    Job,
    JobFiles,
    JobSkills,
    JobTools,
)
from mcp_exec_operator.core.executions.outcome import (
    ExecutionOutcome,
)
from mcp_exec_operator.core.executions.record import ExecutionRecord
from mcp_exec_operator.core.executions.specs import SpecInUse
from mcp_exec_operator.core.executions.supervision import RunDeadline
from mcp_exec_operator.core.pods.pod import Pod
from mcp_exec_operator.core.pools.pool import Pool
from mcp_exec_operator.core.pools.reuse import reuses_pods
from mcp_exec_operator.features.sessions.record import SessionRecord

_GRACE_SECONDS: Final = 15.0
"""How long after its timeout a run that has not ended is ended by the operator."""
_WORKSPACE_SECONDS: Final = 120.0
"""How long a sandbox may take to put a workspace in place before the run, and to save it afterwards."""
_NO_OPTIONS: Final = ("id", "code", "tools", "files", "owner", "session", "skills", "libraries")
_OPTIONS: Final = tuple(field.name for field in fields(Job) if field.name not in _NO_OPTIONS)
"""Fields of a job that a field of the spec or of its limits fills by the same name."""


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
    sandbox_owner: str | None = None
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
        files_seconds = _WORKSPACE_SECONDS if self.spec.workspace is not None else 0
        seconds = self.spec.timeout_seconds + _GRACE_SECONDS + files_seconds
        self.deadline = RunDeadline(uid=self.record.uid, seconds=seconds)

    @property
    def longest_seconds(self) -> float:
        """The longest time of its run: the deadline, and all the time that its calls may wait for approvals."""
        return self.deadline.seconds + (self.spec.approval_timeout_seconds if self.spec.tools else 0)

    @property
    def reusing_owner(self) -> Owner | None:
        """The owner whose used pods it may get; None if it needs a pod that nobody has used."""
        owner = self.record.owner
        is_reused = self.record.session is None and not owner.is_nobody and reuses_pods(self.pool.spec)
        return owner if is_reused else None

    def build_job(self, spec: CodeExecutionSpec) -> Job:
        """Return the job. An option of spec or limits reaches it if Job has a field of that name."""
        options: dict[str, Any] = {**vars(spec.limits), **vars(spec)}
        skills, self.skills = self.skills, None
        return Job(
            id=self.record.uid,
            code=spec.source,
            tools=self.tools,
            files=self.files,
            owner=self.sandbox_owner,
            session=spec.session is not None,
            skills=skills,
            libraries=self.pool.libraries.find_missing(self.pod.template),
            **{name: options[name] for name in _OPTIONS},
        )

    def close(self) -> None:
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

    def leave(self, record: ExecutionRecord, *, decided: bool) -> bool:
        """Leave what the execution has a turn at. Return whether its pod stays in use.

        `decided` says whether this operator has written the end, or the execution was deleted; else another operator
        goes on with it.
        """
        return False
