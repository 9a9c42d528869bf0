"""Usage as people read it: by group, with money, and with the estimate for the other mode."""

from typing import Annotated, Final

from pydantic import Field

from mcp_exec_api.constants import UsageGrouping as UsageGrouping
from mcp_exec_api.meta import Model

Money = Annotated[float, Field(ge=0)]
MAX_COMBINATIONS: Final = 20
"""Combinations of tools of a report."""


class ModeUsage(Model):
    """Use of models in one mode, as applications reported it."""

    mode: str
    """How the model called tools: direct, code or hybrid."""
    counted: str
    """`provider`: exact numbers of the provider. `estimate`: estimates of the application."""
    tasks: int
    """Reports; one is about one task."""
    turns: int
    """Requests to the model."""
    input_tokens: int
    """Tokens that were read, without those from and for the cache."""
    output_tokens: int
    """Tokens that were written."""
    cache_read_tokens: int
    """Tokens that came from the provider's cache."""
    cache_write_tokens: int
    """Tokens that were written to the provider's cache."""
    definition_tokens: int
    """Tokens of tool definitions among those that were read, as far as reports say so."""
    tokens_per_task: float
    """All tokens by task."""
    success_share: Annotated[float | None, Field(ge=0, le=1)] = None
    """Share of tasks that succeeded, of those that say so."""
    mean_latency_ms: float | None = None
    """Mean milliseconds of a task, of those that have a latency."""
    cost: Money | None = None
    """Money for the model. Not set if a model has no price."""
    unpriced_models: Annotated[list[str], Field(max_length=100)] = []
    """Models that have no price."""


class SandboxCosts(Model):
    """What the money for sandboxes is made of."""

    time: Money | None = None
    """For the seconds that executions had sandboxes. Not set if sandboxes have no price for their time."""
    processor: Money | None = None
    """For processor time. Not set if it has no price."""
    memory: Money | None = None
    """For memory: the highest of each execution, for the seconds that it had its sandbox. Not set if it has no
    price."""


class SandboxUsage(Model):
    """Use of sandboxes by executions."""

    executions: int
    """Executions that ended."""
    failed: int
    """Those that did not succeed."""
    seconds: float
    """Seconds that they had sandboxes."""
    cpu_seconds: float
    """CPU time of their code in seconds."""
    gib_seconds: Annotated[float | None, Field(ge=0)] = None
    """GiB times seconds: the highest memory of each execution times the seconds that it had its sandbox. Not set if no
    execution has figures."""
    unmeasured: Annotated[int, Field(ge=0)] = 0
    """Executions that had a sandbox, but lack processor time or memory. Their cost leaves out what is missing."""
    cost: Money | None = None
    """Money for the sandboxes. Not set if they have no price, or no figures."""
    costs: SandboxCosts | None = None
    """What the cost is made of. Not set without a cost."""


class CallUsage(Model):
    """Tool calls of one mode. Their tokens are estimated from their bytes."""

    mode: str
    """`code` or `direct`."""
    calls: int
    """Number of calls."""
    failed: int
    """Calls that failed or were denied."""
    argument_tokens: int
    """Estimated tokens of their arguments."""
    result_tokens: int
    """Estimated tokens of their results."""


class OtherMode(Model):
    """Estimate of what the same tool calls would have taken in the other mode.

    Tool definitions, and messages that later requests repeat, are not counted.
    """

    mode: str
    """Mode that was used."""
    other: str
    """Mode that was not used."""
    tokens: int
    """Estimated tokens in the mode that was used."""
    other_tokens: int | None = None
    """Estimated tokens in the other one. Not set if the records say nothing about it."""
    saved: int | None = None
    """Tokens that the mode saved, over the executions that it made cheaper."""
    lost: int | None = None
    """Tokens that the mode cost more, over the executions that it made dearer."""
    method: str
    """Name of the method."""


class UsageGroup(Model):
    """Usage of one group. What cannot be grouped so is not set: a model's tokens belong to no single tool."""

    key: str
    """Use case, caller, tool, arm, day or model; empty for what names none."""
    models: Annotated[list[ModeUsage], Field(max_length=100)] = []
    """What models used, by mode and by who counted the tokens."""
    sandboxes: SandboxUsage | None = None
    """What executions used."""
    calls: Annotated[list[CallUsage], Field(max_length=16)] = []
    """Tool calls by mode."""
    estimates: Annotated[list[OtherMode], Field(max_length=2)] = []
    """Estimates for the other mode."""


class UsageTotal(Model):
    """What all groups used of sandboxes, and what they cost."""

    cost: Money | None = None
    """Money for models and sandboxes. Not set if one of them was used and its cost is unknown."""
    models: Money | None = None
    """Money for models. Not set if no model was reported, or one has no price."""
    sandboxes: SandboxUsage | None = None
    """Use and cost of sandboxes."""


class ConversationCounts(Model):
    """Conversations that executions, direct calls or reports name."""

    total: int
    """Number of conversations."""
    with_code: int
    """Those that ran code."""
    code_share: Annotated[float, Field(ge=0, le=1)]
    """Share of those that ran code."""


class ToolCombination(Model):
    """Tools that executions called together."""

    tools: Annotated[list[str], Field(max_length=64)]
    """Two tools or more, as SERVER.TOOL, sorted by name."""
    executions: int
    """Executions that called these tools and no others."""


class UsageReport(Model):
    """Usage of a namespace over a time."""

    by: UsageGrouping
    """By what it is grouped."""
    since: str
    """Begin of the time (RFC 3339)."""
    until: str
    """End of the time, excluded."""
    currency: str
    """Currency of all money, by its code of ISO 4217."""
    is_complete: bool
    """Whether the answer has all groups. If not, it has the largest."""
    groups: list[UsageGroup]
    """Usage by group, sorted by key."""
    total: UsageTotal | None = None
    """Cost of all groups. Not set if nothing has a price, or groups are left out."""
    conversations: ConversationCounts | None = None
    """Conversations of the time, in all groups. Not set if records name none."""
    combinations: Annotated[list[ToolCombination], Field(max_length=MAX_COMBINATIONS)] = []
    """The most frequent combinations of tools, if usage is grouped by tool."""
