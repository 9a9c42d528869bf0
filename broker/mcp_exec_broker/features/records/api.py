"""Records on the control port, for gateway and operator, which check who may read and write them."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Container
from collections.abc import Set as AbstractSet
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, Final, get_args

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from mcp_exec_api.wire.usage import UsageGrouping
from mcp_exec_broker.core.access.limiters import SharedPlaces
from mcp_exec_broker.core.feature import Authenticate, Handler
from mcp_exec_broker.features.records.queries import find_last_uses, measure_rollout, measure_usage
from mcp_exec_broker.features.records.store import InvalidRecordCursor, RecordStore, RecordsUnavailable
from mcp_exec_broker.features.records.tables import RECORD_TABLES
from mcp_exec_common.broker.records import (
    MAX_RECORDS,
    MAX_RECORDS_BYTES,
    RECORDS_OFF_STATUS,
    AddedRecords,
    FoundExecutions,
    LastUses,
    RecordRows,
)
from mcp_exec_common.usage import is_usage_grouping

_BODY_SECONDS: Final = 20.0
_AT_ONCE: Final = 4
"""Bodies that are read and stored at once, and pages and sums that are read at once: they bound the memory."""
_OF_NAMESPACE: Final = 2
"""Of those, of one namespace."""
_WAIT_SECONDS: Final = 5.0
_MAX_WINDOW: Final = 366 * 24 * 3600.0
_MAX_DIGITS: Final = 18
_READ_PARAMETERS: Final = frozenset({"namespace", "caller", "cursor", "limit"})

_Handler = Callable[[RecordStore, Request], Awaitable[Response]]


class _InvalidRequest(ValueError):
    """A request that is answered with 400."""


@dataclass(kw_only=True, eq=False)
class RecordsApi:
    """The routes on records. Without a store, all answer that records are off."""

    store: RecordStore | None
    namespaces: Container[str]
    _writers: SharedPlaces = field(default_factory=lambda: SharedPlaces(total=_AT_ONCE, of_namespace=_OF_NAMESPACE))
    _readers: SharedPlaces = field(default_factory=lambda: SharedPlaces(total=_AT_ONCE, of_namespace=_OF_NAMESPACE))

    def build_routes(self, authenticate: Authenticate) -> list[Route]:
        """Return the routes; `authenticate` wraps a handler."""
        routes: tuple[tuple[str, str, _Handler], ...] = (
            ("/v1/records", "POST", self._add),
            ("/v1/records/find-executions", "POST", self._find_executions),
            ("/v1/records/rollout-measures", "GET", self._measure_rollout),
            ("/v1/records/usage", "GET", self._measure_usage),
            ("/v1/records/last-uses", "GET", self._find_last_uses),
            ("/v1/records/{table}", "GET", self._read),
        )
        return [Route(path, authenticate(self._answer(handler)), methods=[verb]) for path, verb, handler in routes]

    def _answer(self, handler: _Handler) -> Handler:
        async def answer(request: Request) -> Response:
            if self.store is None:
                return _refuse(RECORDS_OFF_STATUS, "this installation keeps no records: set broker.records.enabled")
            async with AsyncExitStack() as place:
                try:
                    async with asyncio.timeout(_WAIT_SECONDS):
                        await place.enter_async_context(self._find_place(request))
                except TimeoutError:
                    return _refuse(503, "other requests on records are in progress: repeat later")
                try:
                    return await handler(self.store, request)
                except (_InvalidRequest, InvalidRecordCursor) as error:
                    return _refuse(400, str(error))
                except RecordsUnavailable as error:
                    return _refuse(503, f"the records' database: {error}")

        return answer

    def _find_place(self, request: Request) -> AbstractAsyncContextManager[None]:
        """Return a place of the request's namespace; requests that name none share one part."""
        namespace = request.query_params.get("namespace", "")
        places = self._readers if request.method == "GET" else self._writers
        return places.hold(namespace if namespace in self.namespaces else "")

    async def _add(self, store: RecordStore, request: Request) -> Response:
        rows = _check_batch(await _read_object(request))
        added = AddedRecords()
        for table, batch in rows.items():
            result = await store.add(table, batch)
            added = AddedRecords(
                stored=added.stored + result.stored,
                created=added.created if result.created is None else {**added.created, table: result.created},
                refused=[*added.refused, *result.refused],
            )
        return JSONResponse(added.to_api())

    async def _find_executions(self, store: RecordStore, request: Request) -> Response:
        uids = (await _read_object(request)).get("uids")
        if not isinstance(uids, list) or len(uids) > MAX_RECORDS or not all(isinstance(uid, str) for uid in uids):
            raise _InvalidRequest(f"uids: must be a list of at most {MAX_RECORDS} texts")
        found = await store.find_executions([uid for uid in uids if "\0" not in uid])
        return JSONResponse(FoundExecutions(uids=sorted(found)).to_api())

    async def _measure_rollout(self, store: RecordStore, request: Request) -> Response:
        query = request.query_params
        _refuse_unknown(query.keys() - {"namespace", "uid", "window"})
        since = 0
        if "window" in query:
            since = time.time_ns() // 1000 - round(_read_window(query["window"]) * 1_000_000)
        namespace, uid = self._read_namespace(query.get("namespace", "")), query.get("uid", "")
        measured = await measure_rollout(store, namespace=namespace, uid=uid.replace("\0", ""), since=since)
        return JSONResponse(measured.to_api())

    async def _measure_usage(self, store: RecordStore, request: Request) -> Response:
        query = request.query_params
        _refuse_unknown(query.keys() - {"namespace", "caller", "by", "since", "until"})
        by = query.get("by", "")
        if not is_usage_grouping(by):
            raise _InvalidRequest(f"by: must be one of {', '.join(get_args(UsageGrouping))}")
        since, until = (_read_microseconds(name, query.get(name, "")) for name in ("since", "until"))
        namespace = self._read_namespace(query.get("namespace", ""))
        caller = query.get("caller")
        measured = await measure_usage(store, namespace=namespace, caller=caller, by=by, since=since, until=until)
        return JSONResponse(measured.to_api())

    async def _find_last_uses(self, store: RecordStore, request: Request) -> Response:
        query = request.query_params
        _refuse_unknown(query.keys() - {"namespace", "caller"})
        namespace = self._read_namespace(query.get("namespace", ""))
        hours = await find_last_uses(store, namespace=namespace, caller=query.get("caller"))
        return JSONResponse(LastUses(hours=hours).to_api())

    def _read_namespace(self, namespace: str) -> str:
        if namespace not in self.namespaces:
            raise _InvalidRequest(f"namespace: this broker does not serve {namespace[:100]!r}")
        return namespace

    async def _read(self, store: RecordStore, request: Request) -> Response:
        table, query = request.path_params["table"], request.query_params
        _refuse_unknown(query.keys() - _READ_PARAMETERS)
        if table not in RECORD_TABLES:
            raise _InvalidRequest(f"table: must be one of {', '.join(RECORD_TABLES)}")
        namespace, limit = self._read_namespace(query.get("namespace", "")), query.get("limit", str(MAX_RECORDS))
        if not (limit.isascii() and limit.isdigit() and 1 <= int(limit[:9]) <= MAX_RECORDS):
            raise _InvalidRequest(f"limit: must be an integer from 1 to {MAX_RECORDS}")
        cursor, caller = query.get("cursor", ""), query.get("caller")
        if caller is not None and "caller" not in RECORD_TABLES[table].c:
            raise _InvalidRequest(f"caller: the rows of {table} have none")
        page = await store.iterate(table, namespaces=[namespace], caller=caller, cursor=cursor, limit=int(limit))
        return JSONResponse(RecordRows(items=page.rows, cursor=page.cursor, is_last=page.is_last).to_api())


