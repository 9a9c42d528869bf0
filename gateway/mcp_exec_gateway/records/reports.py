"""What applications report about their conversations: what a model used, and what people think."""

import hashlib
import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from mcp_exec_api.code_execution import UseCase
from mcp_exec_api.meta import Model
from mcp_exec_common.broker.records import AddedRecords, RecordRow, RecordsClient, RecordsError
from mcp_exec_gateway.http.problems import invalid_field
from mcp_exec_gateway.records.outcomes import NewOutcome
from mcp_exec_gateway.records.reading import build_problem, records_off

MAX_COUNT: Final = 10**9
"""Maximum of a number that a caller reports: more than any model uses for a task."""
_Count = Annotated[int, Field(ge=0, le=MAX_COUNT)]
_Name = Annotated[str, Field(min_length=1, max_length=253)]


class ConversationReport(Model):
    """What all reports about a conversation have in common."""

    id: Annotated[str, Field(min_length=1, max_length=64)]
    """Id that the caller makes. A report that is sent again with the same id counts once."""
    user: _Name | None = None
    """User of the conversation."""
    rollout: Annotated[str | None, Field(min_length=1, max_length=63)] = None
    """Rollout in which the conversation is; the gateway finds the arm of `unit`."""
    unit: _Name | None = None
    """Unit of the rollout."""

    @model_validator(mode="after")
    def _rollout_has_unit(self) -> Self:
        if (self.rollout is None) != (self.unit is None):
            raise ValueError("rollout and unit belong together: set both or none")
        return self


class NewUsageReport(ConversationReport):
    """What a model used for one task."""

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
    """What a person thinks of a conversation."""

    rating: Annotated[int, Field(ge=1, le=5)]
    """From 1, bad, to 5, good."""
    comment: Annotated[str | None, Field(max_length=1000)] = None
    """What the person says."""


def build_report_row(
    report: ConversationReport, *, namespace: str, caller: str, conversation: str, arm: str | None
) -> dict[str, object]:
    """Return the row of a report. The arm is never what a caller says: it follows from rollout and unit."""
    row: dict[str, object] = report.model_dump(mode="json", exclude_none=True)
    if isinstance(report, NewFeedback):
        row.pop("unit", None)  # the arm is what counts
    identity = {"namespace": namespace, "caller": caller, "conversation": conversation, "arm": arm}
    return row | identity | {"at": time.time_ns() // 1000}


def build_outcome(report: ConversationReport) -> NewOutcome | None:
    """Return what a report says about its unit of a rollout; None if it names none, or says nothing of it."""
    if report.unit is None:
        return None
    said: dict[str, object] = {}
    if isinstance(report, NewFeedback):
        said = {"rating": report.rating}
    elif isinstance(report, NewUsageReport):
        tokens = report.input_tokens + report.output_tokens + report.cache_read_tokens + report.cache_write_tokens
        said = {"success": report.success, "latencyMs": report.latency_ms, "tokens": tokens}
    kind = "rating" if isinstance(report, NewFeedback) else "usage"
    # ids of ratings and of usage are the caller's, and must not meet
    key = hashlib.sha256(f"{kind}\0{report.id}".encode("utf-8", "replace")).hexdigest()
    return NewOutcome.model_validate({"id": key, "unit": report.unit, **said})


async def store_rows(client: RecordsClient | None, rows: Mapping[str, Sequence[RecordRow]]) -> AddedRecords:
    """Store rows by table, and return what became of them.

    Raises HttpProblem: 404 without records, 422 for text that cannot be stored, else 503.
    """
    if client is None:
        raise records_off()
    try:
        added = await client.add(rows)
    except RecordsError as error:
        raise build_problem(error) from error
    if added.refused:
        column, _, message = added.refused[0].partition(": ")
        raise invalid_field(column.rpartition(".")[2], message)
    return added
