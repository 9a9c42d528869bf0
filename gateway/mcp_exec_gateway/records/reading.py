"""Pages of the records of a namespace."""

from typing import Annotated, Any, Literal

from pydantic import Field

from mcp_exec_common.broker.records import MAX_RECORDS, RecordsClient, RecordsError, RecordsOff
from mcp_exec_gateway.http.problems import HttpProblem, invalid_field, unavailable
from mcp_exec_gateway.http.query_params import NamespaceQuery

RecordTable = Literal["executions", "calls", "model_usage", "feedback", "exposures", "outcomes"]
"""Tables of the records."""


class RecordsQuery(NamespaceQuery):
    """Parameters of reading records."""

    limit: Annotated[int, Field(ge=1, le=MAX_RECORDS, description="Maximum number of records on a page.")] = MAX_RECORDS
    cursor: Annotated[str | None, Field(max_length=4000, description="The `next` of the previous page.")] = None


async def read_page(
    client: RecordsClient | None, *, namespace: str, table: RecordTable, query: RecordsQuery
) -> dict[str, Any]:
    """Return `items` in the order in which they were stored, and `next`, which is None on the last page.

    Raises HttpProblem: 404 without records, 422 for a malformed cursor, 503 if the broker or its database fails.
    """
    if client is None:
        raise records_off()
    try:
        page = await client.read_rows(table, namespace=namespace, cursor=query.cursor or "", limit=query.limit)
    except RecordsError as error:
        raise build_problem(error) from error
    if any(row.get("namespace") != namespace for row in page.items):  # the broker filters; this keeps others' in
        raise unavailable("the tool broker returned records of another namespace")
    return {"items": page.items, "next": None if page.is_last else page.cursor}


def records_off() -> HttpProblem:
    """Return a 404 for an installation that keeps no records."""
    detail = "this installation keeps no records: broker.records.enabled of its chart is false"
    return HttpProblem("not-found", 404, detail)


def build_problem(error: RecordsError) -> HttpProblem:
    """Return the problem of a failed request on records."""
    if isinstance(error, RecordsOff):
        return records_off()
    if error.status == 400:  # the gateway validates the other parameters
        return invalid_field("cursor", "malformed: send the `next` of the previous page unchanged")
    return unavailable("the records cannot be reached")
