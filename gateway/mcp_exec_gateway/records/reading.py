"""Pages of the records of a namespace."""

from typing import Annotated, Any, Final

from pydantic import Field

from mcp_exec_api.wire.records import RecordTable
from mcp_exec_common.broker.records import MAX_RECORDS, RecordsClient, RecordsError, RecordsOff
from mcp_exec_gateway.auth.callers import Caller, may_see
from mcp_exec_gateway.http.problems import HttpProblem, invalid_field, unavailable
from mcp_exec_gateway.http.query_params import NamespaceQuery

_OF_ALL_CALLERS: Final = ("exposures", "outcomes")
"""Tables whose rows belong to a rollout and not to a caller."""


class RecordsQuery(NamespaceQuery):
    """Parameters of reading records."""

    limit: Annotated[int, Field(ge=1, le=MAX_RECORDS, description="Maximum number of records on a page.")] = MAX_RECORDS
    cursor: Annotated[str | None, Field(max_length=4000, description="The `next` of the previous page.")] = None


async def read_page(
    client: RecordsClient | None, *, caller: Caller, table: RecordTable, query: RecordsQuery
) -> dict[str, Any]:
    """Return `items` in the order in which they were stored, and `next`, which is None on the last page.

    A page may have fewer items than the limit. Raises HttpProblem: 403 for a table that a key with the limit `own`
    cannot read, 404 without records, 422 for a malformed cursor, 503 if the broker or its database fails.
    """
    if client is None:
        raise records_off()
    namespace, own = caller.namespace, choose_owner(caller)
    if own is not None and table in _OF_ALL_CALLERS:
        detail = f"the API key {caller.name} is limited to what is its own, and {table} are of all callers"
        raise HttpProblem("forbidden", 403, detail)
    cursor = query.cursor or ""
    try:
        page = await client.read_rows(table, namespace=namespace, caller=own, cursor=cursor, limit=query.limit)
    except RecordsError as error:
        raise build_problem(error) from error
    if any(row.get("namespace") != namespace for row in page.items):  # the broker filters; this keeps others' in
        raise unavailable("the tool broker returned records of another namespace")
    items = [row for row in page.items if may_see(caller, creator=row.get("caller"), user=row.get("user"))]
    return {"items": items, "next": None if page.is_last else page.cursor}


def choose_owner(caller: Caller) -> str | None:
    """Return the caller whose records alone a request may read, or None for those of the namespace."""
    return caller.label if caller.limits.sees_own_only else None


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
