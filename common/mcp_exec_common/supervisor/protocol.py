"""Protocol of a sandbox's supervisor: the job it receives and the events it sends.

Events come from inside a sandbox, so they are hostile input: this module validates and bounds each of them.
"""

import json
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel

from mcp_exec_api.approvals import APPROVAL_ID
from mcp_exec_api.code_execution import ExecutionError, Phase
from mcp_exec_api.code_findings import MAX_NOTES, Note
from mcp_exec_api.constants import MAX_OUTPUT_BYTES, MAX_TOOL_CALLS
from mcp_exec_api.files import (
    MAX_ARTIFACT_NAME,
    MAX_MESSAGE_CHARACTERS,
    MAX_PREVIEW,
    MAX_TITLE,
    MEDIA_TYPE,
    WorkspaceRef,
)
from mcp_exec_api.reasons.execution import Reason
from mcp_exec_api.sandbox_pool import MAX_LIBRARIES, Library


class SandboxError(Exception):
    """A supervisor that cannot be reached or that sent an invalid response."""


class SandboxNotProven(SandboxError):
    """What is at the pod's address did not prove that it is the pod's supervisor."""


class ProtocolMismatch(SandboxError):
    """A sandbox that speaks no version of the protocol that this release speaks. The text names both sides' versions.

    Its pod must not be used.
    """


class SandboxUsed(SandboxError):
    """A sandbox that refuses the job because of those that it has accepted. The uid of the last one is `id`."""

    def __init__(self, accepted: str | None) -> None:
        super().__init__(f"the sandbox has accepted execution {accepted}")
        self.id = accepted


class InterpreterLost(SandboxError):
    """The interpreter of the sandbox's session has ended, and its variables with it."""


class NotRecycled(SandboxError):
    """A sandbox that could not be cleaned after a run. Its pod must be deleted."""


@dataclass(frozen=True, kw_only=True)
class SandboxHealth:
    """What a sandbox answers to those who need no token."""

    state: str
    """`idle`, `running`, `finished` or `cleaning`."""
    protocol: int
    """The highest version of the protocol that the sandbox and this release speak."""


@dataclass(frozen=True, kw_only=True)
class SandboxUse:
    """What a sandbox has accepted so far."""

    state: str
    """`idle`, `running`, `finished` or `cleaning`."""
    id: str | None
    """Uid of the last accepted execution; None if there was none."""
    uses: int
    """Jobs that the sandbox has accepted."""


@dataclass(frozen=True, kw_only=True)
class SessionState:
    """The session of a sandbox."""

    executions: int
    """Jobs that its interpreter has run."""
    memory_bytes: int
    """Memory that its interpreter uses."""
    alive: bool
    """Whether the interpreter still has what the earlier jobs left in it."""


class SandboxLibraries(BaseModel):
    """Python and libraries of a sandbox's image."""

    model_config = ConfigDict(frozen=True)

    python: Annotated[str, Field(max_length=32, pattern=r"^[0-9]+(\.[0-9]+){1,2}$")]
    libraries: Annotated[tuple[Library, ...], Field(max_length=MAX_LIBRARIES)]
    """The largest first."""


MAX_HINTS: Final = 64
"""Names of libraries of other pools that a job brings."""
MAX_HINTED_POOLS: Final = 8
"""Pools for each of these names."""

LibraryHints = dict[str, list[list[str]]]
"""Name and version of each pool that has a library, by the names that code imports."""

_MAX_PROGRESS_EVENTS: Final = 10_000
_MAX_EVENTS: Final = MAX_OUTPUT_BYTES + 3 * MAX_TOOL_CALLS + _MAX_PROGRESS_EVENTS + 1000
"""The largest sequence number: an event for each byte of the heads of both streams, those of the tool calls, and of
progress."""
_Count = Annotated[int, Field(ge=0, le=2**53)]
_Number = Annotated[int | float, Field(ge=-(2**53), le=2**53)]
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
    id: Annotated[str, Field(pattern=APPROVAL_ID)]
    tool: Annotated[str, Field(max_length=300)]
    expires_at: _Time | None = None


class ProgressEvent(_Event):
    """The code reported its progress."""

    type: Literal["progress"]
    done: _Number
    total: _Number | None = None
    text: Annotated[str, Field(max_length=200)] = ""


