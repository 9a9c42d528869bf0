"""Typed results of the gateway. Fields and values that only a newer gateway has are accepted and ignored."""

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue, RootModel, ValidationError
from pydantic.alias_generators import to_camel

from mcp_exec_api.approvals import Approval, PendingApproval
from mcp_exec_api.code_execution import Durations, ExecutionError, Output, Phase, QueuePlace, SkillUse, ToolCalls, Usage
from mcp_exec_api.code_findings import Finding
from mcp_exec_api.meta import LENIENT, Condition, MicroTime
from mcp_exec_api.notes import Note
from mcp_exec_client.errors import McpExecError, UnexpectedResponse
from mcp_exec_client.state.results import ExecutionArtifact
from mcp_exec_client.transport import HttpReply

Parsed = TypeVar("Parsed", bound=BaseModel)


class _Result(BaseModel):
    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True, use_attribute_docstrings=True
    )


class ExecutionWorkspace(_Result):
    """The workspace of an execution, what the run read from it and what it saved."""

    name: str
    mode: str = "Write"
    """Write: changes are saved. Read: they are dropped."""
    base: int | None = None
    """Version that the run began with; 0 if the workspace was empty."""
    version: int | None = None
    """Newest version after the run; None if nothing was saved."""
    changed_files: int | None = None
    """Number of files that the run added, changed or removed."""
    bytes: int | None = None
    """Bytes of all files of `version`."""
    left_out: int | None = None
    """Number of entries that were not saved: links, devices, names that are not plain."""
    reason: str = ""
    """Why the changes were not saved; empty if they were."""
    message: str = ""
    """Why the changes were not saved, as a sentence."""


class Execution(_Result):
    """One execution, as it was at the time of the response."""

    name: str
    """Name of the execution, used in all further requests."""
    namespace: str
    pool: str
    caller: str | None = None
    """Creator, as a label value. `claimed:` precedes a name that the gateway did not write."""
    description: str | None = None
    """What the code is for."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Own labels."""
    conversation: str | None = None
    """Conversation that the execution is part of."""
    use_case: str | None = None
    """What the execution is for: filtering, workflow, polling or other."""
    session: str | None = None
    """Session in which the code ran."""
    workspace: ExecutionWorkspace | None = None
    """Workspace whose files the code had."""
    artifacts: tuple[ExecutionArtifact, ...] = ()
    """Files, figures and tables that the code produced: `execution.artifacts[0].read()` and `.save()`."""
    phase: Phase
    """Pending: waits for a pod. Running: bound to a pod. Succeeded, Failed, TimedOut and Cancelled are final."""
    reason: str = ""
    """Reason for the phase; docs/kubectl/troubleshooting.md lists them. Empty if the phase needs none."""
    output: Output | None = None
    """Output and result of the code, once it has ended."""
    error: ExecutionError | None = None
    """Error, if the execution failed."""
    notes: list[Note] = Field(default_factory=list)
    """What a reader must know though the code succeeded: changed values, cut output, threads that still ran."""
    durations: Durations | None = None
    """Duration of each stage in milliseconds."""
    usage: Usage | None = None
    """Resources that the execution used. Not set if it had no sandbox."""
    stored_bytes: int | None = None
    """Bytes of the object in Kubernetes, once the operator has written its status."""
    duration: str | None = None
    """Total duration for people, for example `12ms`."""
    tool_calls: ToolCalls | None = None
    """Tool calls of the code. Not set if it may call no tools."""
    skills: SkillUse | None = None
    """Skills that the code got or saved. Not set if there are none."""
    code_findings: list[Finding] = Field(default_factory=list)
    """Findings of the static code check."""
    approvals: list[Approval] = Field(default_factory=list)
    """The newest 50 tool calls that need or needed an approval."""
    queue: QueuePlace | None = None
    """Place in the queue while it waits for a pod."""
    conditions: list[Condition] = Field(default_factory=list)
    start: str | None = None
    """Warm or Cold."""
    variant: str | None = None
    pod_name: str | None = None
    pod_uid: str | None = None
    node_name: str | None = None
    spec_digest: str | None = None
    created_at: MicroTime | None = None
    bound_at: MicroTime | None = None
    started_at: MicroTime | None = None
    finished_at: MicroTime | None = None
    code: str | None = None
    """The code, if it was asked for."""

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

    def raise_for_failure(self) -> None:
        """Raise ExecutionFailed if the execution has ended without success."""
        if self.finished and not self.succeeded:
            raise ExecutionFailed(self)


class ExecutionFailed(McpExecError):
    """An execution ended without success. Only `Execution.raise_for_failure` and helpers that call it raise this."""

    def __init__(self, outcome: Execution) -> None:
        error = outcome.error
        cause = f": {error.summary}" if error else ""
        super().__init__(f"{outcome.name}: {outcome.phase} {outcome.reason}".rstrip() + cause)
        self.execution = outcome.name
        self.outcome = outcome


class ListedExecution(_Result):
    """One execution in a list, without its output."""

    name: str
    namespace: str
    pool: str
    caller: str | None = None
    description: str | None = None
    """What the code is for."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Own labels."""
    conversation: str | None = None
    """Conversation that the execution is part of."""
    use_case: str | None = None
    """What the execution is for: filtering, workflow, polling or other."""
    phase: Phase
    reason: str = ""
    start: str | None = None
    pod_name: str | None = None
    created_at: MicroTime
    finished_at: MicroTime | None = None
    duration: str | None = None


