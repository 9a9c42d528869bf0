"""Errors of tool calls: `ToolError` is any of them, its subclasses name the part that failed."""

from collections.abc import Mapping, Sequence
from typing import Any

from mcp_exec_tools.text import shorten

MESSAGE_CHARACTERS = 16_384
MAX_LISTED = 50
"""Maximum number of parameters and of suggestions."""


class ToolError(Exception):
    """A tool call failed. The class itself means that the tool reported an error or that the call was invalid.

    Its subclasses are the other kinds of failure: `except ToolError` catches all, `except ToolDenied` one of them.
    """

    tool: str
    """SERVER.TOOL, or the part of it that is known."""
    server: str
    """The tool's server."""
    message: str
    """Message of the tool, its server or the broker."""
    reason: str | None
    """Reason in one word, such as InvalidArguments or NotApproved."""
    cause: str | None
    """Why a server is unavailable, in one word, such as NameNotResolved or CommandExited."""
    code: int | None
    """Code of a JSON-RPC error."""
    parameters: list[str]
    """All parameters of the tool, if the arguments were wrong. Required ones end with a star."""
    suggestions: list[str]
    """Names that may have been meant."""
    content: list[dict[str, Any]]
    """Content of the tool's answer besides text, as MCP content blocks."""

    def __init__(
        self,
        message: str,
        *,
        tool: str = "",
        server: str = "",
        reason: str | None = None,
        cause: str | None = None,
        code: int | None = None,
        parameters: Sequence[str] = (),
        suggestions: Sequence[str] = (),
        content: Sequence[dict[str, Any]] = (),
    ) -> None:
        super().__init__(message)
        self.message = message
        self.tool = tool
        self.server = server or tool.partition(".")[0]
        self.reason = reason
        self.cause = cause
        self.code = code
        self.parameters = list(parameters)
        self.suggestions = list(suggestions)
        self.content = list(content)

    def __str__(self) -> str:
        text = f"{self.tool}: {self.message}" if self.tool else self.message
        if self.code is not None:
            text += f" (JSON-RPC error {self.code})"
        elif self.reason is not None:
            text += f" ({self.reason})"
        if self.suggestions and "did you mean" not in self.message:
            text += f"\nDid you mean: {', '.join(self.suggestions)}?"
        if self.parameters:
            text += f"\nParameters of {self.tool} (* = required): {', '.join(self.parameters)}"
        return text


class ToolDenied(ToolError):
    """The execution, a policy, a person, a quota or a scan denied the call. `reason` names which."""


class ToolTimeout(ToolError, TimeoutError):
    """The tool exceeded its time limit. The call was cancelled, but the tool may have done its work."""


class ToolProtocolError(ToolError):
    """The server answered a JSON-RPC error (`code`), or the server or the broker could not be reached."""


for _class in (ToolError, ToolDenied, ToolTimeout, ToolProtocolError):
    # Tracebacks show the module that the code imports them from.
    _class.__module__ = "client"

KINDS: dict[str, type[ToolError]] = {
    kind.__name__: kind for kind in (ToolError, ToolDenied, ToolTimeout, ToolProtocolError)
}


def parse_error(answer: Mapping[str, Any], *, tool: str) -> ToolError:
    """Return the error in a broker's answer. Missing fields are empty."""
    kind = KINDS.get(_parse_text(answer.get("kind")), ToolProtocolError)
    code, content = answer.get("code"), answer.get("content")
    return kind(
        _parse_text(answer.get("message")) or "the call failed without a message",
        tool=_parse_text(answer.get("tool")) or tool,
        server=_parse_text(answer.get("server")),
        reason=_parse_text(answer.get("reason")) or None,
        cause=_parse_text(answer.get("cause")) or None,
        code=code if isinstance(code, int) else None,
        parameters=_parse_texts(answer.get("parameters")),
        suggestions=_parse_texts(answer.get("suggestions")),
        content=[block for block in content if isinstance(block, dict)] if isinstance(content, list) else (),
    )


def _parse_text(value: object) -> str:
    return shorten(value, MESSAGE_CHARACTERS) if isinstance(value, str) else ""


def _parse_texts(value: object) -> list[str]:
    return [text for text in value[:MAX_LISTED] if isinstance(text, str)] if isinstance(value, list) else []
