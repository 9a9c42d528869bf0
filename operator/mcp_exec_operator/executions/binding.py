"""The binding of an execution to its pod, and the job that the pod runs."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, Final

from mcp_exec_api.code_execution import CodeExecutionSpec
from mcp_exec_common.supervisor.client import PendingRun
from mcp_exec_common.supervisor.protocol import Job, JobFiles, JobSkills, JobTools, LibraryHints
from mcp_exec_operator.pods.cache import Pod
from mcp_exec_operator.pools.pool import Pool

_GRACE_SECONDS: Final = 15.0
"""How long after its timeout a run that has not ended is ended by the operator."""
_WORKSPACE_SECONDS: Final = 120.0
"""How long a sandbox may take to put a workspace in place before the run, and to save it afterwards."""
_NO_OPTIONS: Final = ("id", "code", "tools", "files", "owner", "session", "skills", "libraries")
_OPTIONS: Final = tuple(field.name for field in fields(Job) if field.name not in _NO_OPTIONS)
"""Fields of a job that a field of the spec or of its limits fills by the same name."""


@dataclass(kw_only=True, eq=False)
class Binding:
    """The pod that an execution has until the pod is retired."""

    pool: Pool
    pod: Pod
    spec: CodeExecutionSpec
    """The spec that runs, without code and context, which only the job needs."""
    bound: float | None = None
    """When the binding was recorded, by the monotonic clock; None if another operator recorded it."""
    bind_milliseconds: float | None = None
    owner: str | None = None
    """Digest of the only owner that the sandbox serves; None if it serves one execution."""
    tools: JobTools | None = None
    """Tools of the job; None if it has none, or if another operator bound it."""
    skills: list[str] = field(default_factory=list)
    """Names of the Skill objects that the job brings."""
    files: JobFiles | None = None
    """Files of the job; None if nothing is kept, or if another operator bound it."""
    pending_run: PendingRun | None = None
    """The job on its way to the pod; None once it is dispatched."""
    release_job: Callable[[], None] = lambda: None
    """Releases the memory of the job, once the sandbox has it or never gets it."""

    def find_missing_libraries(self) -> LibraryHints:
        """Return the libraries of other pools that the pod lacks."""
        return self.pool.libraries.find_missing(self.pod.template)

    def withdraw(self) -> None:
        """Withdraw the job if it is not dispatched, and release its memory."""
        if self.pending_run is not None:
            self.pending_run.withdraw()
            self.pending_run = None
        self.release_job()


def strip_spec(spec: CodeExecutionSpec) -> CodeExecutionSpec:
    """Return a spec without code and context."""
    return spec.model_copy(update={"code": "", "context": {}})


def build_job(
    uid: str,
    spec: CodeExecutionSpec,
    tools: JobTools | None = None,
    *,
    files: JobFiles | None = None,
    owner: str | None = None,
    skills: JobSkills | None = None,
    libraries: LibraryHints | None = None,
) -> Job:
    """Return the job of an execution. An option of spec or limits reaches it if Job has a field of that name.

    With `owner`, its digest, the sandbox may be used again by this owner.
    """
    options: dict[str, Any] = {**vars(spec.limits), **vars(spec)}
    return Job(
        id=uid,
        code=spec.source,
        tools=tools,
        files=files,
        owner=owner,
        session=spec.session is not None,
        skills=skills,
        libraries=libraries or {},
        **{name: options[name] for name in _OPTIONS},
    )


def run_deadline_seconds(spec: CodeExecutionSpec) -> float:
    """Return the seconds after which the operator ends a run that has not ended, without waits for approvals."""
    return spec.timeout_seconds + _GRACE_SECONDS + (_WORKSPACE_SECONDS if spec.workspace is not None else 0)


def longest_run_seconds(spec: CodeExecutionSpec) -> float:
    """Return the longest time of a run: its deadline, and all the time that its calls may wait for approvals."""
    return run_deadline_seconds(spec) + (spec.approval_timeout_seconds if spec.tools else 0)
