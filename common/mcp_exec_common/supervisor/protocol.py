"""Protocol of a sandbox's supervisor: the job it receives and the events it sends.

Events come from inside a sandbox, so they are hostile input: this module validates and bounds each of them.
"""

import json
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel

from mcp_exec_api.code_execution import ExecutionError, Phase
from mcp_exec_api.constants import MAX_OUTPUT_BYTES, MAX_TOOL_CALLS
from mcp_exec_api.reasons import Reason


class SandboxError(Exception):
    """A supervisor that cannot be reached or that sent an invalid response."""


class SandboxNotProven(SandboxError):
    """What is at the pod's address did not prove that it is the pod's supervisor."""


class SandboxUsed(SandboxError):
    """A sandbox that has already accepted an execution, whose uid is `id`. It never accepts a second one."""

    def __init__(self, accepted: str | None) -> None:
        super().__init__(f"the sandbox has accepted execution {accepted}")
        self.id = accepted


_MAX_EVENTS: Final = MAX_OUTPUT_BYTES + 3 * MAX_TOOL_CALLS + 1000
"""The largest sequence number: an event for each byte of the heads of both streams, and those of the tool calls."""
_Count = Annotated[int, Field(ge=0, le=2**53)]
_Time = Annotated[AwareDatetime, Field(ge=datetime(1970, 1, 1, tzinfo=UTC), le=datetime(9000, 1, 1, tzinfo=UTC))]
"""A time that every time zone can express."""


class _Event(BaseModel):
    model_config = ConfigDict(frozen=True, alias_generator=to_camel, populate_by_name=True)

    seq: Annotated[int, Field(ge=1, le=_MAX_EVENTS)]
    at: _Time


class StatusEvent(_Event):
    """The code started."""

    type: Literal["status"]
    phase: Phase


class TextEvent(_Event):
    """Text that the code wrote to standard output or standard error."""

    type: Literal["stdout", "stderr"]
    text: Annotated[str, Field(max_length=2 * MAX_OUTPUT_BYTES)]


class ResultEvent(_Event):
    """The value that the code returned."""

    type: Literal["result"]
    value: JsonValue
    truncated: bool = False


class ToolCallEvent(_Event):
    """The code called a tool. The sandbox reports this; the broker keeps the count that is trusted."""

    type: Literal["tool_call"]
    id: Annotated[str, Field(max_length=64)]
    tool: Annotated[str, Field(max_length=300)]
    argument_bytes: _Count = 0


class ToolResultEvent(_Event):
    """A tool call ended."""

    type: Literal["tool_result"]
    id: Annotated[str, Field(max_length=64)]
    tool: Annotated[str, Field(max_length=300)]
    ok: bool
    kind: Annotated[str | None, Field(max_length=64)] = None
    message: Annotated[str | None, Field(max_length=MAX_OUTPUT_BYTES)] = None
    bytes: _Count = 0
    ms: Annotated[float, Field(ge=0)] = 0.0


class ApprovalEvent(_Event):
    """A tool call waits for an approval."""

    type: Literal["approval"]
    id: Annotated[str, Field(max_length=64)]
    tool: Annotated[str, Field(max_length=300)]
    expires_at: _Time | None = None


class EndEvent(_Event):
    """The run ended. This is the last event of every run."""

    type: Literal["end"]
    phase: Literal[Phase.SUCCEEDED, Phase.FAILED, Phase.TIMED_OUT, Phase.CANCELLED]
    reason: Reason = Reason.NONE
    error: ExecutionError | None = None
    exit_code: Annotated[int, Field(ge=-(2**31), lt=2**31)] | None = None
    stdout_bytes: _Count = 0
    stderr_bytes: _Count = 0
    truncated: bool = False
    run_ms: Annotated[float, Field(ge=0)] = 0.0
    peak_memory_bytes: _Count | None = None


Event = Annotated[
    StatusEvent | TextEvent | ResultEvent | ToolCallEvent | ToolResultEvent | ApprovalEvent | EndEvent,
    Field(discriminator="type"),
]
_EVENTS: TypeAdapter[Event] = TypeAdapter(Event)


def parse_event(line: bytes) -> Event:
    """Parse one line of a supervisor's stream. Raises SandboxError if it is not a valid event.

    The error has nothing of the line, which may be output of the code: errors are logged.
    """
    try:
        return _EVENTS.validate_json(line)
    except ValidationError as error:
        kind = error.errors(include_input=False, include_context=False)[0]["type"]
    raise SandboxError(f"the sandbox sent an invalid event of {len(line)} bytes: {kind}")


@dataclass(frozen=True, kw_only=True)
class JobTools:
    """Access of a job's code to tools."""

    url: str
    """URL of the broker."""
    token: str = field(repr=False)
    """Grant of the execution."""
    allow: list[str]
    """Tool patterns from `spec.tools` of the execution."""
    wrappers: str | None = None
    """Hash of the wrappers in the sandbox, or None if it has none."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """Code for a supervisor to run, with its input and limits."""

    id: str
    """Uid of the execution."""
    code: str
    context: dict[str, Any]
    timeout_seconds: float
    output_bytes: int
    tools: JobTools | None = None
    """None if the code may call no tools."""

    def to_json(self) -> bytes:
        """Return the body of the request."""
        body: dict[str, Any] = {to_camel(name): value for name, value in vars(self).items() if name != "tools"}
        if self.tools is not None:
            body["tools"] = asdict(self.tools)
        return json.dumps(body).encode()
