"""Usage of a namespace: what models, sandboxes and tools used, and what it cost."""

import logging
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final

from pydantic import Field

from mcp_exec_api.meta import micro_time, now
from mcp_exec_api.wire.usage import UsageGrouping, UsageReport
from mcp_exec_common.broker.records import RecordsClient, RecordsError, RecordsOff
from mcp_exec_common.usage.measured import MAX_USAGE_DAYS
from mcp_exec_common.usage.prices import PriceTable
from mcp_exec_common.usage.report import build_groups
from mcp_exec_gateway.auth.callers import Caller
from mcp_exec_gateway.http.problems import invalid_field, unavailable
from mcp_exec_gateway.http.query_params import Moment, NamespaceQuery
from mcp_exec_gateway.records.reading import choose_owner, records_off

log = logging.getLogger(__name__)

_DEFAULT_DAYS: Final = 30
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


class UsageQuery(NamespaceQuery):
    """Parameters of usage."""

    by: Annotated[
        UsageGrouping,
        Field(description="Group by this. An arm is ROLLOUT/ARM, a day is one of UTC, a tool is SERVER.TOOL."),
    ] = "use-case"
    since: Annotated[
        Moment | None,
        Field(description=f"Only what began at or after this time (RFC 3339); {_DEFAULT_DAYS} days by default."),
    ] = None
    until: Annotated[Moment | None, Field(description="Only what began before this time (RFC 3339).")] = None


async def read_usage(
    client: RecordsClient | None, *, caller: Caller, query: UsageQuery, prices: PriceTable
) -> dict[str, Any]:
    """Return the usage of the namespace as a response shows it, or of a caller that sees only its own.

    Raises HttpProblem: 404 without records, 422 for times, 503.
    """
    if client is None:
        raise records_off()
    until = query.until or now()
    since = query.since or until - timedelta(days=_DEFAULT_DAYS)
    if not timedelta() < until - since <= timedelta(days=MAX_USAGE_DAYS):
        raise invalid_field("since", f"must be before `until`, by at most {MAX_USAGE_DAYS} days")
    limits = {name: max((moment - _EPOCH) // _MICROSECOND, 0) for name, moment in (("since", since), ("until", until))}
    try:
        measured = await client.measure_usage(
            namespace=caller.namespace, caller=choose_owner(caller), by=query.by, **limits
        )
    except RecordsError as error:
        if isinstance(error, RecordsOff):
            raise records_off() from error
        log.warning("usage cannot be read: %s", error)  # it names addresses, which are none of the caller's business
        raise unavailable("the records cannot be summed now: repeat later, or ask for a shorter time") from error
    report = UsageReport(
        by=query.by,
        since=micro_time(since.astimezone(UTC)),
        until=micro_time(until.astimezone(UTC)),
        currency=prices.currency,
        is_complete=measured.is_complete,
        groups=build_groups(measured, by=query.by, prices=prices),
    )
    return report.to_api()
