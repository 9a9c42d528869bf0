"""The operator's own HTTP server: liveness, readiness and metrics."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from mcp_exec_common.process.connections import ConnectionLimits, ConnectionTable
from mcp_exec_common.process.health import HealthReport, report_liveness, report_readiness


class ProbeConnection(asyncio.Protocol):
    """Connection of a probe. It is aborted when its time is over, whatever its client sends or reads.

    Requests and responses are short, so one deadline for the whole connection replaces those of heads and bodies, which
    aiohttp lacks. Prometheus opens a new connection then.
    """

    def __init__(self, handler: asyncio.Protocol, *, table: ConnectionTable) -> None:
        self._handler = handler
        self._table = table
        self._peer = ""
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection, or abort it if there is no room for it."""
        self._transport = transport
        self._peer = str((transport.get_extra_info("peername") or ("",))[0])
        limits = self._table.limits
        seconds = limits.head_seconds + limits.write_seconds
        self._deadline = asyncio.get_running_loop().call_later(seconds, transport.abort)
        self._handler.connection_made(transport)
        if not self._table.admit(self, self._peer):
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Handle the end of the connection."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._table.remove(self, self._peer)
        self._handler.connection_lost(exc)

    def close_idle(self) -> None:
        """Close the connection for the benefit of a new one."""
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Handle received data."""
        self._handler.data_received(data)

    def eof_received(self) -> bool | None:
        """Handle the end of the received data."""
        return self._handler.eof_received()

    def pause_writing(self) -> None:
        """Pause the response."""
        self._handler.pause_writing()

    def resume_writing(self) -> None:
        """Resume the response."""
        self._handler.resume_writing()


class HealthSource(Protocol):
    """Knows how the process is."""

    def find_liveness_problem(self) -> str:
        """Return why the process should be restarted, or an empty text."""

    def find_readiness_problem(self) -> str:
        """Return why the process is not ready, or an empty text."""

    def describe_role(self) -> dict[str, str]:
        """Return the role of the process, and the leader if it is another, as the body of `/readyz` has them."""


@dataclass(frozen=True, kw_only=True)
class HealthServer:
    """Serves `/healthz`, `/readyz` and `/metrics`. A response of any kind shows that the event loop runs."""

    source: HealthSource
    registry: CollectorRegistry | None
    """The metrics; None if they are not served."""
    limits: ConnectionLimits

    @asynccontextmanager
    async def serving(self, port: int, *, host: str | None = None) -> AsyncIterator[int]:
        """Serve while the context lasts. Yields the port, which is a free one if `port` is 0."""
        app = web.Application()
        app.add_routes(
            [
                web.get("/healthz", self._healthz),
                web.get("/readyz", self._readyz),
                *([web.get("/metrics", self._metrics)] if self.registry is not None else []),
            ]
        )
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        build_handler, table = runner.server, ConnectionTable(self.limits)
        assert build_handler is not None  # noqa: S101 - `setup` has created it
        server = await asyncio.get_running_loop().create_server(
            lambda: ProbeConnection(build_handler(), table=table), host, port, backlog=128
        )
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()
            await runner.cleanup()

    async def _healthz(self, request: web.Request) -> web.Response:
        return _build_response(report_liveness(_list_problem(self.source.find_liveness_problem())))

    async def _readyz(self, request: web.Request) -> web.Response:
        missing = _list_problem(self.source.find_readiness_problem())
        return _build_response(report_readiness(missing, stopping=False, **self.source.describe_role()))

    async def _metrics(self, request: web.Request) -> web.Response:
        assert self.registry is not None  # noqa: S101 - there is no route without it
        return web.Response(body=generate_latest(self.registry), headers={"Content-Type": CONTENT_TYPE_LATEST})


def _list_problem(problem: str) -> list[str]:
    return [problem] if problem else []


def _build_response(report: HealthReport) -> web.Response:
    return web.json_response(report.body, status=report.status_code)
