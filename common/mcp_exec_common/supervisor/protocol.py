"""The protocol of a sandbox's supervisor: what it is asked to run, and what it tells of the run.

What a supervisor says comes from inside a sandbox, so it is hostile input: every event is validated and bounded here.
"""

import json
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel

from mcp_exec_api.code_execution import ExecutionError, Phase, Reason
from mcp_exec_api.constants import MAX_OUTPUT_BYTES


class SandboxError(Exception):
    """The supervisor can't be reached, or what it said is no answer."""


class SandboxUsed(SandboxError):
    """The sandbox has accepted an execution before, and accepts no second one. `id` is that execution's uid."""

    def __init__(self, accepted: str | None) -> None:
        super().__init__(f"the sandbox has accepted execution {accepted}")
        self.id = accepted


class _Event(BaseModel):
    model_config = ConfigDict(frozen=True, alias_generator=to_camel, populate_by_name=True)

    seq: Annotated[int, Field(ge=1)]
    at: datetime


class StatusEvent(_Event):
    """The run began."""

    type: Literal["status"]
    phase: Phase


class TextEvent(_Event):
    """Text on standard output or standard error."""

    type: Literal["stdout", "stderr"]
    text: Annotated[str, Field(max_length=2 * MAX_OUTPUT_BYTES)]


class ResultEvent(_Event):
    """The value of the code."""

    type: Literal["result"]
    value: JsonValue
    truncated: bool = False


class ToolCallEvent(_Event):
    """The code called a tool, by what the sandbox says."""

    type: Literal["tool_call"]
    id: Annotated[str, Field(max_length=64)]
    tool: Annotated[str, Field(max_length=300)]
    argument_bytes: Annotated[int, Field(ge=0)] = 0


class ToolResultEvent(_Event):
    """That call ended."""

    type: Literal["tool_result"]
    id: Annotated[str, Field(max_length=64)]
    tool: Annotated[str, Field(max_length=300)]
    ok: bool
    kind: Annotated[str | None, Field(max_length=64)] = None
    message: Annotated[str | None, Field(max_length=MAX_OUTPUT_BYTES)] = None
    bytes: Annotated[int, Field(ge=0)] = 0
    ms: Annotated[float, Field(ge=0)] = 0.0


class ApprovalEvent(_Event):
    """That call waits for somebody's consent."""

    type: Literal["approval"]
    id: Annotated[str, Field(max_length=64)]
    tool: Annotated[str, Field(max_length=300)]
    expires_at: datetime | None = None


class EndEvent(_Event):
    """The run ended; the last event of each run."""

    type: Literal["end"]
    phase: Literal[Phase.SUCCEEDED, Phase.FAILED, Phase.TIMED_OUT, Phase.CANCELLED]
    reason: Reason = Reason.NONE
    error: ExecutionError | None = None
    exit_code: int | None = None
    stdout_bytes: Annotated[int, Field(ge=0)] = 0
    stderr_bytes: Annotated[int, Field(ge=0)] = 0
    truncated: bool = False
    run_ms: Annotated[float, Field(ge=0)] = 0.0
    peak_memory_bytes: int | None = None


Event = Annotated[
    StatusEvent | TextEvent | ResultEvent | ToolCallEvent | ToolResultEvent | ApprovalEvent | EndEvent,
    Field(discriminator="type"),
]
_EVENTS: TypeAdapter[Event] = TypeAdapter(Event)


def parse_event(line: bytes) -> Event:
    """One line of a supervisor's stream. Raises SandboxError where it is no event."""
    try:
        return _EVENTS.validate_json(line)
    except ValidationError as error:
        raise SandboxError(f"the sandbox sent no event but {line[:200]!r}: {error.errors()[0]['msg']}") from error


@dataclass(frozen=True, kw_only=True)
class JobTools:
    """How the code of a job reaches its tools."""

    url: str
    """The broker."""
    token: str = field(repr=False)
    """The execution's grant."""
    allow: list[str]
    """The patterns of the execution's own allow-list."""
    wrappers: str | None = None
    """The hash of the wrappers that the sandbox has."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """What a supervisor is asked to run."""

    id: str
    code: str
    context: dict[str, Any]
    timeout_seconds: float
    output_bytes: int
    tools: JobTools | None = None
    """Not set where the code may call none."""

    def to_json(self) -> bytes:
        """The body of the request."""
        body: dict[str, Any] = {
            "id": self.id,
            "code": self.code,
            "context": self.context,
            "timeoutSeconds": self.timeout_seconds,
            "outputBytes": self.output_bytes,
        }
        if self.tools is not None:
            body["tools"] = asdict(self.tools)
        return json.dumps(body).encode()
