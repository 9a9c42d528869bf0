"""Limits of a task."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from fnmatch import fnmatchcase
from typing import Final

from mcp_exec_client.agent.errors import AgentError, LimitReached
from mcp_exec_client.agent.providers.model import TokenCounts

_MILLION: Final = 1_000_000


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
    answer_tokens: int = 8192
    """Most tokens of one answer."""
    history_tokens: int = 150_000
    """Most tokens of earlier tasks, as an estimate; the oldest ones are dropped."""
    failures: int = 3
    """Failed blocks of code in a row, after which the model gets no further attempt."""
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
    """What a task has used of its limits."""

    limits: AgentLimits
    price: TokenPrice | None
    turns: int = 0
    tokens: TokenCounts = field(default_factory=TokenCounts)

    def __post_init__(self) -> None:
        if self.limits.money is not None and self.price is None:
            raise AgentError("a limit of money needs a price of the model: give prices={MODEL: TokenPrice(...)}")

    @property
    def cost(self) -> Decimal | None:
        """Money for the model so far; None without a price."""
        return self.price.calculate(self.tokens) if self.price else None

    def begin_turn(self) -> int:
        """Count a turn and return the most tokens of its answer. Raises LimitReached."""
        if self.turns >= self.limits.turns:
            raise LimitReached("turns", f"the model gave no answer within {self.limits.turns} turns")
        left = self.limits.answer_tokens
        if self.limits.tokens is not None:
            left = min(left, self.limits.tokens - self.tokens.total)
            if left <= 0:
                raise LimitReached("tokens", f"the task used {self.tokens.total} of {self.limits.tokens} tokens")
        if self.limits.money is not None and (self.cost or 0) >= self.limits.money:
            raise LimitReached("money", f"the task cost {self.cost:f} of {self.limits.money:f}")
        self.turns += 1
        return left

    def add(self, tokens: TokenCounts) -> None:
        """Add the tokens of a turn."""
        self.tokens += tokens
