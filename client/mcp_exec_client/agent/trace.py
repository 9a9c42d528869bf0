"""What an agent did: the steps of a task, and the usage of a conversation."""

from dataclasses import asdict, dataclass, field
from decimal import Decimal
from typing import Any

from mcp_exec_client.agent.events import AgentStep, Mode
from mcp_exec_client.agent.providers.model import TokenCounts
from mcp_exec_tools.prompt import VERSION


@dataclass(kw_only=True)
class RunTrace:
    """The steps of a task, in order, and their cost."""

    task: str
    model: str
    prompt_version: str = VERSION
    mode: Mode = "code"
    """Mode in which the task ran."""
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
