"""Prices of models and sandboxes, and the money that tokens and sandboxes cost by them."""

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Final, Protocol, Self

from pydantic import Field, model_validator

from mcp_exec_api.meta import Model

_MILLION: Final = 1_000_000
_SECONDS_PER_HOUR: Final = 3600
_ROUNDING_SECONDS: Final = 0.001
"""How far the sums of seconds by pool may be from the sum of all."""

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


class PoolPrice(Model):
    """Price of the sandboxes of pools whose names match a pattern."""

    pool: Annotated[str, Field(min_length=1, max_length=63)]
    """Name of a pool, or a pattern such as `gpu-*`."""
    sandbox_hour: Amount
    """Price of one of its sandboxes for an hour."""


class PriceTable(Model):
    """Prices in one currency. What has no price costs an unknown amount, not nothing."""

    currency: Annotated[str, Field(pattern=r"^[A-Z]{3}$")] = "USD"
    """Currency by its code of ISO 4217."""
    models: Annotated[list[ModelPrice], Field(max_length=100)] = []
    """Prices of models. The first one whose pattern matches a model's name counts."""
    sandbox_hour: Amount = 0.0
    """Price of one sandbox for an hour, in pools without another price; 0 means that it is unknown."""
    pools: Annotated[list[PoolPrice], Field(max_length=100)] = []
    """Prices of the sandboxes of single pools. The first one whose pattern matches a pool's name counts."""
    core_hour: Amount = 0.0
    """Price of an hour of one core's processor time, in addition to prices of sandboxes; 0 means that it is unknown.
    Set it together with `gibHour`."""
    gib_hour: Amount = 0.0
    """Price of one GiB of memory for an hour, in addition to prices of sandboxes; 0 means that it is unknown."""

    @model_validator(mode="after")
    def _check_resources(self) -> Self:
        if bool(self.core_hour) != bool(self.gib_hour):
            raise ValueError(
                f"coreHour is {self.core_hour:g} and gibHour is {self.gib_hour:g}: give both a price, or neither"
            )
        return self

    @property
    def has_sandboxes(self) -> bool:
        """Whether sandboxes of a pool have a price for their time."""
        return self.sandbox_hour > 0 or bool(self.pools)

    @property
    def has_resources(self) -> bool:
        """Whether processor time and memory have prices."""
        return self.core_hour > 0

    def price_tokens(self, model: str, tokens: Tokens) -> float | None:
        """Return the price of a model's tokens; None if the model has none."""
        price = next((each for each in self.models if fnmatchcase(model, each.model)), None)
        return None if price is None else price.calculate(tokens)

    def price_sandboxes(self, seconds: float, by_pool: Mapping[str, float]) -> float | None:
        """Return the price of sandboxes for these seconds, or None. `by_pool` has those of known pools.

        If processor time and memory have prices, a sandbox without a price costs nothing more.
        """
        costs = [self._price_pool(pool, each) for pool, each in by_pool.items()]
        rest = seconds - sum(by_pool.values())
        if not by_pool or rest > _ROUNDING_SECONDS:
            costs.append(self._price_any(rest))
        return add_prices(costs)

    def price_processor(self, cpu_seconds: float) -> float:
        """Return the price of processor time."""
        return self.core_hour * cpu_seconds / _SECONDS_PER_HOUR

    def price_memory(self, gib_seconds: float) -> float:
        """Return the price of memory that was held."""
        return self.gib_hour * gib_seconds / _SECONDS_PER_HOUR

    def _price_pool(self, pool: str, seconds: float) -> float | None:
        price = next((each for each in self.pools if fnmatchcase(pool, each.pool)), None)
        return self._price_any(seconds) if price is None else price.sandbox_hour * seconds / _SECONDS_PER_HOUR

    def _price_any(self, seconds: float) -> float | None:
        is_known = self.sandbox_hour > 0 or self.has_resources
        return self.sandbox_hour * seconds / _SECONDS_PER_HOUR if is_known else None


def add_prices(prices: Iterable[float | None]) -> float | None:
    """Return the sum; None if one of them is unknown."""
    known = list(prices)
    return None if None in known else sum(each for each in known if each is not None)
