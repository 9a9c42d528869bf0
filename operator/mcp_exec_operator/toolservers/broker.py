"""Broker discovery: its replicas, for sandboxes and for the operator's own requests."""

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, Self

import aiohttp

from mcp_exec_common.broker.client import BrokerClient, follow_broker
from mcp_exec_common.broker.grants import GrantSigner
from mcp_exec_common.broker.replicas import list_replicas
from mcp_exec_common.kube.client import KubeClient
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
    """Name of the broker's Service."""
    client: BrokerClient
    """Client of all ready replicas."""
    slices: Reflector
    """EndpointSlices of the Service."""

    @classmethod
    def create(
        cls, *, kube: KubeClient, session: aiohttp.ClientSession, key: bytes, namespace: str, service: str
    ) -> Self:
        """Create the discovery of the broker behind a Service. `key` signs grants and service tokens."""
        client, slices = follow_broker(
            kube=kube, session=session, namespace=namespace, service=service, key=key, sender="operator"
        )
        return cls(namespace=namespace, service=service, client=client, slices=slices)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Follow the slices while the context lasts."""
        async with self.slices.run_in_background():
            yield

    async def wait_until_synced(self) -> None:
        """Wait until the slices were listed once."""
        await self.slices.synced.wait()

    @property
    def signer(self) -> GrantSigner:
        """The signer of grants."""
        return self.client.signer

    def choose_replica(self, uid: str) -> BrokerReplica | None:
        """Return the replica for an execution, always the same one of the same replicas; None if there is none.

        A replica that is not ready counts only if none is.
        """
        replicas = [
            replica
            for replica in list_replicas(self.slices.items.values())
            if replica.uid and _CALLS_PORT in replica.ports
        ]
        candidates = [replica for replica in replicas if replica.ready] or replicas
        if not candidates:
            return None
        chosen = max(candidates, key=lambda replica: hashlib.sha256(f"{replica.uid} {uid}".encode()).digest())
        return BrokerReplica(uid=chosen.uid, url=f"http://{chosen.host}:{chosen.ports[_CALLS_PORT]}")
