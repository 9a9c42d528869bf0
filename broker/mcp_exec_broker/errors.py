"""How a call ends that does not end well: what the sandbox is told, as the last line of its answer."""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any

from mcp_types import INVALID_PARAMS

from mcp_exec_broker.suggestions import close_names
from mcp_exec_broker.upstream.errors import ServerUnavailable


class ErrorKind(StrEnum):
    """The exception that the code in the sandbox sees."""

    ERROR = "ToolError"
    """The tool itself says that it failed, or the call could never have worked."""
    DENIED = "ToolDenied"
    """The call was not made, because it may not be."""
    TIMEOUT = "ToolTimeout"
    PROTOCOL = "ToolProtocolError"
    """The server could not be spoken with, or answered with an error of the protocol."""


class ErrorReason(StrEnum):
    """Why, in one word for programs."""

    NOT_ALLOWED = "NotAllowed"
    """Neither the execution nor its pool allows the tool."""
    DENIED_BY_POLICY = "DeniedByPolicy"
    NOT_APPROVED = "NotApproved"
    APPROVAL_EXPIRED = "ApprovalExpired"
    BUDGET_EXCEEDED = "BudgetExceeded"
    RATE_LIMITED = "RateLimited"
    SECRET_FOUND = "SecretFound"  # noqa: S105 - a word, no secret
    PERSONAL_DATA_FOUND = "PersonalDataFound"
    EXECUTION_ENDED = "ExecutionEnded"
    NO_USER_CREDENTIALS = "NoUserCredentials"
    INVALID_ARGUMENTS = "InvalidArguments"
    NO_SUCH_TOOL = "NoSuchTool"
    NO_SUCH_SERVER = "NoSuchServer"
    RESULT_TOO_LARGE = "ResultTooLarge"
    UNEXPECTED_RESULT = "UnexpectedResult"
    """The tool was called, and its result is not what it says that it returns."""
    SERVER_UNAVAILABLE = "ServerUnavailable"
    CONNECTION_LOST = "ConnectionLost"


class CallOutcome(StrEnum):
    """How a call ended, as the audit has it."""

    OK = "ok"
    ERROR = "error"
    DENIED = "denied"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    LOST = "lost"
    """The connection broke while the server had the call: it may have done it."""
    UNFINISHED = "unfinished"
    """The broker ended while the call was under way."""


MAX_MESSAGE: int = 4096
"""Characters of a message."""


