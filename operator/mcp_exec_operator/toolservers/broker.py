"""Broker discovery: its Service for sandboxes, its ready replicas for the operator's own requests."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, Self

import aiohttp

from mcp_exec_api.constants import BROKER_PORT
from mcp_exec_common.broker.client import BrokerClient, follow_broker
from mcp_exec_common.broker.grants import GrantSigner
from mcp_exec_common.kube.client import KubeClient, resource_path
from mcp_exec_common.kube.reflector import Reflector

_CALLS_PORT: Final = "calls"
"""Name of the port that sandboxes call."""


@dataclass(kw_only=True, eq=False)
class BrokerDiscovery:
    """The broker's addresses as watches report them."""

    namespace: str
    """The release's namespace."""
    service: str
    """Name of the broker's Service and Endpoints."""
    client: BrokerClient
    """Client of all ready replicas."""
    services: Reflector
    endpoints: Reflector

    @classmethod
    def create(
        cls, *, kube: KubeClient, session: aiohttp.ClientSession, key: bytes, namespace: str, service: str
    ) -> Self:
        """Create the discovery of the broker behind a Service. `key` signs grants and service tokens."""
        client, endpoints = follow_broker(
            kube=kube, session=session, namespace=namespace, service=service, key=key, sender="operator"
        )
        path = resource_path("services", namespace=namespace)
        return cls(
            namespace=namespace,
            service=service,
            client=client,
            services=Reflector(kube=kube, path=path, fields=f"metadata.name={service}"),
            endpoints=endpoints,
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Follow Service and Endpoints while the context lasts."""
        async with self.services.run_in_background(), self.endpoints.run_in_background():
            yield

    async def wait_until_synced(self) -> None:
        """Wait until Service and Endpoints were listed once."""
        await self.services.synced.wait()
        await self.endpoints.synced.wait()

    @property
    def signer(self) -> GrantSigner:
        """The signer of grants."""
        return self.client.signer

    @property
    def url(self) -> str | None:
        """The URL that sandboxes call, by IP address since they have no DNS; None until the Service is known."""
        service = self.services.items.get((self.namespace, self.service))
        spec = (service or {}).get("spec") or {}
        address = str(spec.get("clusterIP") or "")
        if not address or address == "None":
            return None
        ports = (port["port"] for port in spec.get("ports") or [] if port.get("name") == _CALLS_PORT)
        number = next(ports, BROKER_PORT)
        return f"http://[{address}]:{number}" if ":" in address else f"http://{address}:{number}"
