"""Errors of tool calls, and the line that reports one to the sandbox."""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Self

from mcp_types import INVALID_PARAMS

from mcp_exec_tools.names import find_close_names
from mcp_exec_tools.text import shorten_line


class ErrorKind(StrEnum):
    """The exception that the code in the sandbox sees."""

    ERROR = "ToolError"
    """The tool reported a failure, or the call could never have worked."""
    DENIED = "ToolDenied"
    """The call was not made because it is not allowed."""
    TIMEOUT = "ToolTimeout"
    PROTOCOL = "ToolProtocolError"
    """The server was unreachable, or answered with a protocol error."""


class ErrorReason(StrEnum):
    """The cause of an error, as one word for programs."""

    NOT_ALLOWED = "NotAllowed"
    """The execution or its pool does not allow the tool."""
    DENIED_BY_POLICY = "DeniedByPolicy"
    NOT_APPROVED = "NotApproved"
    APPROVAL_EXPIRED = "ApprovalExpired"
    APPROVAL_REQUIRED = "ApprovalRequired"
    """A direct call needs an approval, and nothing waits for it: see `approval` of the error."""
    BUDGET_EXCEEDED = "BudgetExceeded"
    RATE_LIMITED = "RateLimited"
    SECRET_FOUND = "SecretFound"  # noqa: S105 - a word, no secret
    PERSONAL_DATA_FOUND = "PersonalDataFound"
    UNKNOWN_TOKEN = "UnknownToken"  # noqa: S105 - a word, no secret
    """The arguments contain a token for personal data that the execution has not received."""
    EXECUTION_ENDED = "ExecutionEnded"
    NO_USER_CREDENTIALS = "NoUserCredentials"
    INVALID_ARGUMENTS = "InvalidArguments"
    NO_SUCH_TOOL = "NoSuchTool"
    NO_SUCH_SERVER = "NoSuchServer"
    RESULT_TOO_LARGE = "ResultTooLarge"
    UNEXPECTED_RESULT = "UnexpectedResult"
    """The tool was called, and its result does not match its output schema or cannot be read."""
    SERVER_UNAVAILABLE = "ServerUnavailable"
    CONNECTION_LOST = "ConnectionLost"
    AUDIT_UNAVAILABLE = "AuditUnavailable"
    """The call was not made because its audit record cannot be written."""


class CallOutcome(StrEnum):
    """The end of a call in the audit log."""

    OK = "ok"
    ERROR = "error"
    DENIED = "denied"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    LOST = "lost"
    """The connection broke during the call, which may have taken effect."""
    UNFINISHED = "unfinished"
    """The broker ended during the call."""


MAX_MESSAGE: int = 4096
"""Characters of a message."""