class ToolCallError(Exception):
    """A call that failed. `line` is what the sandbox is told; `outcome` what the audit is."""

    def __init__(
        self,
        kind: ErrorKind,
        message: str,
        *,
        tool: str = "",
        server: str = "",
        reason: ErrorReason | None = None,
        code: int | None = None,
        parameters: Sequence[str] | None = None,
        suggestions: Sequence[str] = (),
        content: Sequence[Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message if len(message) <= MAX_MESSAGE else message[: MAX_MESSAGE - 1] + "…"
        self.tool = tool
        """SERVER.TOOL."""
        self.server = server
        self.reason = reason
        self.code = code
        """The JSON-RPC error's code."""
        self.parameters = None if parameters is None else list(parameters)
        """The valid ones, required ones with a star."""
        self.suggestions = list(suggestions)
        self.content = None if content is None else list(content)
        """MCP content blocks as on the wire."""

    @property
    def outcome(self) -> CallOutcome:
        """How the call ended."""
        if self.kind is ErrorKind.DENIED:
            return CallOutcome.CANCELLED if self.reason is ErrorReason.EXECUTION_ENDED else CallOutcome.DENIED
        if self.kind is ErrorKind.TIMEOUT:
            return CallOutcome.TIMEOUT
        return CallOutcome.LOST if self.reason is ErrorReason.CONNECTION_LOST else CallOutcome.ERROR

    def at(self, *, tool: str, server: str) -> "ToolCallError":
        """The same, with the names of tool and server where it has none yet."""
        self.tool, self.server = self.tool or tool, self.server or server
        return self

    def line(self) -> dict[str, Any]:
        """The last line of the answer, before it is JSON."""
        found: dict[str, Any] = {
            "type": "error",
            "kind": str(self.kind),
            "tool": self.tool,
            "server": self.server,
            "message": self.message,
            "code": self.code,
            "reason": None if self.reason is None else str(self.reason),
            "suggestions": self.suggestions,
        }
        if self.parameters is not None:
            found["parameters"] = self.parameters
        if self.content is not None:
            found["content"] = self.content
        return found


def build_denial(reason: ErrorReason, message: str) -> ToolCallError:
    """The call was not made."""
    return ToolCallError(ErrorKind.DENIED, message, reason=reason)


def build_rejection(
    reason: ErrorReason, message: str, *, parameters: Sequence[str] | None = None, suggestions: Sequence[str] = ()
) -> ToolCallError:
    """The call could never have worked, or its result is unusable."""
    return ToolCallError(ErrorKind.ERROR, message, reason=reason, parameters=parameters, suggestions=suggestions)


def build_timeout(seconds: float) -> ToolCallError:
    """The call took longer than it may."""
    return ToolCallError(
        ErrorKind.TIMEOUT, f"the call took longer than {seconds:g} s; the server may have done it all the same"
    )


def build_wait_timeout(seconds: float, *, waited_for: str) -> ToolCallError:
    """The call's time was over before it travelled."""
    return ToolCallError(
        ErrorKind.TIMEOUT, f"the call was not made: after {seconds:g} s it still waited for {waited_for}"
    )


def build_unavailable_error(message: str) -> ToolCallError:
    """The server could not be reached: it has not seen the call."""
    return ToolCallError(ErrorKind.PROTOCOL, message, reason=ErrorReason.SERVER_UNAVAILABLE)


def build_lost_error(message: str) -> ToolCallError:
    """The connection broke while the server had the call."""
    return ToolCallError(
        ErrorKind.PROTOCOL, f"{message}; the server may have done it all the same", reason=ErrorReason.CONNECTION_LOST
    )


def build_protocol_error(code: int, message: str, *, parameters: Sequence[str] | None = None) -> ToolCallError:
    """The server answered with an error of JSON-RPC; where it does not take the arguments, it helps to know which."""
    return ToolCallError(
        ErrorKind.PROTOCOL, message, code=code, parameters=parameters if code == INVALID_PARAMS else None
    )


def build_tool_error(
    message: str, *, parameters: Sequence[str] | None = None, content: Sequence[Any] | None = None
) -> ToolCallError:
    """The tool says that it failed (`isError`), which may be because of its arguments."""
    return ToolCallError(ErrorKind.ERROR, message, parameters=parameters, content=content)


def build_unknown_tool_error(name: str, *, server: str, known: Iterable[str]) -> ToolCallError:
    """The server has no such tool that code may see; `known` are those that it has."""
    near = [f"{server}.{each}" for each in close_names(name, known)]
    return ToolCallError(
        ErrorKind.ERROR,
        f"{server} has no tool {name[:200]!r}" + _meant(near),
        server=server,
        reason=ErrorReason.NO_SUCH_TOOL,
        suggestions=near,
    )


def build_unknown_server_error(name: str, *, known: Iterable[str]) -> ToolCallError:
    """There is no such ToolServer in the execution's namespace; `known` are those that the execution may use."""
    near = close_names(name, known)
    return ToolCallError(
        ErrorKind.ERROR,
        f"there is no server {name[:200]!r}" + _meant(near),
        reason=ErrorReason.NO_SUCH_SERVER,
        suggestions=near,
    )


def build_size_error(most: int) -> ToolCallError:
    """A result that is larger than the server's results may be."""
    return build_rejection(
        ErrorReason.RESULT_TOO_LARGE, f"the result has more than {most} bytes; ask for less, or page by page"
    )


def build_server_error(server: str, error: ServerUnavailable) -> ToolCallError:
    """A server that can't be used now."""
    # what is wrong with credentials is the platform team's business, and in the ToolServer's status
    why = "its credentials are not there" if error.reason.startswith("Secret") else str(error)
    return build_unavailable_error(f"{server} can't be used now: {why}")


def _meant(names: Sequence[str]) -> str:
    return f"; did you mean {' or '.join(names)}?" if names else ""
