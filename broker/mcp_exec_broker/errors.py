"""How a call ends that does not end well: what the sandbox is told, as the last line of its answer."""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any

from mcp_types import INVALID_PARAMS

from mcp_exec_broker.suggestions import close_names
from mcp_exec_broker.upstream.errors import Unusable


class Kind(StrEnum):
    """The exception that the code in the sandbox sees."""

    ERROR = "ToolError"
    """The tool itself says that it failed, or the call could never have worked."""
    DENIED = "ToolDenied"
    """The call was not made, because it may not be."""
    TIMEOUT = "ToolTimeout"
    PROTOCOL = "ToolProtocolError"
    """The server could not be spoken with, or answered with an error of the protocol."""


class Reason(StrEnum):
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


class Outcome(StrEnum):
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


class Failure(Exception):
    """A call that failed. `line` is what the sandbox is told; `outcome` what the audit is."""

    def __init__(
        self,
        kind: Kind,
        message: str,
        *,
        tool: str = "",
        server: str = "",
        reason: Reason | None = None,
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
    def outcome(self) -> Outcome:
        """How the call ended."""
        if self.kind is Kind.DENIED:
            return Outcome.CANCELLED if self.reason is Reason.EXECUTION_ENDED else Outcome.DENIED
        if self.kind is Kind.TIMEOUT:
            return Outcome.TIMEOUT
        return Outcome.LOST if self.reason is Reason.CONNECTION_LOST else Outcome.ERROR

    def at(self, *, tool: str, server: str) -> "Failure":
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


def denied(reason: Reason, message: str) -> Failure:
    """The call was not made."""
    return Failure(Kind.DENIED, message, reason=reason)


def wrong(
    reason: Reason, message: str, *, parameters: Sequence[str] | None = None, suggestions: Sequence[str] = ()
) -> Failure:
    """The call could never have worked, or its result is unusable."""
    return Failure(Kind.ERROR, message, reason=reason, parameters=parameters, suggestions=suggestions)


def timed_out(seconds: float) -> Failure:
    """The call took longer than it may."""
    return Failure(Kind.TIMEOUT, f"the call took longer than {seconds:g} s; the server may have done it all the same")


def not_made(seconds: float, *, waited_for: str) -> Failure:
    """The call's time was over before it travelled."""
    return Failure(Kind.TIMEOUT, f"the call was not made: after {seconds:g} s it still waited for {waited_for}")


def unavailable(message: str) -> Failure:
    """The server could not be reached: it has not seen the call."""
    return Failure(Kind.PROTOCOL, message, reason=Reason.SERVER_UNAVAILABLE)


def lost(message: str) -> Failure:
    """The connection broke while the server had the call."""
    return Failure(Kind.PROTOCOL, f"{message}; the server may have done it all the same", reason=Reason.CONNECTION_LOST)


def protocol_error(code: int, message: str, *, parameters: Sequence[str] | None = None) -> Failure:
    """The server answered with an error of JSON-RPC; where it does not take the arguments, it helps to know which."""
    return Failure(Kind.PROTOCOL, message, code=code, parameters=parameters if code == INVALID_PARAMS else None)


def tool_failed(
    message: str, *, parameters: Sequence[str] | None = None, content: Sequence[Any] | None = None
) -> Failure:
    """The tool says that it failed (`isError`), which may be because of its arguments."""
    return Failure(Kind.ERROR, message, parameters=parameters, content=content)


def no_such_tool(name: str, *, server: str, known: Iterable[str]) -> Failure:
    """The server has no such tool that code may see; `known` are those that it has."""
    near = [f"{server}.{each}" for each in close_names(name, known)]
    return Failure(
        Kind.ERROR,
        f"{server} has no tool {name[:200]!r}" + _meant(near),
        server=server,
        reason=Reason.NO_SUCH_TOOL,
        suggestions=near,
    )


def no_such_server(name: str, *, known: Iterable[str]) -> Failure:
    """There is no such ToolServer in the execution's namespace; `known` are those that the execution may use."""
    near = close_names(name, known)
    return Failure(
        Kind.ERROR,
        f"there is no server {name[:200]!r}" + _meant(near),
        reason=Reason.NO_SUCH_SERVER,
        suggestions=near,
    )


def too_large(most: int) -> Failure:
    """A result that is larger than the server's results may be."""
    return wrong(Reason.RESULT_TOO_LARGE, f"the result has more than {most} bytes; ask for less, or page by page")


def unusable(server: str, error: Unusable) -> Failure:
    """A server that can't be used now."""
    # what is wrong with credentials is the platform team's business, and in the ToolServer's status
    why = "its credentials are not there" if error.reason.startswith("Secret") else str(error)
    return unavailable(f"{server} can't be used now: {why}")


def _meant(names: Sequence[str]) -> str:
    return f"; did you mean {' or '.join(names)}?" if names else ""
