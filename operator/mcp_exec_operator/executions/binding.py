"""The binding of an execution to its pod, and the job that the pod runs."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Final

from mcp_exec_api.code_execution import CodeExecutionSpec
from mcp_exec_common.supervisor.client import PendingRun
from mcp_exec_common.supervisor.protocol import Job, JobTools
from mcp_exec_operator.pods.cache import Pod
from mcp_exec_operator.pools.partition import Partition

_GRACE_SECONDS: Final = 15.0
"""How long after its timeout a run that has not ended is ended by the operator."""
_OPTIONS: Final = tuple(field.name for field in fields(Job) if field.name not in ("id", "tools"))
"""Fields of a job that a field of the spec or of its limits fills by the same name."""


@dataclass(kw_only=True, eq=False)
class Binding:
    """The pod that an execution has until the pod is retired."""

    partition: Partition
    pod: Pod
    spec: CodeExecutionSpec
    """The spec that runs, without code and context, which only the job needs."""
    bound: float | None = None
    """When the binding was recorded, by the monotonic clock; None if another operator recorded it."""
    bind_milliseconds: float | None = None
    tools: JobTools | None = None
    """Tools of the job; None if it has none, or if another operator bound it."""
    pending_run: PendingRun | None = None
    """The job on its way to the pod; None once it is dispatched."""
    release_job: Callable[[], None] = lambda: None
    """Releases the memory of the job, once the sandbox has it or never gets it."""

    def withdraw(self) -> None:
        """Withdraw the job if it is not dispatched, and release its memory."""
        if self.pending_run is not None:
            self.pending_run.withdraw()
            self.pending_run = None
        self.release_job()


def strip_spec(spec: CodeExecutionSpec) -> CodeExecutionSpec:
    """Return a spec without code and context."""
    return spec.model_copy(update={"code": "", "context": {}})


def build_job(uid: str, spec: CodeExecutionSpec, tools: JobTools | None = None) -> Job:
    """Return the job of an execution. An option of spec or limits reaches it if Job has a field of that name."""
    options: dict[str, Any] = {**vars(spec.limits), **vars(spec)}
    return Job(id=uid, tools=tools, **{name: options[name] for name in _OPTIONS})


def run_deadline_seconds(spec: CodeExecutionSpec) -> float:
    """Return the seconds after which the operator ends a run that has not ended."""
    return spec.timeout_seconds + _GRACE_SECONDS
