"""Records, and what applications report about their conversations."""

from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, model_validator

from mcp_exec_api.code_execution import UseCase
from mcp_exec_api.execution_rollout import RolloutUnit
from mcp_exec_api.meta import MicroTime, Model

RecordTable = Literal["executions", "calls", "model_usage", "feedback", "exposures", "outcomes", "key_uses"]
"""Tables of the records."""
MAX_COUNT: Final = 10**9
"""Maximum of a number that a caller reports: more than any model uses for a task."""
_Count = Annotated[int, Field(ge=0, le=MAX_COUNT)]
_Name = Annotated[str, Field(min_length=1, max_length=253)]
_TokenCount = Annotated[int, Field(ge=0, le=4 * MAX_COUNT)]
"""The tokens of a report are of four kinds."""


class RecordList(Model):
    """A page of records, oldest first."""

    items: list[dict[str, Any]]
    """Records by column. Times are microseconds since 1970."""
    next: str | None = None
    """Cursor of the next page; null on the last one."""


class KeyUse(Model):
    """Last use of an API key."""

    name: str
    """Name of the key."""
    last_used_at: MicroTime
    """Beginning of the hour of the last request with the key."""


class KeyUseList(Model):
    """Keys of a namespace that were used, as long as their records are kept."""

    items: Annotated[list[KeyUse], Field(max_length=1000)]
    """By name. Of more than 1000 keys, the first ones."""


class ConversationReport(Model):
    """Common fields of all reports about a conversation."""

    id: Annotated[str, Field(min_length=1, max_length=64)]
    """Id that the caller makes. A report that is sent again with the same id counts once."""
    user: _Name | None = None
    """User of the conversation."""
    rollout: Annotated[str | None, Field(min_length=1, max_length=63)] = None
    """Rollout of the conversation; the gateway finds the arm of `unit`."""
    unit: _Name | None = None
    """Unit of the rollout."""

    @model_validator(mode="after")
    def _rollout_has_unit(self) -> Self:
        if (self.rollout is None) != (self.unit is None):
            raise ValueError("rollout and unit belong together: set both or none")
        return self


class NewUsageReport(ConversationReport):
    """Tokens and time that a model used for one task."""

    model: Annotated[str, Field(min_length=1, max_length=128)]
    """Name of the model."""
    mode: Literal["direct", "code", "hybrid"]
    """How the model called tools."""
    turns: Annotated[int, Field(ge=0, le=100_000)]
    """Requests to the model."""
    input_tokens: _Count
    """Tokens that the model read, without those from and for the cache."""
    output_tokens: _Count
    """Tokens that the model wrote."""
    cache_read_tokens: _Count = 0
    """Tokens that came from the provider's cache."""
    cache_write_tokens: _Count = 0
    """Tokens that were written to the provider's cache."""
    definition_tokens: _Count = 0
    """Tokens of tool definitions among those that were read."""
    counted: Literal["provider", "estimate"]
    """Whether the provider counted the tokens, or somebody estimated them."""
    success: bool | None = None
    """Whether the task succeeded, if that is known."""
    latency_ms: _Count | None = None
    """Milliseconds from the task to its answer."""
    use_case: UseCase | None = None
    """What the conversation is for."""


class NewFeedback(ConversationReport):
    """A person's rating of a conversation."""

    rating: Annotated[int, Field(ge=1, le=5)]
    """From 1, bad, to 5, good."""
    comment: Annotated[str | None, Field(max_length=1000)] = None
    """What the person says."""


class NewOutcome(Model):
    """Outcome of one conversation or task of a unit."""

    id: Annotated[str, Field(min_length=1, max_length=64)]
    """Id that the caller makes. An outcome that is sent again with the same id counts once."""
    unit: RolloutUnit
    """The unit that asked for an arm. The gateway finds its arm."""
    user: RolloutUnit | None = None
    """User of the unit, as in the request for the arm."""
    success: bool | None = None
    """Whether the task succeeded."""
    latency_ms: _TokenCount | None = None
    """Milliseconds that the task took."""
    tokens: _TokenCount | None = None
    """Tokens that the model read and wrote."""
    cost: Annotated[float | None, Field(ge=0, le=1e12)] = None
    """Money that the task cost, in the currency of the application."""
    rating: Annotated[int | None, Field(ge=1, le=5)] = None
    """What the person thinks, from 1, bad, to 5, good."""

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if all(value is None for value in (self.success, self.latency_ms, self.tokens, self.cost, self.rating)):
            raise ValueError("one of success, latencyMs, tokens, cost and rating is needed")
        return self
