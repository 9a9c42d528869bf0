"""Limits on the connections of an HTTP server, and the table that enforces them.

A connection that waits for a request may be closed at any time; one that serves a request may not. So in a full table
the connection that has waited longest makes room, and a probe of the kubelet always gets in.
"""

from dataclasses import dataclass, field
from typing import Final, Protocol

RESERVE: Final = 16
"""Connections above the maximum for addresses that have none: probes, while every other connection serves a request."""


@dataclass(frozen=True, kw_only=True)
class ConnectionLimits:
    """Limits of one port."""

    max_connections: int = 4096
    """Open connections."""
    max_per_peer: int = 1024
    """Open connections of one address. A proxy or an ingress is one address for all of its clients."""
    head_seconds: float = 10
    """Time limit in seconds for a request's head, from the connection's start or the head's first byte."""
    body_seconds: float = 40
    """Time limit in seconds for a request's body, with a second more for each `body_bytes_per_second` that have, and
    the longest pause in it."""
    body_bytes_per_second: int = 64 * 1024
    """Mean rate of arrival that a large body needs: 0.5 Mbit/s."""
    write_seconds: float = 60
    """Time limit in seconds for a client to read what fills the buffer of a response."""


class Closable(Protocol):
    """A connection that the table can close. It is hashable by its identity."""

    def close_idle(self) -> None:
        """Close the connection, which serves no request."""


@dataclass
class _Peer:
    address: str
    waiting: dict[Closable, None] = field(default_factory=dict)
    """Connections that wait for a request; the one that has waited longest is first."""
    active: set[Closable] = field(default_factory=set)
    """Connections that serve a request."""

    def __len__(self) -> int:
        return len(self.waiting) + len(self.active)


class ConnectionTable:
    """The open connections of one port, by the address of their clients."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self._peers: dict[str, _Peer] = {}
        self._open = 0

    def __len__(self) -> int:
        return self._open

    def admit(self, connection: Closable, peer: str) -> bool:
        """Add a new connection. Return False if there is no room, because too many requests are served."""
        own = self._peers.get(peer)
        if own is not None and len(own) >= self.limits.max_per_peer:
            if not self._evict(own):
                return False
        elif self._open >= self.limits.max_connections:
            candidates = [each for each in self._peers.values() if each.waiting]
            has_room = bool(candidates) and self._evict(max(candidates, key=len))
            if not has_room and (own is not None or self._open >= self.limits.max_connections + RESERVE):
                return False
        self._peers.setdefault(peer, _Peer(peer)).waiting[connection] = None
        self._open += 1
        return True

    def set_active(self, connection: Closable, peer: str) -> None:
        """Record that the connection serves a request."""
        own = self._peers.get(peer)
        if own is not None and connection in own.waiting:
            del own.waiting[connection]
            own.active.add(connection)

    def set_waiting(self, connection: Closable, peer: str) -> None:
        """Record that the connection waits for its next request."""
        own = self._peers.get(peer)
        if own is not None and connection in own.active:
            own.active.discard(connection)
            own.waiting[connection] = None

    def remove(self, connection: Closable, peer: str) -> None:
        """Remove a closed connection. One that is not in the table is ignored."""
        own = self._peers.get(peer)
        if own is None or (connection not in own.waiting and connection not in own.active):
            return
        own.waiting.pop(connection, None)
        own.active.discard(connection)
        self._open -= 1
        if not own:
            del self._peers[peer]

    def _evict(self, own: _Peer) -> bool:
        """Close the connection of a peer that has waited longest for a request. Return False if there is none."""
        if not own.waiting:
            return False
        connection = next(iter(own.waiting))
        self.remove(connection, own.address)
        connection.close_idle()
        return True
