"""Where the broker is: its Service for sandboxes, its ready replicas for the operator's own questions."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, Self

import aiohttp

from mcp_exec_api.constants import BROKER_PORT
from mcp_exec_common.broker.client import BrokerClient, ready_addresses
from mcp_exec_common.broker.grants import GrantSigner
from mcp_exec_common.kube.client import KubeClient, resource_path
from mcp_exec_common.kube.reflector import Reflector

_CALLS: Final = "calls"
_CONTROL: Final = "control"


@dataclass(kw_only=True, eq=False)
class BrokerLink:
    """The broker as watches tell of it. Nothing here waits but `running`."""

    namespace: str
    """The release's namespace."""
    service: str
    """The name of its Service and Endpoints."""
    services: Reflector
    endpoints: Reflector
    signer: GrantSigner
    session: aiohttp.ClientSession
    brokers: BrokerClient = field(init=False)
    """All replicas of it."""

    def __post_init__(self) -> None:
        self.brokers = BrokerClient(
            session=self.session, signer=self.signer, sender="operator", addresses=self.control_addresses
        )

    @classmethod
    def create(
        cls, *, kube: KubeClient, session: aiohttp.ClientSession, key: bytes, namespace: str, service: str
    ) -> Self:
        """Follows the Service of that name."""
        fields = f"metadata.name={service}"
        return cls(
            namespace=namespace,
            service=service,
            services=Reflector(kube=kube, path=resource_path("services", namespace=namespace), fields=fields),
            endpoints=Reflector(kube=kube, path=resource_path("endpoints", namespace=namespace), fields=fields),
            signer=GrantSigner(key=key),
            session=session,
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Follows it while the context stands."""
        async with self.services.run_in_background(), self.endpoints.run_in_background():
            yield

    @property
    def url(self) -> str | None:
        """Where sandboxes call it, by its address, as they have no DNS; None while its Service is not known."""
        found = self.services.items.get((self.namespace, self.service))
        spec = (found or {}).get("spec") or {}
        address = str(spec.get("clusterIP") or "")
        if not address or address == "None":
            return None
        port = next((each["port"] for each in spec.get("ports") or [] if each.get("name") == _CALLS), BROKER_PORT)
        return f"http://[{address}]:{port}" if ":" in address else f"http://{address}:{port}"

    def control_addresses(self) -> list[str]:
        """HOST:PORT of the control interface of each replica that is ready."""
        return ready_addresses(self.endpoints.items.get((self.namespace, self.service)), port=_CONTROL)
