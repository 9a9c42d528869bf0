"""What goes wrong with a tool call, as exceptions: `ToolError` is any of it, its subclasses say where it went wrong."""

from collections.abc import Mapping, Sequence
from typing import Any

MESSAGE_CHARACTERS = 16_384
LISTED = 50
"""So many parameters and suggestions are kept."""


class ToolError(Exception):
    """A tool call failed. By itself: the tool said so, or the call could not be made as it was written.

    Its subclasses are other ways to fail, so `except ToolError` is for all and `except ToolDenied` for one of them.
    """

    tool: str
    """SERVER.TOOL, as far as it is known."""
    server: str
    """The tool's server."""
    message: str
    """What the tool, its server or the broker said."""
    reason: str | None
    """One word for what happened, such as InvalidArguments or NotApproved."""
    code: int | None
    """The number of a JSON-RPC error."""
    parameters: list[str]
    """All parameters of the tool where it helps; those that must be given end with a star."""
    suggestions: list[str]
    """What may have been meant."""
    content: list[dict[str, Any]]
    """What the tool answered besides text, as MCP content blocks."""

    def __init__(
        self,
        message: str,
        *,
        tool: str = "",
        server: str = "",
        reason: str | None = None,
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
        if self.suggestions:
            text += f"\nDid you mean: {', '.join(self.suggestions)}?"
        if self.parameters:
            text += f"\nParameters of {self.tool} (* = required): {', '.join(self.parameters)}"
        return text


class ToolDenied(ToolError):
    """The call was not allowed: by the execution, a policy, a person, a budget or a scan. `reason` says which."""


class ToolTimeout(ToolError, TimeoutError):
    """The tool took longer than it may. It was told to stop, but may have done its work."""


class ToolProtocolError(ToolError):
    """The server broke the call off with a JSON-RPC error (`code`), or it or the broker could not be reached."""


for _class in (ToolError, ToolDenied, ToolTimeout, ToolProtocolError):
    # Tracebacks name them as the code imports them.
    _class.__module__ = "client"

KINDS: dict[str, type[ToolError]] = {
    each.__name__: each for each in (ToolError, ToolDenied, ToolTimeout, ToolProtocolError)
}


def error_of(answer: Mapping[str, Any], *, tool: str) -> ToolError:
    """The error that the broker answered; what it does not say is left empty."""
    kind = KINDS.get(_text(answer.get("kind")), ToolProtocolError)
    code, content = answer.get("code"), answer.get("content")
    return kind(
        _text(answer.get("message")) or "the call failed, and nothing was said about it",
        tool=_text(answer.get("tool")) or tool,
        server=_text(answer.get("server")),
        reason=_text(answer.get("reason")) or None,
        code=code if isinstance(code, int) else None,
        parameters=_texts(answer.get("parameters")),
        suggestions=_texts(answer.get("suggestions")),
        content=[block for block in content if isinstance(block, dict)] if isinstance(content, list) else (),
    )


def _text(value: object) -> str:
    return value[:MESSAGE_CHARACTERS] if isinstance(value, str) else ""


def _texts(value: object) -> list[str]:
    return [each for each in value[:LISTED] if isinstance(each, str)] if isinstance(value, list) else []
