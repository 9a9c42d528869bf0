"""Outcomes of a task: events, results as a model receives them, the trace, the errors."""

import json
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from typing import Any, Final, Literal, TypeAlias

from mcp_exec_client.agent.providers.model import TokenCounts
from mcp_exec_client.events import StreamedEvent
from mcp_exec_client.types import Execution
from mcp_exec_tools.prompt import VERSION

LimitName = Literal["turns", "tokens", "money", "time", "failures"]
Mode = Literal["direct", "code", "hybrid"]
StepKind = Literal["mode", "model", "search", "describe", "code", "execute", "call", "results", "answer"]


class AgentError(Exception):
    """Failure of a task. The text says why."""


class ModelError(AgentError):
    """A request that the model's API did not answer completely."""

    def __init__(self, message: str, *, retryable: bool = False) -> None:
        super().__init__(message)
        self.retryable = retryable
        """Whether the same request may succeed: the answer was cut off, or the API was overloaded in the middle."""


class ToolsRefused(ModelError):
    """A request with tools to a model that cannot use them. The same conversation is possible without tools."""


class LimitReached(AgentError):
    """A task that reached one of its limits; `limit` says which."""

    def __init__(self, limit: LimitName, message: str) -> None:
        super().__init__(message)
        self.limit = limit


@dataclass(frozen=True, kw_only=True)
class TextDelta:
    """A part of the model's text."""

    text: str


@dataclass(frozen=True, kw_only=True)
class TextDropped:
    """The text since the last step is void: the answer was cut off, and the request is sent again."""

    reason: str


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """A model has not answered for some time."""

    reason: str


@dataclass(frozen=True, kw_only=True)
class RunEvent:
    """An event of running code: output, progress, a tool call, an approval."""

    execution: str
    event: StreamedEvent


@dataclass(frozen=True, kw_only=True)
class AgentStep:
    """One step of the agent."""

    kind: StepKind
    text: str
    """By kind: the mode and its reason, the model that goes on or what it does not take, the query, the code, the
    execution's name and phase, the tool, the result for the model, or the answer."""
    milliseconds: float = 0.0
    failed: bool = False


AgentEvent: TypeAlias = TextDelta | TextDropped | Waiting | RunEvent | AgentStep
OnEvent: TypeAlias = Callable[[AgentEvent], Awaitable[None]]


async def ignore_event(event: AgentEvent) -> None:
    """Do nothing."""


@dataclass(kw_only=True)
class RunTrace:
    """The steps of a task, in order, and their cost."""

    task: str
    model: str
    prompt_version: str = VERSION
    mode: Mode = "code"
    """Mode of the task."""
    reason: str = ""
    """Why it ran in this mode."""
    steps: list[AgentStep] = field(default_factory=list)
    turns: int = 0
    """Answers of the model."""
    tokens: TokenCounts = field(default_factory=TokenCounts)
    definition_tokens: int = 0
    """Estimated tokens of the tool definitions in all requests; they are part of the input."""
    milliseconds: float = 0.0
    succeeded: bool = False
    cost: Decimal | None = None
    """Money for the model; None without a price."""

    def to_json(self) -> dict[str, Any]:
        """Return the trace as JSON."""
        tokens = {
            f"{name}_tokens": getattr(self.tokens, name) for name in ("input", "output", "cache_read", "cache_write")
        }
        fields = asdict(self)
        del fields["tokens"]
        cost = None if self.cost is None else str(self.cost)
        return fields | tokens | {"counted": self.tokens.counted, "cost": cost}


@dataclass(kw_only=True)
class ConversationUsage:
    """Totals of a conversation, failed tasks included."""

    tasks: int = 0
    turns: int = 0
    tokens: TokenCounts = field(default_factory=TokenCounts)
    definition_tokens: int = 0
    """Estimated tokens of tool definitions, part of the input."""
    cost: Decimal | None = None
    milliseconds: float = 0.0

    def add(self, trace: RunTrace) -> None:
        """Add a task."""
        self.tasks += 1
        self.turns += trace.turns
        self.tokens += trace.tokens
        self.definition_tokens += trace.definition_tokens
        self.milliseconds += trace.milliseconds
        if trace.cost is not None:
            self.cost = (self.cost or Decimal(0)) + trace.cost


@dataclass(frozen=True, kw_only=True)
class AgentAnswer:
    """Answer to a task."""

    text: str
    trace: RunTrace

    def __str__(self) -> str:
        return self.text


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
    problem: str = ""
    """Why it failed, in one line."""

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
