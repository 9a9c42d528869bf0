"""Checks before the operator starts: the API server, the CRDs, permissions, and addresses that isolation forbids."""

import asyncio
import ipaddress
import logging
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from time import monotonic

from mcp_exec_api.constants import EXECUTIONS, GROUP, POOLS, SESSIONS, VERSION
from mcp_exec_common.kube.client import KubeClient, resource_path
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.version import (
    EARLIER_DEFINITIONS,
    describe_deletion,
    describe_support,
    find_earlier_definitions,
    read_version,
)

log = logging.getLogger(__name__)


class AddressUnknown(OSError):
    """The API server's name has no address, so no sandbox could verify its isolation. The text names it."""


class CannotStart(Exception):
    """The operator can't run here; the text says why."""


async def check_definitions(kube: KubeClient, *, wait_seconds: float) -> None:
    """Check that no definition is of an earlier release, before anything is written. Raises CannotStart.

    It waits `wait_seconds` for an API server that does not respond.
    """
    deadline = monotonic() + wait_seconds
    while True:
        try:
            earlier = await find_earlier_definitions(kube)
            break
        except ApiError as error:
            await _wait_for_api(error, deadline)
    if earlier:
        raise CannotStart(f"{EARLIER_DEFINITIONS}: {describe_deletion(earlier)}")


async def _wait_for_api(error: ApiError, deadline: float) -> None:
    """Wait until the next attempt. Raises CannotStart if there is none."""
    if monotonic() >= deadline or error.code in (401, 403):
        raise CannotStart(f"the API server can't be used: {error}") from error
    log.warning("the API server does not respond yet: %s", error)
    await asyncio.sleep(1)


async def check_api(kube: KubeClient, *, watch_nodes: bool, wait_seconds: float) -> None:
    """Check that the API server responds, has the CRDs and lists nodes if they are watched. Raises CannotStart.

    It waits `wait_seconds` for an API server that does not respond, and logs a version that is not supported. Rights in
    a namespace are not checked: they decide only whether that namespace is served.
    """
    deadline = monotonic() + wait_seconds
    while True:
        try:
            resources = await kube.get(f"/apis/{GROUP}/{VERSION}")
            break
        except ApiError as error:
            if error.code == 404:
                raise CannotStart(f"the CRDs of {GROUP}/{VERSION} are not installed") from error
            await _wait_for_api(error, deadline)
    missing = {EXECUTIONS, POOLS, SESSIONS} - {resource["name"] for resource in resources["resources"]}
    if missing:
        raise CannotStart(f"the CRDs of {', '.join(sorted(missing))} are not installed")
    version = await read_version(kube)
    if version is not None and (difference := describe_support(version)):
        log.warning("%s", difference)
    if watch_nodes:
        try:
            await kube.get(resource_path("nodes"), limit="1")
        except ApiError as error:
            raise CannotStart(f"the nodes can't be listed, and MCP_EXEC_WATCH_NODES is not false: {error}") from error


def find_forbidden_addresses(server: str, *, own_ips: Sequence[str], own_port: int) -> tuple[str, ...]:
    """Return the addresses that no sandbox may reach.

    These are the API server's and, for a family of addresses that the API server does not have, those of this operator
    with the port that answers all other pods.

    Args:
        server: the API server as HOST:PORT, or an empty text if pods can't use it.
        own_ips: addresses of the operator's pod.
        own_port: the port that `answering` opens; 0 for none.

    Raises:
        AddressUnknown: the server's name can't be resolved. Sandboxes have no DNS, so they need an address.
    """
    if not server:
        return ()
    host, _, port = server.rpartition(":")
    addresses = _resolve(host.removeprefix("[").removesuffix("]"))
    families = {address.version for address in addresses}
    own = [address for address in map(ipaddress.ip_address, own_ips) if own_port and address.version not in families]
    return (*(_join(each, port) for each in addresses), *(_join(each, own_port) for each in own))


class _Nothing(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """End the connection at once, so that none has to be counted."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - of a stream
        transport.abort()


@asynccontextmanager
async def answering(port: int, *, host: str | None = None) -> AsyncIterator[int]:
    """Accept connections while the context lasts, and serve nothing. Yields the port. With port 0 nothing is opened.

    The port is open to all pods, because a sandbox that could reach it is not isolated. What the operator serves is
    on another one, which is not open to them.
    """
    if not port:
        yield 0
        return
    server = await asyncio.get_running_loop().create_server(_Nothing, host, port)
    try:
        yield port
    finally:
        server.close()


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
