"""Serves the gateway, and stops it in steps."""

import asyncio
import logging
import signal
from typing import Final

from starlette.types import ASGIApp

from mcp_exec_common.process.http_server import HttpServer, build_server
from mcp_exec_gateway.dependencies import Dependencies

log = logging.getLogger(__name__)

KEEP_ALIVE_SECONDS: Final = 75
"""Longer than the minute after which load balancers close what is idle: it is theirs to close."""
_LAST_SECONDS: Final = 5
"""After all waits are released: what a connection may take to have its answer sent."""


async def serve(app: ASGIApp, *, dependencies: Dependencies, server: HttpServer | None = None) -> None:
    """Serves until SIGTERM or SIGINT, and then for as long as the settings let requests finish."""
    settings = dependencies.settings
    server = server or build_server(
        app,
        port=settings.port,
        keep_alive_seconds=KEEP_ALIVE_SECONDS,
        shutdown_seconds=settings.shutdown_seconds + _LAST_SECONDS,
    )
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    serving = asyncio.create_task(server.serve())
    stopping = asyncio.create_task(stop.wait())
    announcing = asyncio.create_task(_announce(server, dependencies))
    try:
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not serving.done():
            await _shut_down(server, dependencies, serving)
        await serving
    finally:
        stopping.cancel()
        announcing.cancel()
        if not serving.done():
            serving.cancel()
            await asyncio.wait({serving})


async def _announce(server: HttpServer, dependencies: Dependencies) -> None:
    await server.listening.wait()
    for reflector in dependencies.reflectors.values():
        await reflector.synced.wait()
    log.info("ready", extra={"port": server.config.port, "namespaces": dependencies.settings.namespaces})


async def _shut_down(server: HttpServer, dependencies: Dependencies, serving: "asyncio.Task[None]") -> None:
    settings, lifecycle = dependencies.settings, dependencies.lifecycle
    log.info("stopping: no longer ready")
    lifecycle.draining.set()
    await asyncio.wait({serving}, timeout=settings.drain_seconds)
    # streams are resumed elsewhere at once; waits keep their connections for a while
    server.should_exit = True
    lifecycle.closing.set()
    await asyncio.wait({serving}, timeout=settings.shutdown_seconds)
    dependencies.executions.release()
