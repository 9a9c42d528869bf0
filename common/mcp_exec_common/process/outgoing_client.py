"""Client of HTTP requests to hosts that others name: directly, or through the company's proxy.

The address of a direct connection is checked when it is made. A proxy resolves the name once more, so what it connects
to is checked by the proxy. It is sent no address that is refused here, and no name that resolves to one.
"""

import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any, Final, Self

import aiohttp
from cachetools import TTLCache
from yarl import URL

from mcp_exec_common.process.company_network import CompanyNetwork
from mcp_exec_common.util.addresses import Address, AddressCheck, AddressRefused, TimedResolver, build_connector

_METADATA_NAMES: Final = frozenset({"metadata.google.internal", "metadata.goog", "instance-data.ec2.internal"})
"""Names of metadata services, which a proxy in a cloud would resolve."""
_NAME_SECONDS: Final = 10.0
"""Time that the addresses of a name are used, as long as connections use them."""


class ProxyFailed(aiohttp.ClientConnectionError):
    """The company's proxy did not take a request. The text has no credentials."""


CONNECTION_ERRORS: Final = (
    aiohttp.ClientConnectorError,
    aiohttp.ConnectionTimeoutError,
    ProxyFailed,
    AddressRefused,
)
"""Errors of requests that were not sent."""


@dataclass(frozen=True, kw_only=True)
class OutgoingClient:
    """Sends requests, and follows no redirects."""

    direct: aiohttp.ClientSession
    proxied: aiohttp.ClientSession
    """Connects to proxies only, so the addresses of its connections are not checked."""
    check: AddressCheck
    network: CompanyNetwork
    _addresses: TTLCache[str, list[Address]] = field(default_factory=lambda: TTLCache(1024, _NAME_SECONDS))

    @classmethod
    @asynccontextmanager
    async def open(cls, *, check: AddressCheck, network: CompanyNetwork) -> AsyncIterator[Self]:
        """Open a client, which is closed at the end of the context."""
        async with _open_session(check) as direct, _open_session(None) as proxied:
            yield cls(direct=direct, proxied=proxied, check=check, network=network)

    async def request(
        self, method: str, url: URL, *, tls: ssl.SSLContext | None = None, **options: Any
    ) -> aiohttp.ClientResponse:
        """Send a request and return the response, which the caller closes.

        `tls` is the context of a server with a bundle of its own. Raises CONNECTION_ERRORS if the request is not sent,
        and other errors of aiohttp.
        """
        options |= {"ssl": tls or self.network.tls, "allow_redirects": False}
        if (proxy := await self._find_proxy(url)) is None:
            return await self.direct.request(method, url, **options)
        try:
            response = await self.proxied.request(method, url, proxy=proxy, **options)
        except aiohttp.ClientSSLError:
            raise
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise ProxyFailed(f"no connection to the proxy at {_name(proxy)}") from error
        except aiohttp.ClientHttpProxyError as error:
            raise ProxyFailed(_explain(proxy, error.status)) from None
        if response.status == 407:
            response.close()
            raise ProxyFailed(_explain(proxy, 407))
        return response

    async def _find_proxy(self, url: URL) -> URL | None:
        """Return the proxy of a URL, or None. Raises AddressRefused for an address that no request may lead to."""
        host = url.host or ""
        if (proxy := self.network.proxies.find(url.scheme, host)) is None:
            return None
        addresses = await self._resolve(host)
        if self.network.proxies.is_direct(addresses):
            return None
        problems = [self.check.find_problem(str(address)) for address in addresses]
        if host.rstrip(".").lower() in _METADATA_NAMES:
            problems.append("a cloud's metadata service")
        if problem := next(filter(None, problems), ""):
            raise AddressRefused(host, problem, place=f"{host}:{url.port}")
        return URL(proxy)

    async def _resolve(self, host: str) -> list[Address]:
        """Return the addresses of a host, or none if only the proxy resolves it."""
        if (found := self._addresses.get(host)) is None:
            try:
                found = [ip_address(host.partition("%")[0])]
            except ValueError:
                try:
                    results = await TimedResolver().resolve(host, 0, socket.AF_UNSPEC)
                except OSError:
                    results = []
                found = [ip_address(each["host"].partition("%")[0]) for each in results]
            self._addresses[host] = found
        return found


def _open_session(check: AddressCheck | None) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=build_connector(check),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        trust_env=False,
    )


def _name(proxy: URL) -> str:
    return f"{proxy.host}:{proxy.port}"


def _explain(proxy: URL, status: int) -> str:
    """Return why a proxy sent no request, without its credentials."""
    meaning = {407: ": it requires other credentials", 403: ": it refuses the address"}.get(status, "")
    return f"the proxy at {_name(proxy)} answers {status}{meaning}"
