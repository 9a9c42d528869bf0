"""Outcomes of a task: events, approvals, limits and prices, results as a model receives them, the trace, the errors."""

import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from fnmatch import fnmatchcase
from time import perf_counter
from typing import Any, Final, Literal, TypeAlias

from mcp_exec_client.agent.providers.model import TokenCounts
from mcp_exec_client.client import AsyncClient
from mcp_exec_client.errors import McpExecError
from mcp_exec_client.events import StreamedEvent
from mcp_exec_client.types import Execution
from mcp_exec_tools.prompt import VERSION

LimitName = Literal["turns", "tokens", "money", "time", "failures"]
Mode = Literal["direct", "code", "hybrid"]
StepKind = Literal["mode", "model", "search", "describe", "code", "execute", "call", "results", "answer"]
log = logging.getLogger(__name__)
FAILED_COMMENT: Final = "the application could not decide"
ApprovalAnswer: TypeAlias = bool | str | None
"""True approves and False denies the call; a text denies it with this comment; None leaves it to others."""
_MILLION: Final = 1_000_000


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


@dataclass(frozen=True, kw_only=True)
class ApprovalQuestion:
    """A tool call that waits for a person's decision."""

    tool: str
    """Tool as SERVER.TOOL."""
    arguments: str
    """Arguments as JSON, with secrets and personal data redacted; each long value is cut."""
    arguments_complete: bool = True
    """Whether `arguments` has all of them."""
    execution: str | None = None
    """Execution whose code made the call; None for a direct call."""


OnApproval: TypeAlias = Callable[[ApprovalQuestion], Awaitable[ApprovalAnswer]]


async def ask_application(on_approval: OnApproval, question: ApprovalQuestion) -> ApprovalAnswer:
    """Return the application's answer. A failure of the application denies the call."""
    try:
        return await on_approval(question)
    except Exception:
        log.exception("the application failed to decide about a call of %s", question.tool)
        return FAILED_COMMENT


async def decide_approval(client: AsyncClient, execution: str, approval: str, on_approval: OnApproval) -> None:
    """Let the application decide about a call of running code. A decision that comes too late is ignored."""
    try:
        found = next((each for each in await client.approvals(execution) if each.id == approval), None)
        if found is None:
            return
        question = ApprovalQuestion(
            tool=found.tool,
            arguments=found.arguments,
            arguments_complete=found.arguments_complete,
            execution=execution,
        )
        answer = await ask_application(on_approval, question)
        digest = found.arguments_digest or None
        if answer is True:
            await client.approve(execution, approval, arguments_digest=digest)
        elif answer is not None:
            comment = answer if isinstance(answer, str) else None
            await client.deny(execution, approval, comment=comment, arguments_digest=digest)
    except McpExecError as error:
        log.warning("approval %s of %s was not decided: %s", approval, execution, error)


@dataclass(frozen=True, kw_only=True)
class AgentLimits:
    """Limits of one task. A task that reaches one of them fails with LimitReached."""

    turns: int = 12
    """Most answers of the model."""
    tokens: int | None = 1_000_000
    """Most tokens of all requests and answers, cached ones included; None is no limit."""
    money: Decimal | None = None
    """Most money for the model, in the currency of the prices; needs a price of the model."""
    seconds: float = 900.0
    """Longest time, the time for approvals included."""
    answer_tokens: int = 32_000
    """Most tokens of one answer, of which a model that thinks uses some before it answers."""
    history_tokens: int = 150_000
    """Most tokens of earlier tasks, as an estimate. After that a new conversation begins with their texts."""
    failures: int = 3
    """Failed blocks of code in a row until the model gets no further attempt. One that still writes code is stopped."""
    cut_answers: int = 2
    """Most repetitions of a request whose answer was cut off."""

    def __post_init__(self) -> None:
        for name in ("turns", "tokens", "money", "seconds", "answer_tokens", "failures"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ValueError(f"{name} is {value}; it must be more than 0")


@dataclass(frozen=True, kw_only=True)
class TokenPrice:
    """Prices of a model for a million tokens of each kind."""

    input: Decimal
    output: Decimal
    cache_read: Decimal
    cache_write: Decimal

    def calculate(self, tokens: TokenCounts) -> Decimal:
        """Return the price of these tokens."""
        total = (
            self.input * tokens.input
            + self.output * tokens.output
            + self.cache_read * tokens.cache_read
            + self.cache_write * tokens.cache_write
        )
        return total / _MILLION


def find_price(prices: Mapping[str, TokenPrice], model: str) -> TokenPrice | None:
    """Return the price of a model by the first pattern that its name matches, such as `claude-sonnet-*`."""
    return next((price for pattern, price in prices.items() if fnmatchcase(model, pattern)), None)


@dataclass(kw_only=True)
class TaskBudget:
    """Use of a task's limits so far."""

    limits: AgentLimits
    prices: Mapping[str, TokenPrice]
    model: str
    """Model that is asked first."""
    turns: int = 0
    tokens: TokenCounts = field(default_factory=TokenCounts)
    activity: str = "for the preparation"
    """What takes the time now."""
    since: float = field(default_factory=perf_counter)
    """When it began."""
    cost: Decimal | None = field(init=False)
    """Money for the models so far; None without a price of each."""

    def __post_init__(self) -> None:
        self.cost = Decimal() if find_price(self.prices, self.model) else None
        self._check_price(self.model)

    def begin(self, activity: str) -> None:
        """Note what takes the time from now on."""
        self.activity, self.since = activity, perf_counter()

    def describe_time(self) -> str:
        """Return how the time of the task was used up."""
        last = f"the last {perf_counter() - self.since:.3g} of them {self.activity}"
        return f"the task took {self.limits.seconds:g} seconds, {last}; {_allow('seconds')}"

    def begin_turn(self) -> int:
        """Count a turn and return the most tokens of its answer. Raises LimitReached."""
        if self.turns >= self.limits.turns:
            raise LimitReached("turns", f"the model gave no answer within {self.limits.turns} turns; {_allow('turns')}")
        left = self.limits.answer_tokens
        if self.limits.tokens is not None:
            left = min(left, self.limits.tokens - self.tokens.total)
            if left <= 0:
                used = f"the task used {self.tokens.total} of {self.limits.tokens} tokens"
                raise LimitReached("tokens", f"{used}; {_allow('tokens')}")
        if self.limits.money is not None and (self.cost or 0) >= self.limits.money:
            raise LimitReached("money", f"the task cost {self.cost:f} of {self.limits.money:f}; {_allow('money')}")
        self.turns += 1
        return left

    def add(self, tokens: TokenCounts, *, model: str) -> None:
        """Add the tokens of a turn, at the price of the model that answered. Raises AgentError."""
        self.tokens += tokens
        price = find_price(self.prices, model)
        self.cost = None if price is None or self.cost is None else self.cost + price.calculate(tokens)
        self._check_price(model)

    def _check_price(self, model: str) -> None:
        if self.limits.money is not None and self.cost is None:
            raise AgentError(f"a limit of money needs a price of model {model}: give prices={{MODEL: TokenPrice(...)}}")


def _allow(limit: str) -> str:
    return f"--max-{limit}, or AgentLimits({limit}=...), allows more"


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
