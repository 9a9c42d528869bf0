"""The HTTP server: uvicorn, with bounds of its own and a shutdown in steps."""

import asyncio
import contextlib
import logging
import math
import signal
import socket
from collections.abc import Generator
from typing import Any, Final

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from mcp_exec_gateway.dependencies import Dependencies
from mcp_exec_gateway.settings import Settings

log = logging.getLogger(__name__)

MAX_HEAD_BYTES: Final = 64 * 1024
"""Request line and headers; uvicorn has no bound of its own."""
_LAST_SECONDS: Final = 5
"""After all waits are released: what a connection may take to have its answer sent."""


class BoundedProtocol(HttpToolsProtocol):
    """HTTP/1.1 whose request heads are bounded."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._in_head = True
        self._head_bytes = 0

    def on_message_begin(self) -> None:
        """A request begins."""
        self._in_head, self._head_bytes = True, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Its head is whole."""
        self._in_head = False
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        """Takes data of the connection, and ends it where a head grows too large."""
        super().data_received(data)
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self.transport.close()


class Server(uvicorn.Server):
    """A server that leaves signals to `serve`, and tells when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listens."""
        await super().startup(sockets)
        self.listening.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Captures none."""
        yield


def make_server(app: ASGIApp, *, settings: Settings, host: str = "0.0.0.0") -> Server:  # noqa: S104 - it is a pod
    """The server, not started."""
    config = uvicorn.Config(
        app,
        host=host,
        port=settings.port,
        http=BoundedProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=math.ceil(settings.shutdown_seconds) + _LAST_SECONDS,
    )
    return Server(config)


async def serve(app: ASGIApp, *, dependencies: Dependencies, server: Server | None = None) -> None:
    """Serves until SIGTERM or SIGINT, and then for as long as the settings let requests finish."""
    server = server or make_server(app, settings=dependencies.settings)
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


async def _announce(server: Server, dependencies: Dependencies) -> None:
    await server.listening.wait()
    for reflector in dependencies.reflectors.values():
        await reflector.synced.wait()
    log.info("ready", extra={"port": server.config.port, "namespaces": dependencies.settings.namespaces})


async def _shut_down(server: Server, dependencies: Dependencies, serving: "asyncio.Task[None]") -> None:
    settings, lifecycle = dependencies.settings, dependencies.lifecycle
    log.info("stopping: no longer ready")
    lifecycle.draining.set()
    await asyncio.wait({serving}, timeout=settings.drain_seconds)
    # streams are resumed elsewhere at once; waits keep their connections for a while
    server.should_exit = True
    lifecycle.closing.set()
    await asyncio.wait({serving}, timeout=settings.shutdown_seconds)
    dependencies.executions.release()
