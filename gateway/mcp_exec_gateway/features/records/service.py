"""Records of the broker: pages of them, usage, and what applications report about conversations and rollouts."""

import hashlib
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol

from mcp_exec_api.meta import micro_time, now
from mcp_exec_api.wire.records import (
    ConversationReport,
    KeyUse,
    KeyUseList,
    NewFeedback,
    NewOutcome,
    NewUsageReport,
    RecordTable,
)
from mcp_exec_api.wire.rollouts import MeasuredRollout
from mcp_exec_api.wire.usage import UsageReport
from mcp_exec_common.broker.records import AddedRecords, RecordRow, RecordsClient, RecordsError, RecordsOff
from mcp_exec_common.prices import PriceTable
from mcp_exec_common.usage import (
    MAX_USAGE_DAYS,
    build_groups,
    count_in_conversations,
    list_combinations,
    sum_costs,
)
from mcp_exec_gateway.core.auth.callers import Caller, may_see
from mcp_exec_gateway.core.http.problems import HttpProblem, invalid_field, unavailable
from mcp_exec_gateway.features.records.parameters import DEFAULT_DAYS, RecordsQuery, UsageQuery
from mcp_exec_gateway.metrics import Metrics

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class ReportedArm:
    """Arm of a rollout that a report is about."""

    rollout: str
    uid: str
    arm: str


class ArmFinder(Protocol):
    """Finds the arm of the unit that a report names."""

    def __call__(self, namespace: str, rollout: str, *, unit: str, user: str | None) -> ReportedArm | None:
        """Return None if the unit is not enrolled. Raises HttpProblem, a 404 if there is no such rollout."""


def _find_no_arm(namespace: str, rollout: str, *, unit: str, user: str | None) -> ReportedArm | None:
    raise HttpProblem("not-found", 404, f"there is no rollout {rollout[:253]} in namespace {namespace}")


@dataclass(kw_only=True)
class Records:
    """Records of the broker."""

    client: RecordsClient | None
    """None if no broker is configured."""
    find_arm: ArmFinder = _find_no_arm
    """What rollouts say about a report."""


_OF_ALL_CALLERS: Final = ("exposures", "outcomes")
"""Tables whose rows belong to a rollout and not to a caller."""


async def read_page(
    client: RecordsClient | None, *, caller: Caller, table: RecordTable, query: RecordsQuery
) -> dict[str, Any]:
    """Return `items` in the order of their storage, and `next`, which is None on the last page.

    A page may have fewer items than the limit. Raises HttpProblem: 403 for a table that a key with the limit `own`
    cannot read, 404 without records, 422 for a malformed cursor, 503 if the broker or its database fails.
    """
    if client is None:
        raise records_off()
    namespace, own = caller.namespace, choose_owner(caller)
    if own is not None and table in _OF_ALL_CALLERS:
        detail = f"{caller.title} is limited to what is its own, and {table} are of all callers"
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


async def read_key_uses(client: RecordsClient | None, *, caller: Caller) -> dict[str, Any]:
    """Return the last use of each API key of the namespace, or of the caller if it sees only its own.

    Raises HttpProblem: 404 without records, 503 if the broker or its database fails.
    """
    if client is None:
        raise records_off()
    try:
        hours = await client.find_last_uses(namespace=caller.namespace, caller=choose_owner(caller))
    except RecordsError as error:
        raise build_problem(error) from error
    uses = [
        KeyUse(name=name, last_used_at=_EPOCH + at * _MICROSECOND)
        for name, at in sorted(hours.items())
        if may_see(caller, creator=name, user=None)
    ]
    return KeyUseList(items=uses).to_api()


def choose_owner(caller: Caller) -> str | None:
    """Return the only caller whose records a request may read, or None for those of the whole namespace."""
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


def build_outcome_row(
    outcome: NewOutcome, *, namespace: str, caller: str, rollout: str, uid: str, arm: str
) -> dict[str, object]:
    """Return the row of an outcome. Ids of different callers never meet."""
    row: dict[str, object] = outcome.model_dump(mode="json", exclude_none=True, exclude={"user"})
    key = hashlib.sha256(f"{uid}\0{caller}\0{outcome.id}".encode("utf-8", "replace")).hexdigest()
    identity = {"id": key, "namespace": namespace, "rollout": rollout, "rollout_uid": uid, "arm": arm}
    return row | identity | {"at": time.time_ns() // 1000}


async def measure_rollout(client: RecordsClient | None, *, namespace: str, uid: str) -> MeasuredRollout:
    """Return what the arms measured since the rollout began. Raises HttpProblem: 404 without records, 503."""
    if client is None:
        raise records_off()
    try:
        return await client.measure_rollout(namespace=namespace, uid=uid)
    except RecordsError as error:
        raise build_problem(error) from error


def build_report(measured: MeasuredRollout, *, rollout: str, control: str | None) -> dict[str, Any]:
    """Return the report as a response shows it."""
    return {"rollout": rollout, "control": control, "confidence": 0.95, **measured.to_api()}


def measure_report(report: NewUsageReport, *, namespace: str, metrics: Metrics, prices: PriceTable) -> None:
    """Count the tokens of a report, and their price if the model has one."""
    use_case = report.use_case.value if report.use_case else ""
    for kind, tokens in (
        ("input", report.input_tokens),
        ("output", report.output_tokens),
        ("cache_read", report.cache_read_tokens),
        ("cache_write", report.cache_write_tokens),
    ):
        metrics.model_tokens.labels(namespace, report.mode, use_case, kind, report.counted).inc(tokens)
    cost = prices.price_tokens(report.model, report)
    if cost is not None:
        metrics.model_cost.labels(namespace, report.mode, use_case, prices.currency).inc(cost)


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


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


async def read_usage(
    client: RecordsClient | None, *, caller: Caller, query: UsageQuery, prices: PriceTable
) -> dict[str, Any]:
    """Return the usage of the namespace as a response shows it, or of a caller that sees only its own.

    Raises HttpProblem: 404 without records, 422 for times, 503.
    """
    if client is None:
        raise records_off()
    until = query.until or now()
    since = query.since or until - timedelta(days=DEFAULT_DAYS)
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
    groups = build_groups(measured, by=query.by, prices=prices)
    report = UsageReport(
        by=query.by,
        since=micro_time(since.astimezone(UTC)),
        until=micro_time(until.astimezone(UTC)),
        currency=prices.currency,
        is_complete=measured.is_complete,
        groups=groups,
        total=sum_costs(groups, measured, prices=prices),
        conversations=count_in_conversations(measured),
        combinations=list_combinations(measured),
    )
    return report.to_api()
