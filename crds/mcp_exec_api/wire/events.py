"""Events of an execution's stream, as they are sent: the source of the OpenAPI document and of the documentation.

The gateway's `EventFollower` sends dictionaries; a test compares them with these models.
"""

from typing import Annotated, Final, Literal

from pydantic import Field, JsonValue

from mcp_exec_api.code_execution import Durations, ExecutionError, Phase, SkillUse, Start
from mcp_exec_api.code_findings import Note
from mcp_exec_api.meta import MicroTime, Model
from mcp_exec_api.reasons.execution import Reason


class StreamEvent(Model):
    """Fields of every event."""

    # clients send it back in a header
    id: Annotated[str, Field(max_length=64, pattern=r"^[\x21-\x7e]+$")]
    """Position after this event. A client that sends the last one as `Last-Event-ID` resumes exactly after it."""
    seq: Annotated[int, Field(ge=0)]
    """Number of the event; 0 for the status `Pending`."""
    at: MicroTime
    """Time of the event, by the sandbox's clock while the code runs."""


class StatusEvent(StreamEvent):
    """The execution waits for a pod, or its code started."""

    type: Literal["status"]
    phase: Literal[Phase.PENDING, Phase.RUNNING]
    """Pending or Running."""


class TextEvent(StreamEvent):
    """Text that the code wrote to standard output or standard error."""

    type: Literal["stdout", "stderr"]
    text: str
    """The text; the texts of all events of a type, in order, are the output."""


class ToolCallEvent(StreamEvent):
    """The code called a tool. The sandbox reports it, so code can forge it; the audit log has what was called."""

    type: Literal["tool_call"]
    call: str
    """Id of the call, which its `tool_result` has, too."""
    tool: str
    """Tool, as the code named it."""
    argument_bytes: int
    """Bytes of the arguments as JSON."""


class ToolResultEvent(StreamEvent):
    """A tool call ended. The sandbox reports it."""

    type: Literal["tool_result"]
    call: str
    """Id of the call."""
    tool: str
    """Tool, as the code named it."""
    ok: bool
    """Whether the code received a result."""
    kind: str | None = None
    """Name of the exception that the code received; not set if there was none."""
    message: str | None = None
    """Message of a ToolError."""
    bytes: int
    """Bytes of the result."""
    ms: float | None
    """Duration of the call in milliseconds."""


class ApprovalEvent(StreamEvent):
    """A tool call waits for an approval. The sandbox reports it; `GET /v1/approvals` has the call's arguments."""

    type: Literal["approval"]
    approval: str
    """Id of the approval, for `POST /v1/executions/{name}/approvals/{id}`."""
    tool: str
    """Tool as SERVER.TOOL."""
    expires_at: MicroTime | None = None
    """Time when the call is denied if nobody has decided."""


class ProgressEvent(StreamEvent):
    """The code called `progress(done, total, text)`. Of many reports in a short time, only the newest is sent."""

    type: Literal["progress"]
    done: float
    """What is done, in the code's own unit."""
    total: float | None
    """What is to be done in all; null if the code does not say."""
    text: str
    """What the code does, at most 200 characters."""


class ResultEvent(StreamEvent):
    """The value that the code returned."""

    type: Literal["result"]
    value: JsonValue
    """The value as JSON, or its shortened `repr`."""
    truncated: bool
    """Whether it was shortened."""


class ArtifactEvent(StreamEvent):
    """A file that the run produced is stored. These events come right before the end."""

    type: Literal["artifact"]
    artifact: str
    """Id of the artifact."""
    name: str
    """File name."""
    media_type: str
    """Media type that the code gave or the name suggests."""
    bytes: int
    """Size in bytes."""
    sha256: str
    """SHA-256 of the bytes, in hexadecimal digits."""
    title: str | None = None
    """Title that the code gave."""
    preview: str | None = None
    """Beginning of the content as text."""


class EndEvent(StreamEvent):
    """The execution ended. This is the last event of every stream; its fields are those of the status."""

    type: Literal["end"]
    phase: Literal[Phase.SUCCEEDED, Phase.FAILED, Phase.TIMED_OUT, Phase.CANCELLED] | None
    """Final phase; null if the execution was deleted."""
    reason: Reason | Literal["Deleted"]
    """Reason of the phase, empty if it needs none; Deleted if the execution was deleted."""
    error: ExecutionError | None = None
    """Error, if the execution failed."""
    start: Start | None = None
    """Warm or Cold; not set if the execution got no pod."""
    pod_name: str | None = None
    """Name of the sandbox pod; not set if the execution got none."""
    durations: Durations | None = None
    """Duration of each stage in milliseconds."""
    skills: SkillUse | None = None
    """Skills that the code got or saved; not set if there are none."""
    notes: list[Note] | None = None
    """What a reader must know though the code succeeded; not set if there is nothing."""
    stdout_bytes: int | None = None
    """Bytes that the code wrote to standard output; not set if it did not run."""
    stderr_bytes: int | None = None
    """Bytes that the code wrote to standard error; not set if it did not run."""
    truncated: bool | None = None
    """Whether output or result was shortened; not set if the code did not run."""

    @property
    def succeeded(self) -> bool:
        """Whether the code ran to its end."""
        return self.phase is Phase.SUCCEEDED


STREAM_EVENTS: Final[tuple[type[StreamEvent], ...]] = (
    StatusEvent,
    TextEvent,
    ToolCallEvent,
    ToolResultEvent,
    ApprovalEvent,
    ProgressEvent,
    ResultEvent,
    ArtifactEvent,
    EndEvent,
)
"""Models of all events."""
AnyStreamEvent = Annotated[
    StatusEvent
    | TextEvent
    | ToolCallEvent
    | ToolResultEvent
    | ApprovalEvent
    | ProgressEvent
    | ArtifactEvent
    | ResultEvent
    | EndEvent,
    Field(discriminator="type"),
]
"""Any event of a stream."""
