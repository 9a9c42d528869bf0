"""Typed events of an execution's stream."""

from datetime import datetime
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel

from mcp_exec_api.code_execution import Durations, ExecutionError, Phase, SkillUse
from mcp_exec_api.notes import Note
from mcp_exec_client.errors import UnexpectedResponse
from mcp_exec_client.types import describe_invalid


class _StreamEvent(BaseModel):
    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True, use_attribute_docstrings=True
    )

    # the client sends it back in a header
    id: Annotated[str, Field(max_length=64, pattern=r"^[\x21-\x7e]+$")]
    """Position after this event. A stream that is opened with it starts with the next event."""
    at: datetime
    """Time of the event."""


class PhaseChanged(_StreamEvent):
    """The execution waits (Pending) or its code started (Running)."""

    type: Literal["status"]
    phase: Phase


class OutputWritten(_StreamEvent):
    """Text that the code wrote to standard output or standard error."""

    type: Literal["stdout", "stderr"]
    text: str


class ProgressMade(_StreamEvent):
    """Progress that the code reported."""

    type: Literal["progress"]
    done: float
    total: float | None = None
    """Value of `done` at the end, if known."""
    text: str = ""


class ToolCalled(_StreamEvent):
    """The code called a tool, as the sandbox reports it."""

    type: Literal["tool_call"]
    call: str
    """Id of the call, which its ToolReturned has as well."""
    tool: str
    """Tool as SERVER.TOOL."""
    argument_bytes: int = 0


class ToolReturned(_StreamEvent):
    """A tool call ended."""

    type: Literal["tool_result"]
    call: str
    tool: str
    ok: bool
    kind: str | None = None
    """Kind of the failure, for example ToolDenied."""
    message: str | None = None
    """Message of the failure."""
    bytes: int = 0
    """Size of the result."""
    ms: float | None = None
    """Duration of the call in milliseconds."""


class ApprovalRequested(_StreamEvent):
    """A tool call waits for an approval."""

    type: Literal["approval"]
    approval: str
    """Id of the approval, for `approve` and `deny`."""
    tool: str
    expires_at: datetime | None = None


class ResultReturned(_StreamEvent):
    """The value that the code returned."""

    type: Literal["result"]
    value: JsonValue = None
    truncated: bool = False


class ArtifactStored(_StreamEvent):
    """A file that the run produced is stored. These events come right before the end."""

    type: Literal["artifact"]
    artifact: str
    """Id of the artifact within the execution."""
    name: str
    media_type: str
    bytes: int
    sha256: str
    title: str = ""
    preview: str = ""
    """Beginning of the content as text."""


class ExecutionEnded(_StreamEvent):
    """The end of the execution, which is the last event."""

    type: Literal["end"]
    phase: Phase | None = None
    """Final phase; None if the execution was deleted."""
    reason: str = ""
    error: ExecutionError | None = None
    start: str | None = None
    pod_name: str | None = None
    durations: Durations | None = None
    skills: SkillUse | None = None
    """Skills that the code got or saved. Not set if there are none."""
    notes: list[Note] = Field(default_factory=list)
    """What a reader must know though the code succeeded."""
    stdout_bytes: int = 0
    stderr_bytes: int = 0
    truncated: bool = False

    @property
    def succeeded(self) -> bool:
        """Whether the code ran to its end."""
        return self.phase is Phase.SUCCEEDED


class OtherEvent(_StreamEvent):
    """An event of a type that this version of the client does not have. Its fields are attributes."""

    model_config = ConfigDict(extra="allow")

    type: str


_Known: TypeAlias = (
    PhaseChanged
    | OutputWritten
    | ProgressMade
    | ToolCalled
    | ToolReturned
    | ApprovalRequested
    | ResultReturned
    | ArtifactStored
    | ExecutionEnded
)
StreamedEvent: TypeAlias = _Known | OtherEvent
"""Any event of a stream."""
_ADAPTER: Final[TypeAdapter[Any]] = TypeAdapter(Annotated[_Known, Field(discriminator="type")])


def parse_line(line: bytes, *, address: str) -> StreamedEvent:
    """Parse one line of a stream. Raises UnexpectedResponse if it is not an event."""
    try:
        try:
            event: StreamedEvent = _ADAPTER.validate_json(line, extra="ignore")
        except ValidationError as error:
            if error.errors(include_input=False, include_url=False)[0]["type"] != "union_tag_invalid":
                raise
            event = OtherEvent.model_validate_json(line)
    except ValidationError as error:
        raise UnexpectedResponse(
            f"{address}: a line of the stream is not an event: {describe_invalid(error)}"
        ) from error
    return event
