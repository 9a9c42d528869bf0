"""HTTP server of the processes: uvicorn with bounded request heads and a graceful shutdown."""

import asyncio
import contextlib
import math
import socket
from collections.abc import Generator
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD_BYTES: Final = 96 * 1024
"""Maximum bytes of request line and headers. A grant with many tools is the longest one. Uvicorn itself has no
limit."""
_HOST: Final = "0.0.0.0"  # noqa: S104 - it runs in a pod


class BoundedProtocol(HttpToolsProtocol):
    """HTTP/1.1 protocol with bounded request heads."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._in_head = True
        self._head_bytes = 0

    def on_message_begin(self) -> None:
        """Handle the start of a request."""
        self._in_head, self._head_bytes = True, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Handle the end of the request's head."""
        self._in_head = False
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        """Handle received data. Close the connection if a head is too large."""
        super().data_received(data)
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self.transport.close()


class HttpServer(uvicorn.Server):
    """Uvicorn server that leaves signals to the process and reports when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen."""
        await super().startup(sockets)
        self.listening.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Capture no signals."""
        yield


def build_server(
    app: Any, *, port: int, keep_alive_seconds: int, shutdown_seconds: float, host: str = _HOST
) -> HttpServer:
    """Build a server without starting it.

    The server closes a connection without a request after `keep_alive_seconds`. At shutdown, running requests have
    `shutdown_seconds`, rounded up, to send their responses.
    """
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        http=BoundedProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=keep_alive_seconds,
        timeout_graceful_shutdown=math.ceil(shutdown_seconds),
    )
    return HttpServer(config)
