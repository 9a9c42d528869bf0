"""What an agent reports while it works on a task."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from mcp_exec_client.events import StreamedEvent

Mode = Literal["direct", "code", "hybrid"]
StepKind = Literal["mode", "search", "describe", "code", "execute", "call", "results", "answer"]


@dataclass(frozen=True, kw_only=True)
class TextDelta:
    """A part of the model's text."""

    text: str


@dataclass(frozen=True, kw_only=True)
class TextDropped:
    """The text since the last step is void: the answer was cut off, and the request is sent again."""

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
    """By kind: the mode and its reason, the query, the code, the execution's name and phase, the tool, the result for
    the model, or the answer."""
    milliseconds: float = 0.0
    failed: bool = False


AgentEvent: TypeAlias = TextDelta | TextDropped | RunEvent | AgentStep
OnEvent: TypeAlias = Callable[[AgentEvent], Awaitable[None]]


async def ignore_event(event: AgentEvent) -> None:
    """Do nothing."""
