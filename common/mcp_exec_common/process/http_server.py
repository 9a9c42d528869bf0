"""HTTP servers of the processes: uvicorn, with heads that are bounded, and an end that leaves requests some time."""

import asyncio
import contextlib
import math
import socket
from collections.abc import Generator
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD_BYTES: Final = 96 * 1024
"""Request line and headers: above all a grant, whose list of tools may be long. Uvicorn has no bound of its own."""
_HOST: Final = "0.0.0.0"  # noqa: S104 - it is a pod


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


class HttpServer(uvicorn.Server):
    """A server that leaves signals to others, and tells when it listens."""

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


def build_server(
    app: Any, *, port: int, keep_alive_seconds: int, shutdown_seconds: float, host: str = _HOST
) -> HttpServer:
    """A server, not started.

    A connection without a request is closed after `keep_alive_seconds`; told to exit, the server gives requests under
    way `shutdown_seconds`, rounded up, until their answers are sent.
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
