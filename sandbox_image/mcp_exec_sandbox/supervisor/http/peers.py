"""Messages of HTTP, and who sends them: limits of peers, and the proof that this is the sandbox."""

import errno
import hashlib
import hmac
import ipaddress
import json
import re
import socket
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from mcp_exec_sandbox.supervisor.execution.events import EventBatch

_PURPOSE = "mcp-exec proof 1"
MAX_CONNECTIONS = 64
MAX_OWN_CONNECTIONS = 16
"""Connections from all addresses of this pod together, so that the code can't use all of them."""
MAX_PEER_CONNECTIONS = 32
"""Connections from one address of another pod. The many readers of one gateway leave room for the operator."""
OWN = "own"
"""Stands for all addresses of this pod."""


def is_nonce(text: str) -> bool:
    """Return whether a text is a nonce: 32 bytes in hexadecimal digits."""
    return re.fullmatch(r"[0-9a-f]{64}", text) is not None


def compute_proof(*, key: str, nonce: str, address: str) -> str:
    """Return the proof for a nonce, to a peer at this address."""
    return hmac.new(key.encode(), f"{_PURPOSE}\n{nonce}\n{address}".encode(), hashlib.sha256).hexdigest()


@dataclass(frozen=True, kw_only=True)
class HttpRequest:
    """A request, at first without its body."""

    method: str
    path: str
    query: str
    authorization: str
    execution: str = ""
    """Id of the execution that the request means. Empty: the last one."""
    peer: str = ""
    """IP address of the client."""
    body: bytes = b""


@dataclass(frozen=True, kw_only=True)
class HttpResponse:
    """A response with a body, or with a stream of NDJSON."""

    status: int
    body: bytes = b""
    stream: AsyncIterator[EventBatch] | None = None
    headers: list[tuple[str, str]] = field(default_factory=list)


def build_response(status: int, content: object, *, headers: list[tuple[str, str]] | None = None) -> HttpResponse:
    """Build a response whose body is `content` as JSON."""
    return HttpResponse(status=status, body=json.dumps(content).encode(), headers=headers or [])


def build_error(status: int, message: str, *, headers: list[tuple[str, str]] | None = None) -> HttpResponse:
    """Build a response whose body names an error."""
    return build_response(status, {"error": message}, headers=headers)


def normalize_address(address: str) -> str:
    """Return an IP address in its shortest form, an IPv4-mapped one as IPv4, and without a zone."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return str(mapped or parsed)


def is_own_address(peer: tuple[Any, ...]) -> bool:
    """Return whether a peer's socket address belongs to this pod: then, and only then, it can be bound here.

    The code can connect from any address of 127.0.0.0/8 and from each interface's, and to any of them.
    """
    address = normalize_address(peer[0])
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    # without the port, but with the scope of a link-local address
    target = (address, 0, *peer[2:]) if family == socket.AF_INET6 else (address, 0)
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind(target)
        except OSError as error:
            # any other error, such as EADDRINUSE, can be brought about by the code
            return error.errno != errno.EADDRNOTAVAIL
    return True


class PeerLimits:
    """Numbers of open connections by peer."""

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()

    def admit(self, peer: tuple[Any, ...]) -> str | None:
        """Count a new connection, and return the name to release. Return None if there are too many."""
        name = OWN if is_own_address(peer) else normalize_address(peer[0])
        limit = MAX_OWN_CONNECTIONS if name == OWN else MAX_PEER_CONNECTIONS
        others = self._open.total() - self._open[OWN]
        # the share of the pod itself is not taken from that of the others
        if self._open[name] >= limit or (name != OWN and others >= MAX_CONNECTIONS - MAX_OWN_CONNECTIONS):
            return None
        self._open[name] += 1
        return name

    def release(self, name: str) -> None:
        """Count a connection as closed."""
        self._open[name] -= 1
        if not self._open[name]:
            del self._open[name]
