"""Broker discovery: its replicas, for sandboxes and for the operator's own requests."""

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, Self

import aiohttp

from mcp_exec_common.broker.client import BrokerClient, follow_broker
from mcp_exec_common.broker.grants import GrantSigner
from mcp_exec_common.kube.client import KubeClient
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.reflector import Reflector

_CALLS_PORT: Final = "calls"
"""Name of the port that sandboxes call."""


@dataclass(frozen=True, kw_only=True)
class BrokerReplica:
    """One pod of the broker."""

    uid: str
    url: str
    """URL that sandboxes call, by IP address since they have no DNS."""


@dataclass(kw_only=True, eq=False)
class BrokerDiscovery:
    """The broker's addresses as watches report them."""

    namespace: str
    """The release's namespace."""
    service: str
    """Name of the broker's Service and Endpoints."""
    client: BrokerClient
    """Client of all ready replicas."""
    endpoints: Reflector

    @classmethod
    def create(
        cls, *, kube: KubeClient, session: aiohttp.ClientSession, key: bytes, namespace: str, service: str
    ) -> Self:
        """Create the discovery of the broker behind a Service. `key` signs grants and service tokens."""
        client, endpoints = follow_broker(
            kube=kube, session=session, namespace=namespace, service=service, key=key, sender="operator"
        )
        return cls(namespace=namespace, service=service, client=client, endpoints=endpoints)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Follow the Endpoints while the context lasts."""
        async with self.endpoints.run_in_background():
            yield

    async def wait_until_synced(self) -> None:
        """Wait until the Endpoints were listed once."""
        await self.endpoints.synced.wait()

    @property
    def signer(self) -> GrantSigner:
        """The signer of grants."""
        return self.client.signer

    def choose_replica(self, uid: str) -> BrokerReplica | None:
        """Return the replica for an execution, always the same one of the same replicas; None if there is none.

        A replica that is not ready counts only if none is.
        """
        endpoints = self.endpoints.items.get((self.namespace, self.service)) or {}
        for kind in ("addresses", "notReadyAddresses"):
            replicas = list_replicas(endpoints, kind=kind)
            if replicas:
                return max(replicas, key=lambda replica: hashlib.sha256(f"{replica.uid} {uid}".encode()).digest())
        return None


def list_replicas(endpoints: Object, *, kind: str) -> list[BrokerReplica]:
    """Return the replicas among one kind of addresses of the broker's Endpoints: those that have a pod."""
    replicas: list[BrokerReplica] = []
    for subset in endpoints.get("subsets") or []:
        port = next((entry["port"] for entry in subset.get("ports") or [] if entry.get("name") == _CALLS_PORT), None)
        for address in subset.get(kind) or []:
            uid, ip = (address.get("targetRef") or {}).get("uid"), address["ip"]
            if port is not None and uid:
                replicas.append(
                    BrokerReplica(uid=uid, url=f"http://[{ip}]:{port}" if ":" in ip else f"http://{ip}:{port}")
                )
    return replicas
