"""Records of tool calls, of all replicas of the broker as one list, newest first.

A cursor says of each replica which of its pages comes next and how many of that page's records were told already. The
first page is looked at as of one moment, which the cursor keeps, so that calls made meanwhile shift nothing.
"""

import asyncio
import base64
import heapq
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Final, Self

from pydantic import AwareDatetime, Field, ValidationError

from mcp_exec_api.meta import Model, micro_time, now
from mcp_exec_common.broker.client import BrokerClient, BrokerError
from mcp_exec_common.kube.objects import Object
from mcp_exec_gateway.http.problems import invalid_field, unavailable
from mcp_exec_gateway.http.query_params import AuditQuery

_ASK_SECONDS: Final = 10.0


class _Place(Model):
    """Where the reader is at one replica."""

    page: Annotated[str, Field(max_length=512)] = ""
    """The replica's own cursor of the page; empty for the first."""
    told: Annotated[int, Field(ge=0, le=500)] = 0
    """Records of that page that the reader has."""
    ended: bool = False
    """Whether the replica has no more."""


class _Cursor(Model):
    """Where the reader is."""

    until: AwareDatetime
    limit: Annotated[int, Field(ge=1, le=500)]
    """The size of the pages; `told` counts within such."""
    places: Annotated[dict[str, _Place], Field(max_length=64)] = {}

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises Problem where it is none."""
        try:
            return cls.model_validate_json(base64.urlsafe_b64decode(text.encode()))
        except (ValueError, ValidationError) as error:
            raise invalid_field("cursor", "not the `next` of a page of this list") from error

    def __str__(self) -> str:
        text = json.dumps(self.to_api() | {"until": micro_time(self.until)}, separators=(",", ":"))
        return base64.urlsafe_b64encode(text.encode()).decode()


@dataclass(kw_only=True)
class _Page:
    """What one replica said."""

    place: _Place
    records: list[Object]
    following: str | None
    taken: int = 0

    def after(self) -> _Place:
        """Where the reader is, with those taken."""
        if self.taken < len(self.records):
            return self.place.model_copy(update={"told": self.place.told + self.taken})
        return _Place(page=self.following) if self.following else _Place(ended=True)


async def audit_page(brokers: BrokerClient | None, *, namespace: str, query: AuditQuery) -> Object:
    """`items` and `next`, which is None at the end. Raises Problem: 422 for a cursor, 503 where a replica is silent."""
    if brokers is None:
        raise unavailable("no tool broker is configured")
    cursor = _Cursor.parse(query.cursor) if query.cursor else _Cursor(until=query.until or now(), limit=query.limit)
    params = _params(namespace, query, cursor)
    addresses = list(brokers.addresses())
    if not addresses:
        raise unavailable("no tool broker is ready")
    places = {address: cursor.places.get(address, _Place()) for address in addresses}
    asked = [_ask(brokers, address, place, params) for address, place in places.items() if not place.ended]
    try:
        pages = dict(zip((a for a in addresses if not places[a].ended), await asyncio.gather(*asked), strict=True))
    except BrokerError as error:
        if error.status == 400:  # all but these two were judged here
            raise invalid_field("outcome" if query.outcome else "cursor", "the broker knows no such thing") from error
        raise unavailable("not every tool broker answers, so the records would not be complete") from error
    items = list(_newest(pages, query.limit))
    places |= {address: page.after() for address, page in pages.items()}
    more = not all(place.ended for place in places.values())
    return {"items": items, "next": str(cursor.model_copy(update={"places": places})) if more else None}


def _params(namespace: str, query: AuditQuery, cursor: _Cursor) -> dict[str, str]:
    found = {"namespace": namespace, "until": micro_time(cursor.until), "limit": str(cursor.limit)}
    for name in ("execution", "tool", "outcome"):
        if value := getattr(query, name):
            found[name] = value
    return found | ({"since": micro_time(query.since)} if query.since else {})


async def _ask(brokers: BrokerClient, address: str, place: _Place, params: dict[str, str]) -> _Page:
    given = params | ({"cursor": place.page} if place.page else {})
    answer = await brokers.ask_at(address, "/v1/audit", params=given, timeout_seconds=_ASK_SECONDS)
    items, following = answer.get("items"), answer.get("next")
    # a broker only tells what it was asked for; that no other namespace's records get out does not hang on it alone
    if not isinstance(items, list) or any(
        not isinstance(item, dict) or item.get("namespace") != params["namespace"] for item in items
    ):
        raise BrokerError(f"the broker at {address} answers no records of {params['namespace']}")
    return _Page(place=place, records=items[place.told :], following=following if isinstance(following, str) else None)


def _newest(pages: dict[str, _Page], limit: int) -> Iterator[Object]:
    """The newest records of all pages; where one page is used up and has another, no older one may be told yet."""

    def told(page: _Page) -> Iterator[tuple[_Page, Object | None]]:
        for record in page.records:
            yield page, record
        if page.following:
            yield page, None

    def moment(entry: tuple[_Page, Object | None]) -> Any:
        page, record = entry
        last = record or (page.records[-1] if page.records else {})
        return str(last.get("at", ""))

    for page, record in heapq.merge(*(told(page) for page in pages.values()), key=moment, reverse=True):
        if record is None or limit == 0:
            return
        page.taken += 1
        limit -= 1
        yield record
