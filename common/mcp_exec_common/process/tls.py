"""TLS of a process's own ports, by the certificate of a mounted Secret, which may change while it is served."""

import asyncio
import logging
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from mcp_exec_common.process.connections import ConnectionTable
from mcp_exec_common.process.mounts import MountedFolder

log = logging.getLogger(__name__)

CERTIFICATE: Final = "tls.crt"
KEY: Final = "tls.key"
"""Entries of a Secret of the type kubernetes.io/tls."""
_SHUTDOWN_SECONDS: Final = 5
"""Time for a client to respond to the end of its TLS connection."""


class MountedCertificate:
    """A certificate and its key in a folder. New connections use the present ones, and open ones go on."""

    def __init__(self, path: Path) -> None:
        """Read them. Raises OSError if the folder can't be read, and ValueError if it has no pair that fits."""
        self.context: Final = _build_context()
        self._folder = MountedFolder(path=path)
        self._pair: tuple[bytes, bytes] | None = None
        self._take(self._folder.read())

    async def follow(self) -> None:
        """Read them again when they change, for ever. A pair that does not fit is logged, and the last one stays."""
        await self._folder.follow(self._take)

    def _take(self, entries: Mapping[str, bytes]) -> None:
        for name in (CERTIFICATE, KEY):
            if name not in entries:
                raise ValueError(f"{self._folder.path} has no entry {name}")
        pair = entries[CERTIFICATE], entries[KEY]
        if pair == self._pair:
            return
        folder = self._folder.find_present()
        # a context that has refused a key keeps the certificate, so the pair is tried in another one
        for context in (_build_context(), self.context):
            try:
                context.load_cert_chain(folder / CERTIFICATE, folder / KEY, password=lambda: "")
            except ssl.SSLError as error:
                raise ValueError(
                    f"{CERTIFICATE} and {KEY} are no certificate and key in PEM that fit: {error}"
                ) from error
        if self._pair is not None:
            log.info("new connections use the changed certificate", extra={"path": str(self._folder.path)})
        self._pair = pair


def _build_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


class HandshakeProtocol(asyncio.Protocol):
    """Secures a connection, and passes it on to the protocol that serves it.

    The connection has its place in the table from the beginning, so handshakes that never end are bounded like requests
    that never come.
    """

    def __init__(
        self,
        *,
        certificate: MountedCertificate,
        table: ConnectionTable,
        build: Callable[[asyncio.Transport], asyncio.Protocol],
    ) -> None:
        """`build` returns the protocol that serves the connection. Its argument carries the secured bytes."""
        self._context = certificate.context
        self._table = table
        self._build = build
        self._early: list[bytes] = []
        """What came with the end of the handshake, before the connection was passed on."""
        self._has_ended = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection, or abort it if there is no room for it."""
        self._carrier = transport
        transport.pause_reading()  # until the handshake begins
        name = transport.get_extra_info("peername")
        self._peer = name[0] if name else ""
        if not self._table.admit(self, self._peer):
            transport.abort()
            return
        self._shaking = asyncio.get_running_loop().create_task(self._shake_hands())

    def data_received(self, data: bytes) -> None:
        """Keep the first data for the protocol that serves the connection."""
        self._early.append(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Handle an end before the connection was passed on."""
        self._has_ended = True
        self._table.remove(self, self._peer)

    def close_idle(self) -> None:
        """Close the connection for the benefit of a new one."""
        self._carrier.abort()

    async def _shake_hands(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            secured = await loop.start_tls(
                self._carrier,
                self,
                self._context,
                server_side=True,
                ssl_handshake_timeout=self._table.limits.head_seconds,
                ssl_shutdown_timeout=_SHUTDOWN_SECONDS,
            )
        except OSError as error:  # also of ssl, and the end of the time
            log.debug("a TLS handshake failed: %s", error, extra={"peer": self._peer})
            self._carrier.abort()
            return
        finally:
            self._table.remove(self, self._peer)
        if secured is None or self._has_ended:
            return
        protocol = self._build(self._carrier)
        secured.set_protocol(protocol)
        protocol.connection_made(secured)
        for data in self._early:
            protocol.data_received(data)
