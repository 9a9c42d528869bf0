"""What applications report about their conversations: what a model used, and what people think."""

import hashlib
import time
from collections.abc import Mapping, Sequence

from mcp_exec_api.wire.records import ConversationReport, NewFeedback, NewOutcome, NewUsageReport
from mcp_exec_common.broker.records import AddedRecords, RecordRow, RecordsClient, RecordsError
from mcp_exec_gateway.http.problems import invalid_field
from mcp_exec_gateway.records.reading import build_problem, records_off


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
