"""Runs the HTTP server and shuts it down in steps."""

import asyncio
import logging
import signal
from typing import Final

from starlette.types import ASGIApp

from mcp_exec_common.process.http_server import HttpServer, build_server
from mcp_exec_common.process.setup import exempt_started_objects
from mcp_exec_gateway.dependencies import Dependencies

log = logging.getLogger(__name__)

KEEP_ALIVE_SECONDS: Final = 75
"""Longer than the usual idle time-out of load balancers, 60 s, so that they and not the gateway close connections."""
_FINAL_SECONDS: Final = 5
"""Time to send the responses after all waits have ended."""


async def serve(
    app: ASGIApp, *, dependencies: Dependencies, server: HttpServer | None = None, metrics_app: ASGIApp | None = None
) -> None:
    """Serve until SIGTERM or SIGINT, then drain and shut down within the times of the settings.

    `metrics_app` is served at the port of metrics.
    """
    settings = dependencies.settings
    metrics_server = metrics_app and build_server(
        metrics_app,
        port=settings.metrics_port,
        keep_alive_seconds=KEEP_ALIVE_SECONDS,
        shutdown_seconds=1,
        limits=settings.connection_limits,
    )
    server = server or build_server(
        app,
        port=settings.port,
        keep_alive_seconds=KEEP_ALIVE_SECONDS,
        shutdown_seconds=settings.shutdown_seconds + _FINAL_SECONDS,
        limits=settings.connection_limits,
    )
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    serving = asyncio.create_task(server.serve())
    measuring = asyncio.create_task(metrics_server.serve()) if metrics_server else None
    stopping = asyncio.create_task(stop.wait())
    reporting = asyncio.create_task(_log_ready(server, metrics_server, dependencies))
    try:
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not serving.done():
            await _shut_down(server, dependencies, serving)
        await serving
    finally:
        stopping.cancel()
        reporting.cancel()
        if metrics_server and measuring:
            metrics_server.should_exit = metrics_server.force_exit = True
            await asyncio.wait({measuring}, timeout=_FINAL_SECONDS)
        if not serving.done():
            serving.cancel()
            await asyncio.wait({serving})


async def _log_ready(server: HttpServer, metrics_server: HttpServer | None, dependencies: Dependencies) -> None:
    await server.listening.wait()
    if metrics_server:
        await metrics_server.listening.wait()
    for reflector in dependencies.reflectors.values():
        if reflector.required:
            await reflector.synced.wait()
    exempt_started_objects()
    log.info("ready", extra={"port": server.config.port, "namespaces": dependencies.settings.namespaces})


async def _shut_down(server: HttpServer, dependencies: Dependencies, serving: "asyncio.Task[None]") -> None:
    settings, shutdown = dependencies.settings, dependencies.shutdown
    log.info("stopping: no longer ready")
    shutdown.draining.set()
    await asyncio.wait({serving}, timeout=settings.drain_seconds)
    # event streams end at once, because clients can resume them; waits keep their connections for a while
    server.should_exit = True
    shutdown.closing.set()
    await asyncio.wait({serving}, timeout=settings.shutdown_seconds)
    dependencies.index.shut_down()
