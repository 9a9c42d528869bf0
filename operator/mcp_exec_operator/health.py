"""The operator's own HTTP server: liveness, readiness and metrics."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from time import monotonic

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from mcp_exec_operator.kube.leader_election import LeaderElector
from mcp_exec_operator.metrics import Metrics
from mcp_exec_operator.resync import Sweep


@dataclass(frozen=True, kw_only=True)
class Health:
    """Answers `/healthz`, `/readyz` and `/metrics`. That it answers at all shows that the loop turns."""

    elector: LeaderElector
    sweep: Sweep
    metrics: Metrics
    stuck_seconds: float
    """Seconds without the end of a sweep after which the operator counts as stuck."""

    def why_unhealthy(self) -> str:
        """What is wrong, or an empty text. An operator that stands by does nothing that could go wrong."""
        if not self.elector.is_leader:
            return ""
        silence = monotonic() - self.sweep.turned_at
        if silence > self.stuck_seconds:
            return f"no sweep has ended for {silence:.0f} s"
        if self.sweep.watches_are_deaf:
            return "the watches don't tell what the sweeps find"
        return ""

    def why_not_ready(self) -> str:
        """What is missing, or an empty text. Who stands by is ready to take over, and a rollout may go on."""
        if self.elector.is_leader:
            return "" if self.sweep.done.is_set() else "the first sweep is not over"
        return self.elector.problem

    @asynccontextmanager
    async def serving(self, port: int, *, host: str | None = None) -> AsyncIterator[int]:
        """Serves while the context stands; yields the port, which is a free one where 0 was asked for."""
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
        return _answer(self.why_unhealthy())

    async def _readyz(self, request: web.Request) -> web.Response:
        leads = self.elector.is_leader
        return _answer(self.why_not_ready(), fine="leads" if leads else f"stands by: {self.elector.holder} leads")

    async def _metrics(self, request: web.Request) -> web.Response:
        return web.Response(body=generate_latest(self.metrics.registry), headers={"Content-Type": CONTENT_TYPE_LATEST})


def _answer(wrong: str, *, fine: str = "ok") -> web.Response:
    return web.Response(text=f"{wrong or fine}\n", status=503 if wrong else 200)
