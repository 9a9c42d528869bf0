"""What a feature does for one execution: a part, which exists only if the execution uses the feature."""

from dataclasses import dataclass, field

from mcp_exec_common.kube.objects import Object
from mcp_exec_common.supervisor.protocol import Event, JobFiles, JobSkills, JobTools
from mcp_exec_operator.core.executions.outcome import ExecutionOutcome


@dataclass(kw_only=True)
class JobDraft:
    """What parts add to a job before it is sent, and to the status that records the binding."""

    tools: JobTools | None = None
    """None if the execution has no tools."""
    files: JobFiles | None = None
    """None if nothing is kept."""
    skills: JobSkills | None = None
    findings: list[Object] = field(default_factory=list)
    """Findings in the code, as the status has them."""


class Part:
    """One feature's share of one execution, from its first observation to its end. All its state is here.

    An execution that is repeated after an error of the API server is admitted or resumed again by the same part. A
    method that raises EndedBeforeRun ends the execution.
    """

    events: tuple[type[Event], ...] = ()
    """Types of the events that `on_event` gets."""
    run_seconds: float = 0.0
    """How long its work in the sandbox may take, in addition to the code."""
    awaits_approvals: bool = False
    """Whether its calls may wait for approvals, beyond the deadline of the run."""
    needs_broker: bool = False
    """Whether its share of a job needs the broker. A sandbox is asked if it has such a job, before it is made again."""

    def adopt(self) -> None:
        """Hold at once what an execution has that an earlier operator bound, so that no other gets it."""

    async def admit(self) -> None:
        """Check the execution before it takes a pod, and wait for what it needs besides."""

    async def join(self, job: JobDraft) -> None:
        """Add to the job: the pod is known. Called again if the job must be made again."""

    def resume(self) -> None:
        """Go on with a run that an earlier operator, or an earlier attempt, has begun."""

    def on_event(self, event: Event) -> None:
        """React to an event of the run. Code may forge events."""

    async def finish(self, outcome: ExecutionOutcome) -> ExecutionOutcome:
        """End what the run has begun, and return the outcome with what there is to add, before it is written."""
        return outcome

    async def stop(self) -> None:
        """End what the attempt has begun, after `finish` or instead of it. Repeated calls change nothing."""

    def leave(self, *, decided: bool) -> bool:
        """Leave what the execution has a turn at. Return whether its pod stays in use.

        `decided` says whether this operator has written the end, or the execution was deleted; else another operator
        goes on with it.
        """
        return False
