"""Connections to hosts: addresses that the broker refuses, and reasons of connections that fail.

Refused are the broker itself, metadata services of clouds, and the API server.

ToolServers and their token endpoints name hosts, and a host may resolve to any address at any time. Each connection is
checked after its name is resolved, so neither DNS nor a redirect leads elsewhere.
"""

import asyncio
import errno
import signal
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final
from urllib.parse import urlsplit

import aiohttp
from aiohttp.abc import ResolveResult

from mcp_exec_api.reasons.server import ServerReason

Network = IPv4Network | IPv6Network
_Address = IPv4Address | IPv6Address

REFUSED_NETWORKS: Final = (
    ("loopback", ("127.0.0.0/8", "::1/128")),
    ("link-local", ("169.254.0.0/16", "fe80::/10")),
    ("unspecified", ("0.0.0.0/8", "::/128")),
    ("multicast or reserved", ("224.0.0.0/4", "240.0.0.0/4", "ff00::/8")),
    # metadata services outside of the link-local networks: AWS over IPv6, Google over IPv6, Alibaba, Azure
    ("a cloud's metadata service", ("fd00:ec2::/32", "fd20:ce::254/128", "100.100.100.200/32", "168.63.129.16/32")),
)
_TRANSLATED: Final = IPv6Network("64:ff9b::/96")
"""IPv6 addresses that a translator connects to the IPv4 address in their last 32 bits (RFC 6052)."""
_RESOLVE_SECONDS: Final = 5.0
"""Time limit: that of a connection, so that a silent DNS server has a reason of its own."""
_WRONG_PATHS: Final = frozenset({404, 405, 410})
_MAX_NAME: Final = 253
"""Characters of a host name."""


class TimedResolver(aiohttp.ThreadedResolver):
    """The system's resolver, whose requests fail after a few seconds."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Return the addresses of a host. Raises OSError if it does not resolve in time."""
        try:
            async with asyncio.timeout(_RESOLVE_SECONDS):
                return await super().resolve(host, port, family)
        except TimeoutError:
            raise OSError(socket.EAI_AGAIN, f"no answer of DNS within {_RESOLVE_SECONDS:g} s") from None


class AddressRefused(OSError):
    """An address that the broker refuses. The text does not name it: equal errors are reported as one."""

    def __init__(self, address: str, kind: str) -> None:
        super().__init__(errno.EACCES, f"the address is {kind}")
        self.address = address


@dataclass(frozen=True, kw_only=True)
class AddressCheck:
    """Check of the address of each connection that is about to be made."""

    allowed: Sequence[Network] = ()
    """Networks that the broker connects to, whatever they are."""
    api_server: str = ""
    """URL of the API server. A host name in it is not resolved: pods use its IP address."""

    def find_problem(self, address: str) -> str:
        """Return why the broker refuses an address, or an empty text."""
        found = _unwrap(ip_address(address.partition("%")[0]))
        if any(found in network for network in self.allowed):
            return ""
        for kind, networks in REFUSED_NETWORKS:
            if any(found in ip_network(network) for network in networks):
                return kind
        return "that of the API server" if found == self._find_api_server() else ""

    def _find_api_server(self) -> _Address | None:
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


def build_connector(check: AddressCheck) -> aiohttp.TCPConnector:
    """Return the connector of all connections to MCP servers and token endpoints."""
    return aiohttp.TCPConnector(
        limit=0, keepalive_timeout=60, resolver=TimedResolver(), socket_factory=check.open_socket
    )


def _unwrap(address: _Address) -> _Address:
    """Return the IPv4 address that an IPv6 address stands for, or the address."""
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address in _TRANSLATED:
            return IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def explain_connection_error(error: BaseException) -> tuple[ServerReason, str]:
    """Return the reason of a connection that was not made, and a sentence that names the address."""
    at = _name_address(error)
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    detail = getattr(cause, "strerror", None)
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        host = error.host[:_MAX_NAME]
        return ServerReason.NAME_NOT_RESOLVED, f"the name {host} does not resolve" + (f": {detail}" if detail else "")
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        problem = getattr(error.certificate_error, "verify_message", "") or "it is not trusted"
        return ServerReason.TLS_FAILED, f"the certificate{at} is refused: {problem}"
    if isinstance(error, aiohttp.ClientSSLError):
        problem = getattr(cause, "reason", None) or "no TLS"
        return ServerReason.TLS_FAILED, f"no TLS handshake{at}: {str(problem).lower().replace('_', ' ')}"
    if isinstance(error, aiohttp.InvalidURL):
        return ServerReason.INVALID_SPEC, "spec.url is not a valid URL"
    if isinstance(cause, AddressRefused):
        return ServerReason.ADDRESS_REFUSED, f"the broker refused the connection{at}: {cause.strerror}"
    if isinstance(cause, ConnectionRefusedError):
        return ServerReason.CONNECTION_REFUSED, f"nothing listens{at}: connection refused"
    if isinstance(error, TimeoutError):
        return ServerReason.UNREACHABLE, f"no connection{at} in time"
    return ServerReason.UNREACHABLE, f"no connection{at}" + (f": {detail}" if detail else "")


def explain_status(status: int) -> tuple[ServerReason, str]:
    """Return the reason for an HTTP status of 400 or more without an answer of the protocol."""
    reason = ServerReason.WRONG_PATH if status in _WRONG_PATHS else ServerReason.SERVER_ERROR
    return reason, f"the server answers {status}"


def describe_exit(code: int) -> str:
    """Return how a process ended, by its exit code, which is negative for a signal."""
    if code >= 0:
        return f"the command exited with code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"the command was ended by {name}" + (", usually for lack of memory" if name == "SIGKILL" else "")


def _name_address(error: BaseException) -> str:
    if not isinstance(error, aiohttp.ClientConnectorError | aiohttp.ClientConnectorCertificateError):
        return ""
    return f" at {error.host[:_MAX_NAME]}:{error.port}"
