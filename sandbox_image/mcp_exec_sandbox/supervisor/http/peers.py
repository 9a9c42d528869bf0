"""Peers of the supervisor's port: their addresses, whether one is in this pod, and how many connections each may have.

Operator and gateway connect from other pods. Only the code connects from an address of this pod.
"""

import errno
import ipaddress
import socket
from collections import Counter
from typing import Any

MAX_CONNECTIONS = 64
MAX_OWN_CONNECTIONS = 16
"""Connections from all addresses of this pod together, so that the code can't use all of them."""
MAX_PEER_CONNECTIONS = 32
"""Connections from one address of another pod. The many readers of one gateway leave room for the operator."""

OWN = "own"
"""Stands for all addresses of this pod."""


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
