"""Limits of a task, what it has used of them, and prices of models."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from fnmatch import fnmatchcase
from time import perf_counter
from typing import Final

from mcp_exec_client.agent.outcomes import AgentError, LimitReached
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
    answer_tokens: int = 32_000
    """Maximum of tokens of one answer. A model that thinks uses a part of them before it answers."""
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
