"""How much of what a connection was sent its peer has acknowledged."""

import asyncio
import fcntl
import socket
import struct
import termios
from typing import Any, Final

RECEIPT: Final = "receipt"
"""Key of a connection's Receipt in the state of an ASGI scope."""
_INT: Final = struct.Struct("i")
_LOST: Final = 7
"""State of a TCP connection that was reset (`TCP_CLOSE` of `netinet/tcp.h`). Its queue is empty then."""


class Receipt:
    """Whether the system of a connection's peer has acknowledged all bytes that were written."""

    def __init__(self, transport: asyncio.Transport, carrier: asyncio.Transport | None = None) -> None:
        """`carrier` is the transport below one of TLS, with a buffer of its own."""
        self.transport = transport
        self._carrier = carrier
        self._at_end: bool | None = None
        self._has_ended = False

    def note_end(self, error: Exception | None) -> None:
        """Record how the connection ended, before its socket is closed."""
        self._at_end = self.is_complete() if error is None else False
        self._has_ended = True

    def is_complete(self) -> bool | None:
        """Return True if all bytes are acknowledged. Return None if the system does not report it (it is not Linux).

        A peer that closes in good order acknowledges with that what it has received before.
        """
        if self._has_ended:
            return self._at_end
        connection: Any = self.transport.get_extra_info("socket")
        try:
            (queued,) = _INT.unpack(fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, bytes(_INT.size)))
            state = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
        except (AttributeError, OSError, ValueError):
            return None
        buffered = any(each.get_write_buffer_size() for each in (self.transport, self._carrier) if each)
        return state != _LOST and not queued and not buffered


def find_receipt(scope: Any) -> Receipt | None:
    """Return the receipt of a request's connection, or None if the server keeps none."""
    receipt = scope.get("state", {}).get(RECEIPT)
    return receipt if isinstance(receipt, Receipt) else None
