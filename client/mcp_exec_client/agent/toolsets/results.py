"""Results as a model receives them."""

import json
from dataclasses import dataclass
from typing import Any, Final

from mcp_exec_client.types import Execution

MAX_RESULT_CHARACTERS: Final = 20_000
"""Most characters of one result that the model receives. A longer result is cut, with the advice to print less."""
_MAX_ARTIFACTS: Final = 20
"""Artifacts of one execution that the model receives by name and preview."""


class InvalidToolUse(Exception):
    """A tool use of the model that is not possible. The model receives the text and may try again."""


@dataclass(frozen=True, kw_only=True)
class ToolOutcome:
    """Result of one tool use."""

    text: str
    failed: bool = False
    """Whether code or call failed."""
    refused: bool = False
    """Whether the tool use was invalid, so that nothing ran."""

    def to_block(self, use_id: str) -> dict[str, Any]:
        """Return the content block for the model."""
        block: dict[str, Any] = {"type": "tool_result", "tool_use_id": use_id, "content": self.text}
        return block | ({"is_error": True} if self.refused else {})


def describe_execution(execution: Execution) -> str:
    """Return the outcome of a block of code as the model receives it: without empty fields, but with any result."""
    error = execution.error.to_api() if execution.error else None
    fields: dict[str, Any] = {"phase": execution.phase, "reason": execution.reason, "error": error}
    if output := execution.output:
        fields |= {name: getattr(output, name) for name in ("stdout", "stderr", "truncated")}
    fields = {name: value for name, value in fields.items() if value}
    if execution.output is not None and execution.output.result is not None:
        fields["result"] = execution.output.result
    if execution.notes:
        fields["notes"] = [str(note) for note in execution.notes]
    if execution.artifacts:
        fields["artifacts"] = [
            {"name": each.name, "mediaType": each.media_type, "bytes": each.bytes, "preview": each.preview or ""}
            for each in execution.artifacts[:_MAX_ARTIFACTS]
        ]
    if (skills := execution.skills) and (skills.saved or skills.refused):
        fields["skills"] = {"saved": skills.saved, "refused": skills.refused}
    return json.dumps(fields, ensure_ascii=False)


def check_names(arguments: dict[str, Any], *names: str) -> None:
    """Raise InvalidToolUse if there are other arguments than these."""
    unknown = sorted(set(arguments) - set(names))
    if unknown:
        raise InvalidToolUse(f"unknown: {', '.join(unknown)[:200]}; allowed are {', '.join(names)}")


def cut(text: str, limit: int = MAX_RESULT_CHARACTERS) -> str:
    """Return the text, or its beginning and how to get less."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]}... ({len(text)} characters in all; ask for less, or print less)"
