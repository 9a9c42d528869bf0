"""Rate limits: of callers, and of network addresses that send requests without a known caller.

Each replica has its own token buckets, so a caller whose requests reach all replicas has the limit once for each.
"""

import ipaddress
import math
import secrets
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final, Protocol

from cachetools import LRUCache
from starlette.requests import HTTPConnection

from mcp_exec_api.wire.stats import KeyLimits
from mcp_exec_common.util.token_bucket import TokenBucket
from mcp_exec_gateway.core.auth.api_keys import describe_caller
from mcp_exec_gateway.core.http.problems import too_many

_MINUTE: Final = 60.0
_MAX_BUCKETS: Final = 8192
"""More than the keys that a Secret of 1 MiB can hold, so that only buckets of revoked keys are dropped."""


IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network
IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
_MAX_HOPS: Final = 16
"""Last entries of X-Forwarded-For that are read."""
_HEADER: Final = "x-forwarded-for"
_ROWS: Final = 2
_COLUMNS: Final = 1 << 15


class LimitHolder(Protocol):
    """Who sends requests, with its limits."""

    @property
    def name(self) -> str:
        """Name of the caller."""

    @property
    def limits(self) -> KeyLimits:
        """Limits of the caller."""


@dataclass(kw_only=True)
class RateLimiter:
    """Token buckets of the callers with a rate limit. A bucket starts full."""

    clock: Callable[[], float] = time.monotonic
    _buckets: LRUCache[tuple[str, int], TokenBucket] = field(
        default_factory=lambda: LRUCache(maxsize=_MAX_BUCKETS), init=False
    )
    """By the caller's name and limit, so that a changed limit applies at once."""

    def check(self, caller: LimitHolder) -> None:
        """Take one token for a request. Raises HttpProblem if none is left, with the seconds until there is one."""
        per_minute = caller.limits.requests_per_minute
        if per_minute is None:
            return
        now = self.clock()
        bucket = self._buckets.get((caller.name, per_minute))
        if bucket is None:
            bucket = TokenBucket(per_second=per_minute / _MINUTE, burst=per_minute)
            self._buckets[caller.name, per_minute] = bucket
        if not bucket.available(now):
            seconds = bucket.ready_at(now) - now
            detail = f"{describe_caller(caller.name)} may send {per_minute} requests in a minute and has sent them"
            raise too_many(detail, kind="rate-limited", retry_after=max(math.ceil(seconds - 1e-6), 1))
        bucket.spend(1, now)


def find_peer(request: HTTPConnection, *, trusted: Sequence[IpNetwork]) -> str:
    """Return the address that a request comes from; of an IPv6 address its /64, which one client usually has.

    X-Forwarded-For counts only as far as trusted proxies have written it: from its end, up to the first address that
    is no trusted proxy's. Without trusted proxies it is ignored, because every client can send it.
    """
    peer = _parse_address(request.client.host if request.client else "")
    if peer is None:
        return ""
    if trusted and _is_within(peer, trusted):
        hops = ",".join(request.headers.getlist(_HEADER)).rsplit(",", _MAX_HOPS)[-_MAX_HOPS:]
        for text in reversed(hops):
            hop = _parse_address(text.strip())
            if hop is None:
                break
            peer = hop
            if not _is_within(peer, trusted):
                break
    return str(ipaddress.ip_network((peer, 64), strict=False)) if peer.version == 6 else str(peer)


def _parse_address(text: str) -> IpAddress | None:
    try:
        address = ipaddress.ip_address(text[:64])
    except ValueError:
        return None
    return (isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped) or address


def _is_within(address: IpAddress, networks: Sequence[IpNetwork]) -> bool:
    return any(address in network for network in networks)


class PeerLimiter:
    """Token buckets of all peers in 1 MiB, whatever their number: a burst of a minute's requests, then its rate.

    Each peer has a place in each of two tables (a count-min sketch), by a secret hash, and is refused if both are used
    up. Nothing is ever dropped, so no flood of other addresses resets a peer that is refused. Peers that share both
    places share a bucket: among 1,000 busy peers, another one does with a probability of about 0.001.
    """

    def __init__(self, *, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.per_minute = per_minute
        self.clock = clock
        self._salt = secrets.token_bytes(16)
        self._spent = array("d", bytes(8 * _ROWS * _COLUMNS))
        self._at = array("d", bytes(8 * _ROWS * _COLUMNS))

    def take(self, peer: str) -> None:
        """Take a token for one request. Raises HttpProblem if none is left, with the seconds until there is one."""
        now = self.clock()
        places = self._find_places(peer)
        level = min(self._renew(place, now) for place in places)
        missing = level + 1 - self.per_minute
        if missing > 1e-9:
            seconds = missing * _MINUTE / self.per_minute
            detail = (
                f"{self.per_minute} requests in a minute without valid credentials are allowed from one address; "
                "valid API keys are not affected"
            )
            raise too_many(detail, kind="rate-limited", retry_after=max(math.ceil(seconds - 1e-6), 1))
        for place in places:
            self._spent[place] += 1

    def give_back(self, peer: str) -> None:
        """Return the token of a request that turned out to have valid credentials."""
        for place in self._find_places(peer):
            self._spent[place] = max(self._spent[place] - 1, 0.0)

    def _find_places(self, peer: str) -> list[int]:
        digest = blake2b(peer.encode(), key=self._salt, digest_size=4 * _ROWS).digest()
        numbers = (int.from_bytes(digest[4 * row : 4 * row + 4], "big") % _COLUMNS for row in range(_ROWS))
        return [row * _COLUMNS + number for row, number in enumerate(numbers)]

    def _renew(self, place: int, now: float) -> float:
        refilled = max(now - self._at[place], 0.0) * self.per_minute / _MINUTE
        self._spent[place] = spent = max(self._spent[place] - refilled, 0.0)
        self._at[place] = now
        return spent
