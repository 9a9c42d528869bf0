"""Executions, their approvals and their artifacts."""

from typing import Annotated

from pydantic import Field, JsonValue

from mcp_exec_api.approvals import Approval, ApprovalChoice, PendingApproval
from mcp_exec_api.code_execution import CodeExecutionStatus, Phase, Start
from mcp_exec_api.files.artifact import Artifact
from mcp_exec_api.files.workspace import WorkspaceMode, WorkspaceStatus
from mcp_exec_api.meta import MicroTime, Model
from mcp_exec_api.reasons.execution import Reason


class UsedWorkspace(WorkspaceStatus):
    """The workspace of an execution, what the run read from it and what it saved."""

    name: str
    """Name of the workspace."""
    mode: WorkspaceMode = WorkspaceMode.WRITE
    """Write: changes are saved. Read: they are dropped."""


class Execution(CodeExecutionStatus):
    """One execution: its name and its status."""

    name: str
    """Name of the execution, used in all further requests."""
    namespace: str
    """Namespace of the execution."""
    pool: str
    """Pool of the execution."""
    caller: str | None = None
    """Creator, as a label value; not set for executions created with kubectl. `claimed:` precedes a name that the
    gateway did not write."""
    description: str | None = None
    """What the code is for."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Own labels; not set if there are none."""
    conversation: str | None = None
    """Conversation that the execution is part of."""
    use_case: str | None = None
    """What the execution is for: filtering, workflow, polling or other."""
    session: str | None = None
    """Session in which the code runs."""
    workspace: UsedWorkspace | None = None
    """Workspace whose files the code has."""
    code: str | None = None
    """Code of the execution, with `include=code` only."""

    @property
    def finished(self) -> bool:
        """Whether the phase is final."""
        return self.phase.finished

    @property
    def succeeded(self) -> bool:
        """Whether the code ran to its end."""
        return self.phase is Phase.SUCCEEDED

    @property
    def stdout(self) -> str:
        """Standard output; empty before the end."""
        return self.output.stdout if self.output else ""

    @property
    def stderr(self) -> str:
        """Standard error; empty before the end."""
        return self.output.stderr if self.output else ""

    @property
    def result(self) -> JsonValue:
        """Value that the code returned; None before the end."""
        return self.output.result if self.output else None


class ExecutionSummary(Model):
    """One execution in a list, without its output."""

    name: str
    """Name of the execution."""
    namespace: str
    """Namespace of the execution."""
    pool: str
    """Pool of the execution."""
    caller: str | None = None
    """Creator, as a label value. `claimed:` precedes a name that the gateway did not write."""
    description: str | None = None
    """What the code is for."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Own labels; not set if there are none."""
    conversation: str | None = None
    """Conversation that the execution is part of."""
    use_case: str | None = None
    """What the execution is for: filtering, workflow, polling or other."""
    phase: Phase
    """Phase of the execution."""
    reason: Reason = Reason.NONE
    """Why the execution waits or ended as it did."""
    start: Start | None = None
    """Warm or Cold."""
    pod_name: str | None = None
    """Sandbox pod of the execution."""
    created_at: MicroTime
    """Time of creation."""
    finished_at: MicroTime | None = None
    """Time of the end."""
    duration: str | None = None
    """Total duration, for people."""


class ExecutionList(Model):
    """One page of executions."""

    items: list[ExecutionSummary]
    """Executions of the page."""
    continue_token: Annotated[str | None, Field(alias="continue")] = None
    """Token of the next page; not set on the last page."""


class ApprovalList(Model):
    """An execution's approvals."""

    items: list[Approval]
    """Approvals, oldest first."""


class PendingApprovalList(Model):
    """Pending approvals of a namespace."""

    items: list[PendingApproval]
    """Approvals, newest first."""
    complete: bool
    """False if a replica of the broker did not answer. Approvals of its executions may then be missing."""


class NewDecision(Model):
    """Decision on a pending tool call."""

    decision: ApprovalChoice
    """Approve or Deny."""
    arguments_digest: Annotated[str | None, Field(max_length=71)] = None
    """`argumentsDigest` of the approval that was read. If the call has other arguments, the decision is refused."""
    comment: Annotated[str | None, Field(max_length=1024)] = None
    """Reason for the decision. If the call is denied, the code receives it with the error."""


class LinkedArtifact(Artifact):
    """One artifact of an execution, with a link to it."""

    url: str
    """Link that needs no key until it expires."""
    expires_at: MicroTime
    """Time from which the link is refused."""


class ArtifactList(Model):
    """An execution's artifacts."""

    items: list[LinkedArtifact]
    """Artifacts, in the order in which the code produced them."""
