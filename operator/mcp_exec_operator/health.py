"""The operator's own HTTP server: liveness, readiness and metrics."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from mcp_exec_common.process.health import HealthReport, report_liveness, report_readiness


@dataclass(frozen=True, kw_only=True)
class HealthServer:
    """Serves `/healthz`, `/readyz` and `/metrics`. A response of any kind shows that the event loop runs."""

    find_liveness_problem: Callable[[], str]
    """Returns why the process should be restarted, or an empty text."""
    find_readiness_problem: Callable[[], str]
    """Returns why the process is not ready, or an empty text."""
    describe_role: Callable[[], dict[str, str]]
    """Returns the role of the process, and the leader if it is another, as the body of `/readyz` has them."""
    registry: CollectorRegistry

    @asynccontextmanager
    async def serving(self, port: int, *, host: str | None = None) -> AsyncIterator[int]:
        """Serve while the context lasts. Yields the port, which is a free one if `port` is 0."""
        app = web.Application()
        app.add_routes(
            [
                web.get("/healthz", self._healthz),
                web.get("/readyz", self._readyz),
                web.get("/metrics", self._metrics),
            ]
        )
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        try:
            await web.TCPSite(runner, host=host, port=port).start()
            yield runner.addresses[0][1]
        finally:
            await runner.cleanup()

    async def _healthz(self, request: web.Request) -> web.Response:
        return _build_response(report_liveness(_list_problem(self.find_liveness_problem())))

    async def _readyz(self, request: web.Request) -> web.Response:
        missing = _list_problem(self.find_readiness_problem())
        return _build_response(report_readiness(missing, stopping=False, **self.describe_role()))

    async def _metrics(self, request: web.Request) -> web.Response:
        return web.Response(body=generate_latest(self.registry), headers={"Content-Type": CONTENT_TYPE_LATEST})


def _list_problem(problem: str) -> list[str]:
    return [problem] if problem else []


def _build_response(report: HealthReport) -> web.Response:
    return web.json_response(report.body, status=report.status_code)
