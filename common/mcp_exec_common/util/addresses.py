"""Connections to hosts that others name: addresses that a process refuses.

Refused are the process's own host, the other parts of the release, metadata services of clouds, and the API server.

A host may resolve to any address at any time. Each connection is checked after its name is resolved, so neither DNS nor
a redirect leads elsewhere.
"""

import asyncio
import errno
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final
from urllib.parse import urlsplit

import aiohttp
from aiohttp.abc import ResolveResult

Network = IPv4Network | IPv6Network
Address = IPv4Address | IPv6Address

REFUSED_NETWORKS: Final = (
    ("loopback", ("127.0.0.0/8", "::1/128")),
    ("link-local", ("169.254.0.0/16", "fe80::/10")),
    ("unspecified", ("0.0.0.0/8", "::/128")),
    ("multicast or reserved", ("224.0.0.0/4", "240.0.0.0/4", "ff00::/8")),
    # metadata services outside of the link-local networks: AWS over IPv6, Google over IPv6, Alibaba, Azure
    ("a cloud's metadata service", ("fd00:ec2::/32", "fd20:ce::254/128", "100.100.100.200/32", "168.63.129.16/32")),
)
_BITS: Final = 0xFFFFFFFF
_EMBEDDINGS: Final[tuple[tuple[str, tuple[Callable[[int], int], ...]], ...]] = (
    # IPv4-mapped, IPv4-compatible (RFC 4291), IPv4-translated (RFC 2765), the well-known prefix of NAT64 (RFC 6052)
    *((network, (lambda bits: bits,)) for network in ("::ffff:0:0/96", "::/96", "::ffff:0:0:0/96", "64:ff9b::/96")),
    # local prefixes of NAT64 (RFC 8215) of 96, 64, 56 and 48 bits, whose octet 8 is skipped (RFC 6052)
    (
        "64:ff9b:1::/48",
        (
            lambda bits: bits,
            lambda bits: bits >> 24,
            lambda bits: (bits >> 64 & 0xFF) << 24 | bits >> 32 & 0xFFFFFF,
            lambda bits: (bits >> 64 & 0xFFFF) << 16 | bits >> 40 & 0xFFFF,
        ),
    ),
    # 6to4 (RFC 3056); Teredo (RFC 4380) with the address of its server, and the inverted one of the client
    ("2002::/16", (lambda bits: bits >> 80,)),
    ("2001::/32", (lambda bits: bits >> 64, lambda bits: ~bits)),
)
"""Networks of IPv6 addresses that a gateway connects to an IPv4 address in them, and where it may be."""
_ISATAP: Final = frozenset({0x00005EFE, 0x02005EFE})
"""Bits before the IPv4 address at the end of an address of ISATAP (RFC 5214), in any network."""
_THIS_NETWORK: Final = IPv4Network("0.0.0.0/8")
_RESOLVE_SECONDS: Final = 5.0
"""Time limit: that of a connection, so that a silent DNS server has a reason of its own."""


class TimedResolver(aiohttp.ThreadedResolver):
    """The system's resolver, whose requests fail after a few seconds."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Return the addresses of a host. Raises OSError if it does not resolve, or not in time."""
        try:
            async with asyncio.timeout(_RESOLVE_SECONDS):
                return await super().resolve(host, port, family)
        except TimeoutError:
            raise OSError(socket.EAI_AGAIN, f"no answer of DNS within {_RESOLVE_SECONDS:g} s") from None
        except UnicodeError:  # of the codec of names, for an empty label or one above 63 characters
            raise OSError(socket.EAI_NONAME, "it is no name that DNS can have") from None


class AddressRefused(OSError):
    """An address that the process refuses. The text does not name it: equal errors are reported as one.

    `place` is host and port of a request that would have gone to a proxy.
    """

    def __init__(self, address: str, kind: str, *, place: str = "") -> None:
        super().__init__(errno.EACCES, f"the address is {kind}")
        self.address = address
        self.place = place


@dataclass(frozen=True, kw_only=True)
class AddressCheck:
    """Check of the address of each connection that is about to be made."""

    allowed: Sequence[Network] = ()
    """Networks that the process connects to, whatever they are."""
    api_server: str = ""
    """URL of the API server. A host name in it is not resolved: pods use its IP address."""
    describe_own: Callable[[Address], str] = lambda address: ""
    """Returns what of the release has an address, or an empty text."""

    def find_problem(self, address: str) -> str:
        """Return why the process refuses an address, or an empty text."""
        found = ip_address(address.partition("%")[0])
        if self._is_allowed(found):
            return ""
        candidates = (each for each in (found, *_find_embedded(found)) if not self._is_allowed(each))
        return next(filter(None, map(self._find_problem, candidates)), "")

    def _find_problem(self, found: Address) -> str:
        for kind, networks in REFUSED_NETWORKS:
            if any(found in ip_network(network) for network in networks):
                return kind
        return "that of the API server" if found == self._find_api_server() else self.describe_own(found)

    def _is_allowed(self, found: Address) -> bool:
        return any(found in network for network in self.allowed)

    def _find_api_server(self) -> Address | None:
        try:
            return ip_address(urlsplit(self.api_server).hostname or "")
        except ValueError:
            return None

    def open_socket(self, info: aiohttp.AddrInfoType) -> socket.socket:
        """Return a socket for one of the addresses of a host. Raises AddressRefused."""
        family, kind, protocol, _, address = info
        if problem := self.find_problem(str(address[0])):
            raise AddressRefused(str(address[0]), problem)
        return socket.socket(family=family, type=kind, proto=protocol)


def build_connector(check: AddressCheck | None) -> aiohttp.TCPConnector:
    """Return a connector of connections to hosts that others name, or without a check, to proxies."""
    open_socket = None if check is None else check.open_socket
    return aiohttp.TCPConnector(limit=0, keepalive_timeout=60, resolver=TimedResolver(), socket_factory=open_socket)


def _find_embedded(address: Address) -> list[IPv4Address]:
    """Return the IPv4 addresses that an IPv6 address may lead to."""
    if not isinstance(address, IPv6Address) or address.is_loopback:
        return []
    bits = int(address)
    places = [place for network, each in _EMBEDDINGS if address in IPv6Network(network) for place in each]
    found = [IPv4Address(place(bits) & _BITS) for place in places]
    if bits >> 32 & _BITS in _ISATAP:
        found.append(IPv4Address(bits & _BITS))
    # where a prefix has several places, zeros are in those that are not used; nothing is at such an address
    return [each for each in found if len(found) == 1 or each not in _THIS_NETWORK]
