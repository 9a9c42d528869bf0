"""Audit records of tool calls: the pages of all broker replicas merged into one list, newest first.

The cursor holds for each replica its next page and how many of that page's records were already returned. The time of
the first request is part of the cursor, so that calls made later do not shift the pages.
"""

import asyncio
import base64
import heapq
import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Final, Self

from pydantic import BaseModel, Field, StrictStr, ValidationError

from mcp_exec_api.meta import Model, micro_time, now
from mcp_exec_common.broker.client import BrokerClient, BrokerError
from mcp_exec_common.kube.objects import Object
from mcp_exec_gateway.core.auth.callers import Caller, may_see
from mcp_exec_gateway.core.http.parameters import Moment
from mcp_exec_gateway.core.http.problems import invalid_field, unavailable
from mcp_exec_gateway.features.records.parameters import AuditQuery

log = logging.getLogger(__name__)

_TIMEOUT_SECONDS: Final = 10.0
_ReplicaCursor = Annotated[StrictStr, Field(max_length=512)]


class _ReplicaPosition(Model):
    """Position of the reader in the records of one replica."""

    page: _ReplicaCursor = ""
    """The replica's own cursor of the page; empty for the first page."""
    returned: Annotated[int, Field(ge=0, le=500)] = 0
    """Records of that page that were already returned."""
    ended: bool = False
    """Whether all of the replica's records were returned."""


class _Cursor(Model):
    """Position of the reader in the merged list."""

    until: Moment
    limit: Annotated[int, Field(ge=1, le=500)]
    """Page size of the replicas, which gives `returned` its meaning."""
    places: Annotated[dict[str, _ReplicaPosition], Field(max_length=64)] = {}
    """Position for each replica's address."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the `cursor` of a request. Raises HttpProblem if it is malformed."""
        try:
            return cls.model_validate_json(base64.urlsafe_b64decode(text.encode()))
        except (ValueError, ValidationError) as error:
            raise invalid_field("cursor", "malformed: send the `next` of the previous page unchanged") from error

    def __str__(self) -> str:
        text = json.dumps(self.to_api() | {"until": micro_time(self.until)}, separators=(",", ":"))
        return base64.urlsafe_b64encode(text.encode()).decode()


class _Record(BaseModel):
    """The fields of a record that the gateway relies on; it passes the others on."""

    at: StrictStr
    namespace: StrictStr
    caller: StrictStr | None = None
    user: StrictStr | None = None


class _ReplicaAnswer(BaseModel):
    """A replica's answer: validated, then used as it came."""

    items: list[_Record]
    next: _ReplicaCursor | None = None


@dataclass(kw_only=True)
class _ReplicaPage:
    """The records of one replica's page that were not returned yet."""

    position: _ReplicaPosition
    records: list[Object]
    next_page: str | None
    taken: int = 0
    """Records that this request returns."""

    def next_position(self) -> _ReplicaPosition:
        """Return the reader's position after the records that were taken."""
        if self.taken < len(self.records):
            return self.position.model_copy(update={"returned": self.position.returned + self.taken})
        return _ReplicaPosition(page=self.next_page) if self.next_page else _ReplicaPosition(ended=True)


async def fetch_audit_page(broker: BrokerClient | None, *, caller: Caller, query: AuditQuery) -> Object:
    """Return `items` and `next`, which is None on the last page. A page may have fewer items than the limit.

    Raises HttpProblem: 422 for a malformed cursor, and 503 if any replica fails or answers nonsense, because a list
    without its records would look complete.
    """
    if broker is None:
        raise unavailable("no tool broker is configured")
    cursor = _Cursor.parse(query.cursor) if query.cursor else _Cursor(until=query.until or now(), limit=query.limit)
    addresses = list(broker.addresses())
    if not addresses:
        raise unavailable("no tool broker is ready")
    positions = {address: cursor.places.get(address, _ReplicaPosition()) for address in addresses}
    pages = await _fetch_pages(broker, positions, query=query, params=_build_params(caller, query, cursor))
    # the broker filters by caller; the second check is also that of the users
    items = [
        record
        for record in _take_newest(pages, query.limit)
        if may_see(caller, creator=record.get("caller"), user=record.get("user"))
    ]
    positions |= {address: page.next_position() for address, page in pages.items()}
    more = not all(position.ended for position in positions.values())
    return {"items": items, "next": str(cursor.model_copy(update={"places": positions})) if more else None}


async def _fetch_pages(
    broker: BrokerClient, positions: dict[str, _ReplicaPosition], *, query: AuditQuery, params: dict[str, str]
) -> dict[str, _ReplicaPage]:
    open_positions = {address: position for address, position in positions.items() if not position.ended}
    answers = await asyncio.gather(
        *(_fetch_page(broker, address, position, params) for address, position in open_positions.items()),
        return_exceptions=True,
    )
    pages: dict[str, _ReplicaPage] = {}
    failed = 0
    for address, answer in zip(open_positions, answers, strict=True):
        if isinstance(answer, _ReplicaPage):
            pages[address] = answer
        elif not isinstance(answer, BrokerError):
            raise answer
        elif answer.status == 400:  # the gateway validates all parameters but these two
            raise invalid_field("outcome" if query.outcome else "cursor", "the tool broker does not accept this value")
        else:
            failed += 1
            log.warning("no audit records: %s", answer)
    if failed:
        detail = f"{failed} of {len(open_positions)} tool brokers did not answer, so the records would not be complete"
        raise unavailable(detail)
    return pages


def _build_params(caller: Caller, query: AuditQuery, cursor: _Cursor) -> dict[str, str]:
    params = {"namespace": caller.namespace, "until": micro_time(cursor.until), "limit": str(cursor.limit)}
    if caller.limits.sees_own_only:
        params["caller"] = caller.label
    for name in ("execution", "tool", "outcome", "source"):
        if value := getattr(query, name):
            params[name] = value
    return params | ({"since": micro_time(query.since)} if query.since else {})


async def _fetch_page(
    broker: BrokerClient, address: str, position: _ReplicaPosition, params: dict[str, str]
) -> _ReplicaPage:
    page_params = params | ({"cursor": position.page} if position.page else {})
    answer = await broker.get_from(address, "/v1/audit", params=page_params, timeout_seconds=_TIMEOUT_SECONDS)
    try:
        valid = _ReplicaAnswer.model_validate(answer, extra="ignore")
    except ValidationError as error:
        raise BrokerError(f"the broker at {address} returned a malformed page: {error.errors()[0]['msg']}") from error
    # the broker filters by namespace; a second check here keeps other namespaces' records in
    if any(record.namespace != params["namespace"] for record in valid.items):
        raise BrokerError(f"the broker at {address} returned records of another namespace than {params['namespace']}")
    return _ReplicaPage(position=position, records=answer["items"][position.returned :], next_page=valid.next)


def _take_newest(pages: dict[str, _ReplicaPage], limit: int) -> Iterator[Object]:
    """Yield the newest records of all pages.

    Stops early at the end of a page that has a successor: older records of the other pages may belong after it.
    """

    def iterate(page: _ReplicaPage) -> Iterator[tuple[_ReplicaPage, Object | None]]:
        for record in page.records:
            yield page, record
        if page.next_page:
            yield page, None

    def sort_key(entry: tuple[_ReplicaPage, Object | None]) -> Any:
        page, record = entry
        last = record or (page.records[-1] if page.records else {})
        return str(last.get("at", ""))

    for page, record in heapq.merge(*(iterate(page) for page in pages.values()), key=sort_key, reverse=True):
        if record is None or limit == 0:
            return
        page.taken += 1
        limit -= 1
        yield record
