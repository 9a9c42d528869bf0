"""Tools, and audit records of their calls."""

from typing import Annotated, Any

from pydantic import ConfigDict, Field

from mcp_exec_api.meta import MicroTime, Model, OpenEnum


class CallSource(OpenEnum):
    """Sender of a tool call."""

    CODE = "code"
    DIRECT = "direct"


class FoundTool(Model):
    """A tool that matches a search, in the requested detail."""

    model_config = ConfigDict(alias_generator=None)

    name: str
    """Name of the function in code."""
    server: str
    """Name of the server."""
    description: str | None = None
    """Description that the server gives."""
    import_line: Annotated[str | None, Field(alias="import")] = None
    """Statement that imports the tool, in the requested language."""
    signature: str | None = None
    """The call in that language, with the parameters in their positional order."""
    input_schema: dict[str, Any] | None = None
    """JSON Schema of the arguments."""
    output_schema: dict[str, Any] | None = None
    """JSON Schema of the structured result, if known."""


class ServerTool(Model):
    """A tool as its server lists it."""

    name: str
    """Name at the server."""
    description: str
    """Description that the server gives."""
    input_schema: dict[str, Any]
    """JSON Schema of the arguments."""
    output_schema: dict[str, Any] | None = None
    """JSON Schema of the structured content."""
    annotations: dict[str, Any] | None = None
    """Hints such as `readOnlyHint`."""
    inferred: bool = False
    """Whether the output schema is inferred from earlier results."""


class ServerTools(Model):
    """The tools of one server."""

    server: str
    """Name of the server."""
    tools: list[ServerTool]
    """Tools, ordered by name."""


class ToolCallRecord(Model):
    """Audit record of a tool call, as the broker wrote it. Calls in progress have no end yet."""

    id: str
    """Id of the call, unique among all calls."""
    at: MicroTime
    """Time when the broker received the call."""
    namespace: str
    """Namespace of the call."""
    source: CallSource = CallSource.CODE
    """`code` for a call of an execution, `direct` for a call of a caller at `/mcp`."""
    execution: str = ""
    """Name of the execution; empty for a direct call."""
    uid: str = ""
    """UID of the execution; empty for a direct call."""
    pool: str = ""
    """Pool of the execution."""
    caller: str | None = None
    """Caller, as a label value."""
    user: str | None = None
    """User on whose behalf the call was made."""
    conversation: str | None = None
    """Conversation of a direct call."""
    server: str
    """Name of the ToolServer."""
    tool: str
    """Name of the tool at the server."""
    digest: str = ""
    """SHA-256 of the arguments as the code sent them."""
    arguments: str = ""
    """Arguments as JSON, redacted and cut."""
    decision: str = ""
    """Allow, Deny or Approve."""
    reason: str = ""
    """Explanation of the decision."""
    approval: str | None = None
    """Id of the approval, if the call needed one."""
    approved_by: str | None = None
    """Who decided on the approval."""
    ended_at: MicroTime | None = None
    """Time of the end."""
    outcome: str | None = None
    """ok, error, denied, timeout, cancelled, lost or unfinished."""
    error: str = ""
    """Message of the failure."""
    duration_ms: float | None = None
    """Duration in milliseconds, with waits for approvals."""
    bytes_in: int = 0
    """Bytes of the result."""
    bytes_out: int = 0
    """Bytes of the arguments."""
    calls: int = 1
    """Number of calls: a record of denials can stand for several."""


class CallList(Model):
    """One page of audit records of tool calls."""

    items: list[ToolCallRecord]
    """Records, newest first."""
    next: str | None
    """The `cursor` of the next page; null on the last page."""
