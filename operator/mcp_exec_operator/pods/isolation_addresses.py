"""Addresses by which each sandbox verifies that its NetworkPolicy is enforced."""

import ipaddress
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from mcp_exec_common.kube.objects import Object


class AddressUnknown(OSError):
    """The API server's name has no address, so no sandbox could verify its isolation. The text names it."""


@dataclass(frozen=True, kw_only=True)
class IsolationAddresses:
    """What a sandbox must not reach, and what it can reach if its network works, each as IP:PORT."""

    forbidden: tuple[str, ...] = ()
    """Addresses that answer other pods. Empty skips the check."""
    answering: str = ""
    """The broker, which the pool's policy allows. Empty if there is none."""

    def to_environment(self) -> list[Object]:
        """Return the variables of a sandbox."""
        if not self.forbidden:
            return []
        values = {
            "MCP_EXEC_FORBIDDEN_ADDRESSES": ",".join(self.forbidden),
            "MCP_EXEC_ANSWERING_ADDRESS": self.answering,
        }
        return [{"name": name, "value": value} for name, value in values.items() if value]


NO_ADDRESSES: Final = IsolationAddresses()


def find_forbidden_addresses(server: str, *, own_ips: Sequence[str], own_port: int) -> tuple[str, ...]:
    """Return the addresses that no sandbox may reach.

    These are the API server's and, for a family of addresses that the API server does not have, those of this operator,
    whose port of metrics answers all pods by default.

    Args:
        server: the API server as HOST:PORT, or an empty text if pods can't use it.
        own_ips: addresses of the operator's pod.
        own_port: the operator's port.

    Raises:
        AddressUnknown: the server's name can't be resolved. Sandboxes have no DNS, so they need an address.
    """
    if not server:
        return ()
    host, _, port = server.rpartition(":")
    addresses = _resolve(host.removeprefix("[").removesuffix("]"))
    families = {address.version for address in addresses}
    own = [address for address in map(ipaddress.ip_address, own_ips) if address.version not in families]
    return (*(_join(each, port) for each in addresses), *(_join(each, own_port) for each in own))


def _resolve(host: str) -> list[ipaddress.IPv4Address | ipaddress.IPv6Address]:
    """Return the first address of each family."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise AddressUnknown(f"the API server's name {host!r} can't be resolved: {error}") from error
    addresses = [ipaddress.ip_address(str(each[4][0]).partition("%")[0]) for each in found]
    return list({address.version: address for address in reversed(addresses)}.values())


def _join(address: ipaddress.IPv4Address | ipaddress.IPv6Address, port: str | int) -> str:
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"