class ArtifactEvent(_Event):
    """A file that the run produced is stored. These events come shortly before the end."""

    type: Literal["artifact"]
    id: Annotated[str, Field(pattern=r"^[a-z0-9]{1,32}$")]
    name: Annotated[str, Field(min_length=1, max_length=MAX_ARTIFACT_NAME)]
    media_type: Annotated[str, Field(max_length=127, pattern=MEDIA_TYPE)]
    bytes: _Count
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    title: Annotated[str, Field(max_length=MAX_TITLE)] = ""
    preview: Annotated[str, Field(max_length=MAX_PREVIEW)] = ""


class EndedWorkspace(BaseModel):
    """What the run read from its workspace and saved."""

    model_config = ConfigDict(frozen=True, alias_generator=to_camel, populate_by_name=True)

    base: _Count
    version: _Count | None = None
    changed_files: _Count | None = None
    bytes: _Count | None = None
    left_out: _Count | None = None
    reason: Reason = Reason.NONE
    message: Annotated[str, Field(max_length=MAX_MESSAGE_CHARACTERS)] = ""


class SkillEvent(_Event):
    """The code saved a skill. Nothing of it is checked but its size."""

    type: Literal["skill"]
    name: Annotated[str, Field(max_length=64)]
    description: Annotated[str, Field(max_length=1024)]
    code: Annotated[str, Field(max_length=MAX_OUTPUT_BYTES)]
    tools: Annotated[list[Annotated[str, Field(max_length=256)]], Field(max_length=64)] = []
    tags: Annotated[list[Annotated[str, Field(max_length=256)]], Field(max_length=64)] = []


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
    cpu_seconds: Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)] | None = None
    workspace: EndedWorkspace | None = None
    notes: Annotated[list[Note], Field(max_length=MAX_NOTES)] = []


Event = Annotated[
    StatusEvent
    | TextEvent
    | ResultEvent
    | ToolCallEvent
    | ToolResultEvent
    | ApprovalEvent
    | ProgressEvent
    | ArtifactEvent
    | SkillEvent
    | EndEvent,
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
class JobFiles:
    """Access of a job's supervisor, and not of its code, to the files that outlive the run."""

    url: str
    """URL of the broker."""
    token: str = field(repr=False)
    """Grant of the execution's files."""
    workspace: WorkspaceRef | None
    max_artifacts: int
    max_artifact_bytes: int
    """Bytes of all artifacts together."""

    def to_api(self) -> dict[str, Any]:
        """Return the field of the request."""
        fields: dict[str, Any] = {to_camel(name): value for name, value in vars(self).items() if name != "workspace"}
        return fields if self.workspace is None else fields | {"workspace": self.workspace.to_api()}


_OPTIONAL: Final = frozenset({"tools", "files", "owner", "session", "skills", "libraries"})


@dataclass(frozen=True, kw_only=True)
class JobSkill:
    """Code of one version of a skill, and patterns of the tools that it calls."""

    code: str
    tools: list[str]


@dataclass(frozen=True, kw_only=True)
class JobSkills:
    """Skills that a job's code may import."""

    sources: dict[str, JobSkill]
    """By the names of their objects."""
    modules: dict[str, str]
    """Names of the objects by the names of modules."""
    catalog: list[dict[str, Any]]
    """Skills that the code may search, like entries of `tools/list`."""


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
    files: JobFiles | None = None
    """None if nothing of the run is kept."""
    owner: str | None = None
    """Digest of the owner (`mcp_exec_api.files`) that the sandbox serves from now on. None: it is used once."""
    session: bool = False
    """Whether the interpreter stays after the run, for the owner's next job. Needs an owner."""
    skills: JobSkills | None = None
    """None if the code names no skills."""
    libraries: LibraryHints = field(default_factory=dict)
    """Libraries that only other pools of the namespace have, for the error of a failed import."""

    def to_json(self) -> bytes:
        """Return the body of the request. What is not set is left out: an earlier release's supervisor has no owner."""
        body: dict[str, Any] = {to_camel(name): value for name, value in vars(self).items() if name not in _OPTIONAL}
        if self.tools is not None:
            body["tools"] = asdict(self.tools)
        if self.files is not None:
            body["files"] = self.files.to_api()
        if self.owner is not None:
            body["owner"] = self.owner
        if self.session:
            body["session"] = True
        if self.skills is not None:
            body["skills"] = asdict(self.skills)
        if self.libraries:
            body["libraries"] = self.libraries
        return json.dumps(body).encode()
