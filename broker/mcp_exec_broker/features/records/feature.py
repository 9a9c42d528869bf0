"""Records as a feature of the broker: the audit log, and the records of a database if the settings name one."""

import logging
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final, Self

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from mcp_exec_broker.core.feature import Authenticate, Feature, Foundation
from mcp_exec_broker.features.records.api import RecordsApi
from mcp_exec_broker.features.records.audit.log import AuditLog
from mcp_exec_broker.features.records.database import find_database
from mcp_exec_broker.features.records.maintenance import RecordMaintenance, RecordMetrics
from mcp_exec_broker.features.records.store import RecordStore
from mcp_exec_common.process.tasks import TaskRegistry

log = logging.getLogger(__name__)

_AUDIT_FILTERS: Final = ("namespace", "caller", "execution", "tool", "outcome", "source", "since", "until", "cursor")
_MAX_AUDIT_PAGE: Final = 1000


class RecordsFeature(Feature):
    """Keeps a record of each call, and those that others send."""

    def __init__(self, *, audit: AuditLog, api: RecordsApi, maintenance: RecordMaintenance | None) -> None:
        """`maintenance` is None if there are no records but the audit log."""
        self.audit = self._audit = audit
        self._api = api
        self._maintenance = maintenance

    @classmethod
    @asynccontextmanager
    async def open(cls, foundation: Foundation) -> AsyncIterator[Self]:
        """Open the audit log and the records' database. At the end, the calls that ended last are copied to it.

        Raises sqlite3.Error, OSError, RecordsUnavailable, ValueError.
        """
        settings = foundation.settings
        async with AsyncExitStack() as stack:
            audit = await stack.enter_async_context(
                AuditLog.open(
                    settings.audit_file,
                    keep_days=settings.audit_keep_days,
                    keep_bytes=settings.audit_keep_bytes,
                    grace_seconds=settings.drain_seconds + settings.shutdown_seconds,
                )
            )
            store = maintenance = None
            if (database := find_database(settings)) is not None:
                store = await stack.enter_async_context(
                    RecordStore.open(database, keep_bytes=settings.records_keep_bytes, network=foundation.network)
                )
                maintenance = RecordMaintenance(
                    store=store,
                    calls=audit,
                    keep_days=settings.records_keep_days,
                    metrics=RecordMetrics(foundation.metrics.registry),
                )
                stack.push_async_callback(maintenance.copy_the_rest)
            yield cls(
                audit=audit, api=RecordsApi(store=store, namespaces=foundation.namespaces), maintenance=maintenance
            )

    @property
    def failure(self) -> str:
        """Why no record can be written until the process is restarted; empty if records can be written."""
        return self._audit.failure

    def build_routes(self, authenticate: Authenticate) -> Sequence[Route]:
        """Return the routes on the audit log and on records."""
        return [Route("/v1/audit", authenticate(self._find_calls)), *self._api.build_routes(authenticate)]

    def start(self, tasks: TaskRegistry) -> None:
        """Start the copying of calls and the deletion of old records."""
        if self._maintenance is not None:
            tasks.spawn(self._maintenance.copy_forever(), name="records of calls")
            tasks.spawn(self._maintenance.delete_forever(), name="deletion of records")

    async def close_execution(self, uid: str, *, grant_seconds: int) -> None:
        """Store that the execution may make no more calls, also after a restart."""
        try:
            await self._audit.close_execution(uid, grant_seconds=grant_seconds)
        except sqlite3.Error as error:
            log.warning("cannot store that an execution has ended: %s", error, extra={"uid": uid})

    async def _find_calls(self, request: Request) -> Response:
        query = request.query_params
        if unknown := query.keys() - {*_AUDIT_FILTERS, "limit"}:
            return PlainTextResponse(f"unknown: {', '.join(sorted(unknown))}\n", 400)
        try:
            limit = min(max(int(query.get("limit", "100")), 1), _MAX_AUDIT_PAGE)
            filters = {name: query.get(name, "") for name in _AUDIT_FILTERS}
            page = await self._audit.find_records(**filters, limit=limit)
        except ValueError as error:
            return PlainTextResponse(f"{error}\n", 400)
        return JSONResponse(page)