class ExecutionPage(_Result):
    """One page of a list of executions."""

    items: list[ListedExecution]
    continue_token: Annotated[str | None, Field(alias="continue")] = None
    """Token of the next page; None on the last page."""


class ApprovalItems(_Result):
    """Approvals in a response."""

    items: list[Approval]


class AwaitedApprovals(_Result):
    """Pending approvals of a namespace, newest first."""

    items: list[PendingApproval]
    complete: bool = True
    """False if a replica of the broker did not answer. Approvals of its executions may then be missing."""


class ToolMatch(_Result):
    """A tool that matches a search, in the requested detail."""

    model_config = ConfigDict(alias_generator=None)

    name: str
    """Name in Python."""
    server: str
    description: str | None = None
    import_line: Annotated[str | None, Field(alias="import")] = None
    """Python statement that imports the tool."""
    signature: str | None = None
    """The call in Python, with the parameters in their positional order."""
    input_schema: dict[str, Any] | None = None
    """JSON Schema of the arguments."""
    output_schema: dict[str, Any] | None = None
    """JSON Schema of the structured result, if known."""


class ToolMatches(RootModel[list[ToolMatch]]):
    """Tools that match a search, best match first."""


class ToolDefinition(_Result):
    """A tool as its server lists it."""

    name: str
    """Name at the server."""
    description: str = ""
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None = None
    annotations: dict[str, Any] | None = None
    """Hints such as `readOnlyHint`."""
    inferred: bool = False
    """Whether the output schema is inferred from earlier results."""


class ToolDefinitions(_Result):
    """The tools of one server."""

    server: str
    tools: list[ToolDefinition]


class OfferedLibrary(_Result):
    """A library of a pool's image."""

    name: str
    """Name of the distribution."""
    version: str
    imports: list[str]
    """Names that code imports."""


class OfferedPool(_Result):
    """A pool, what its pods offer to code, and how many there are."""

    name: str
    memory_bytes: int | None = None
    """Memory limit of a sandbox, the smallest of all variants."""
    cpus: float | None = None
    """CPU limit of a sandbox in cores, the smallest of all variants."""
    runtime: str | None = None
    """RuntimeClass of the pods, unless variants differ in it."""
    max_timeout_seconds: int
    """Maximum `timeout_seconds`."""
    max_pods: int = 0
    warm: int = 0
    """Pods that are ready and idle."""
    starting: int = 0
    busy: int = 0
    queued: int = 0
    """Executions that wait for a pod."""
    max_queued: int = 0
    python: str | None = None
    """Python of the pool's image; None if it is not known yet."""
    libraries: list[OfferedLibrary] | None = None
    """Libraries that code can import, the largest first; None if they are not known yet."""


class OfferedServer(_Result):
    """A tool server."""

    name: str
    tools: int
    """Number of its tools that the caller may use."""


class ActiveCounts(_Result):
    """Numbers of unfinished executions."""

    active: int
    """Of the namespace."""
    own: int
    """Of the caller."""


class SessionCounts(_Result):
    """Sessions of the caller that have a pod or will get one."""

    own: int
    limit: int


class Stats(_Result):
    """What a caller can use in a namespace, and what is in use."""

    namespace: str
    caller: str
    executions: ActiveCounts
    pools: list[OfferedPool]
    """Pools that the caller may use."""
    servers: list[OfferedServer] | None = None
    """Servers with tools that the caller may use. None if no broker responds."""
    tools: int | None = None
    sessions: SessionCounts | None = None
    """Sessions of the caller; None if the gateway has none."""
    limits: dict[str, Any] = Field(default_factory=dict)
    """Limits of the caller's API key."""
    gateway: dict[str, Any] = Field(default_factory=dict)
    """Limits of each request."""


class AuditedCall(_Result):
    """Audit record of a tool call. Fields without a name here are kept and can be read as attributes."""

    model_config = ConfigDict(extra="allow")

    at: MicroTime
    namespace: str
    execution: str | None = None
    caller: str | None = None
    server: str | None = None
    tool: str | None = None
    outcome: str | None = None


class AuditPage(_Result):
    """One page of audit records."""

    items: list[AuditedCall]
    next: str | None = None
    """Cursor of the next page; None on the last page."""


def parse_reply(result: type[Parsed], reply: HttpReply) -> Parsed:
    """Parse a response's body. Raises UnexpectedResponse if it is not the gateway's."""
    try:
        # the shared parts of a status refuse unknown fields, which a newer gateway may send
        extra: Literal["ignore"] | None = None if result is AuditPage else "ignore"
        return result.model_validate_json(reply.content, extra=extra, context=LENIENT)
    except ValidationError as error:
        raise UnexpectedResponse(
            f"{reply.address}: the response is not a gateway's: {describe_invalid(error)}"
        ) from error


def describe_invalid(error: ValidationError) -> str:
    """Return the first invalid field and why, without its value."""
    first = error.errors(include_input=False, include_url=False, include_context=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or 'body'}: {first['msg']}"