class ToolCallError(Exception):
    """A failed call: `to_line` is for the sandbox, `outcome` for the audit log."""

    def __init__(
        self,
        kind: ErrorKind,
        message: str,
        *,
        tool: str = "",
        server: str = "",
        reason: ErrorReason | None = None,
        cause: str = "",
        code: int | None = None,
        parameters: Sequence[str] | None = None,
        suggestions: Sequence[str] = (),
        content: Sequence[Any] | None = None,
        approval: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = shorten_line(message, MAX_MESSAGE)
        self.tool = tool
        """SERVER.TOOL."""
        self.server = server
        self.reason = reason
        self.cause = cause
        """Why the server is unavailable: the reason of its ToolServer."""
        self.code = code
        """Code of the JSON-RPC error."""
        self.parameters = None if parameters is None else list(parameters)
        """The valid parameters; required ones end in a star."""
        self.suggestions = list(suggestions)
        self.content = None if content is None else list(content)
        """MCP content blocks as on the wire."""
        self.approval = approval
        """The approval that a direct call needs: tool and arguments as a person should see them, and their digest."""

    @property
    def outcome(self) -> CallOutcome:
        """The outcome for the audit log."""
        if self.kind is ErrorKind.DENIED:
            return CallOutcome.CANCELLED if self.reason is ErrorReason.EXECUTION_ENDED else CallOutcome.DENIED
        if self.kind is ErrorKind.TIMEOUT:
            return CallOutcome.TIMEOUT
        return CallOutcome.LOST if self.reason is ErrorReason.CONNECTION_LOST else CallOutcome.ERROR

    def add_names(self, *, tool: str, server: str) -> Self:
        """Set the names of tool and server if they are missing, and return the error."""
        self.tool, self.server = self.tool or tool, self.server or server
        return self

    def to_line(self) -> dict[str, Any]:
        """Return the last line of the answer, before it is encoded as JSON."""
        line: dict[str, Any] = {
            "type": "error",
            "kind": str(self.kind),
            "tool": self.tool,
            "server": self.server,
            "message": self.message,
            "code": self.code,
            "reason": None if self.reason is None else str(self.reason),
            "suggestions": self.suggestions,
        }
        if self.cause:
            line["cause"] = self.cause
        if self.parameters is not None:
            line["parameters"] = self.parameters
        if self.content is not None:
            line["content"] = self.content
        if self.approval is not None:
            line["approval"] = self.approval
        return line


def build_denial(reason: ErrorReason, message: str) -> ToolCallError:
    """Return the error of a call that was not made because it is not allowed."""
    return ToolCallError(ErrorKind.DENIED, message, reason=reason)


def build_rejection(
    reason: ErrorReason, message: str, *, parameters: Sequence[str] | None = None, suggestions: Sequence[str] = ()
) -> ToolCallError:
    """Return the error of a call that could never have worked, or whose result is unusable."""
    return ToolCallError(ErrorKind.ERROR, message, reason=reason, parameters=parameters, suggestions=suggestions)


def build_timeout(seconds: float) -> ToolCallError:
    """Return the error of a call that exceeded its time limit at the server."""
    return ToolCallError(
        ErrorKind.TIMEOUT, f"the call took longer than {seconds:g} s; the server may have done it all the same"
    )


def build_wait_timeout(seconds: float, *, waited_for: str) -> ToolCallError:
    """Return the error of a call that exceeded its time limit before the broker sent it."""
    return ToolCallError(
        ErrorKind.TIMEOUT, f"the call was not made: after {seconds:g} s it still waited for {waited_for}"
    )


def build_unavailable_error(message: str, *, cause: str = "") -> ToolCallError:
    """Return the error of a call to a server that is unavailable. `cause` is the reason of the ToolServer."""
    return ToolCallError(ErrorKind.PROTOCOL, message, reason=ErrorReason.SERVER_UNAVAILABLE, cause=cause)


def build_unaudited_error() -> ToolCallError:
    """Return the error of a call that was not made because its audit record cannot be written."""
    message = "the call was not made: the broker cannot write its audit record; the platform team finds why in its log"
    return ToolCallError(ErrorKind.PROTOCOL, message, reason=ErrorReason.AUDIT_UNAVAILABLE)


def build_lost_error(message: str) -> ToolCallError:
    """Return the error of a call whose connection broke after the broker sent it."""
    return ToolCallError(
        ErrorKind.PROTOCOL,
        f"{message}; the server may have done it all the same",
        reason=ErrorReason.CONNECTION_LOST,
    )


def build_protocol_error(code: int, message: str, *, parameters: Sequence[str] | None = None) -> ToolCallError:
    """Return the error for a JSON-RPC error; it lists the parameters if the server rejected the arguments."""
    return ToolCallError(
        ErrorKind.PROTOCOL, message, code=code, parameters=parameters if code == INVALID_PARAMS else None
    )


def build_tool_error(
    message: str, *, parameters: Sequence[str] | None = None, content: Sequence[Any] | None = None
) -> ToolCallError:
    """Return the error for a result with `isError`; it lists the parameters because they may be the cause."""
    return ToolCallError(ErrorKind.ERROR, message, parameters=parameters, content=content)


def build_unknown_tool_error(name: str, *, server: str, known: Iterable[str]) -> ToolCallError:
    """Return the error for a tool that the server lacks; `known` are its tools that code may see."""
    suggestions = [f"{server}.{tool}" for tool in find_close_names(name, known)]
    return ToolCallError(
        ErrorKind.ERROR,
        f"{server} has no tool {name[:200]!r}" + _format_suggestions(suggestions),
        server=server,
        reason=ErrorReason.NO_SUCH_TOOL,
        suggestions=suggestions,
    )


def build_unknown_server_error(name: str, *, known: Iterable[str]) -> ToolCallError:
    """Return the error for a ToolServer that the namespace lacks; `known` are those that the execution may use."""
    suggestions = find_close_names(name, known)
    return ToolCallError(
        ErrorKind.ERROR,
        f"there is no server {name[:200]!r}" + _format_suggestions(suggestions),
        reason=ErrorReason.NO_SUCH_SERVER,
        suggestions=suggestions,
    )


def build_size_error(max_bytes: int) -> ToolCallError:
    """Return the error of a call whose result exceeds the server's limit."""
    return build_rejection(
        ErrorReason.RESULT_TOO_LARGE, f"the result has more than {max_bytes} bytes; ask for less, or page by page"
    )


def _format_suggestions(names: Sequence[str]) -> str:
    return f"; did you mean {' or '.join(names)}?" if names else ""
