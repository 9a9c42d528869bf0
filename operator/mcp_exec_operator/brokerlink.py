"""Where the broker is: its Service for sandboxes, its ready replicas for the operator's own questions."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, Self

import aiohttp

from mcp_exec_api.brokers import Brokers, addresses_of
from mcp_exec_api.grants import Signer
from mcp_exec_api.kube import Kube, path_of
from mcp_exec_api.names import BROKER_PORT
from mcp_exec_api.reflector import Reflector

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
    signer: Signer
    session: aiohttp.ClientSession
    brokers: Brokers = field(init=False)
    """All replicas of it."""

    def __post_init__(self) -> None:
        self.brokers = Brokers(
            session=self.session, signer=self.signer, bearer="operator", addresses=self.control_addresses
        )

    @classmethod
    def create(cls, *, kube: Kube, session: aiohttp.ClientSession, key: bytes, namespace: str, service: str) -> Self:
        """Follows the Service of that name."""
        fields = f"metadata.name={service}"
        return cls(
            namespace=namespace,
            service=service,
            services=Reflector(kube=kube, path=path_of("services", namespace=namespace), fields=fields),
            endpoints=Reflector(kube=kube, path=path_of("endpoints", namespace=namespace), fields=fields),
            signer=Signer(key=key),
            session=session,
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Follows it while the context stands."""
        async with self.services.running(), self.endpoints.running():
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
        return addresses_of(self.endpoints.items.get((self.namespace, self.service)), port=_CONTROL)