def _refuse(status: int, message: str) -> Response:
    return PlainTextResponse(f"{message}\n", status)


def _refuse_unknown(unknown: AbstractSet[str]) -> None:
    if unknown:
        raise _InvalidRequest(f"unknown: {', '.join(sorted(unknown))[:200]}")


def _read_window(text: str) -> float:
    try:
        seconds = float(text[:20])
    except ValueError:
        seconds = -1.0
    if not 0 < seconds <= _MAX_WINDOW:
        raise _InvalidRequest(f"window: must be seconds from above 0 to {_MAX_WINDOW:.0f}")
    return seconds


def _read_microseconds(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS):
        raise _InvalidRequest(f"{name}: must be microseconds since 1970, of at most {_MAX_DIGITS} digits")
    return int(text)


async def _read_object(request: Request) -> dict[str, Any]:
    body = bytearray()
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            async for part in request.stream():
                body += part
                if len(body) > MAX_RECORDS_BYTES:
                    raise _InvalidRequest(f"the body has more than {MAX_RECORDS_BYTES} bytes")
        content = json.loads(body)
    except TimeoutError as error:
        raise _InvalidRequest(f"the body did not arrive within {_BODY_SECONDS:g} s") from error
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _InvalidRequest("the body is not JSON") from error
    if not isinstance(content, dict):
        raise _InvalidRequest("the body must be a JSON object")
    return content


def _check_batch(content: dict[str, Any]) -> dict[str, list[dict[str, object]]]:
    if unknown := content.keys() - RECORD_TABLES.keys():
        raise _InvalidRequest(f"unknown tables: {', '.join(sorted(unknown))[:200]}; known: {', '.join(RECORD_TABLES)}")
    for table, rows in content.items():
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise _InvalidRequest(f"{table}: must be a list of objects")
    if (count := sum(map(len, content.values()))) > MAX_RECORDS:
        raise _InvalidRequest(f"{count} rows; at most {MAX_RECORDS} are allowed in a request")
    return content
