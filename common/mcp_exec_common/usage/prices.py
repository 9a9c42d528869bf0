"""Prices of models and sandboxes, by which usage becomes money."""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Annotated, Final, Protocol

from pydantic import Field

from mcp_exec_api.meta import Model

_MILLION: Final = 1_000_000
_SECONDS_PER_HOUR: Final = 3600

Amount = Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False)]
"""Money in the table's currency."""


class Tokens(Protocol):
    """Numbers of tokens by kind."""

    @property
    def input_tokens(self) -> int:
        """Tokens that were read, without those from and for the cache."""

    @property
    def output_tokens(self) -> int:
        """Tokens that were written."""

    @property
    def cache_read_tokens(self) -> int:
        """Tokens that came from the provider's cache."""

    @property
    def cache_write_tokens(self) -> int:
        """Tokens that were written to the provider's cache."""


class ModelPrice(Model):
    """Price of a million tokens of each kind, of the models whose names match a pattern."""

    model: Annotated[str, Field(min_length=1, max_length=128)]
    """Name of a model, or a pattern such as `claude-sonnet-*`."""
    input: Amount
    """Tokens that were read, without those from and for the cache."""
    output: Amount
    """Tokens that were written."""
    cache_read: Amount
    """Tokens that came from the provider's cache."""
    cache_write: Amount
    """Tokens that were written to the provider's cache."""

    def calculate(self, tokens: Tokens) -> float:
        """Return the price of these tokens."""
        total = (
            self.input * tokens.input_tokens
            + self.output * tokens.output_tokens
            + self.cache_read * tokens.cache_read_tokens
            + self.cache_write * tokens.cache_write_tokens
        )
        return total / _MILLION


class PriceTable(Model):
    """Prices in one currency. What has no price costs an unknown amount, not nothing."""

    currency: Annotated[str, Field(pattern=r"^[A-Z]{3}$")] = "USD"
    """Currency by its code of ISO 4217."""
    models: Annotated[list[ModelPrice], Field(max_length=100)] = []
    """Prices of models. The first one whose pattern matches a model's name counts."""
    sandbox_hour: Amount = 0.0
    """Price of one sandbox for an hour; 0 means that it is unknown."""

    def price_tokens(self, model: str, tokens: Tokens) -> float | None:
        """Return the price of a model's tokens; None if the model has none."""
        price = next((each for each in self.models if fnmatchcase(model, each.model)), None)
        return None if price is None else price.calculate(tokens)

    def price_sandbox(self, seconds: float) -> float | None:
        """Return the price of a sandbox for these seconds; None if it is unknown."""
        return None if self.sandbox_hour == 0 else self.sandbox_hour * seconds / _SECONDS_PER_HOUR


def add_prices(prices: Iterable[float | None]) -> float | None:
    """Return the sum; None if one of them is unknown."""
    known = list(prices)
    return None if None in known else sum(each for each in known if each is not None)
