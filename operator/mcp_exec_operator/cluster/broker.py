"""The broker's pods, as watches report them."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final, Self

import aiohttp

from mcp_exec_common.broker.client import BrokerClient, follow_broker
from mcp_exec_common.broker.grants import GrantSigner
from mcp_exec_common.broker.replicas import list_replicas
from mcp_exec_common.kube.client import KubeClient
from mcp_exec_common.kube.reflector import Reflector
from mcp_exec_common.sandbox_keys import SandboxKeys

_CALLS_PORT: Final = "calls"
"""Name of the port that sandboxes call."""
_CHECK_SECONDS: Final = 0.25
_CHECKS: Final = 120
"""How often the operator checks whether the broker has a pod: for 30 seconds. A new pod starts in less time."""
_SYNC_SECONDS: Final = 3.0
"""Longest wait at the start for the broker's Service: executions that are bound already need its address."""


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
        cls, *, kube: KubeClient, session: aiohttp.ClientSession, keys: SandboxKeys, namespace: str, service: str
    ) -> Self:
        """Create the discovery of the broker behind a Service. `keys` sign grants and service tokens."""
        client, slices = follow_broker(
            kube=kube, session=session, namespace=namespace, service=service, keys=keys, sender="operator"
        )
        return cls(namespace=namespace, service=service, client=client, slices=slices)

    @asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        """Follow the Service while the context lasts, whose addresses are usually known when it begins."""
        async with self.slices.run_in_background():
            with suppress(TimeoutError):
                async with asyncio.timeout(_SYNC_SECONDS):
                    await self.slices.synced.wait()
            yield

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

    async def wait_for_replica(self) -> None:
        """Wait until the broker has a pod, and at most 30 seconds: an upgrade may replace the only one."""
        for _ in range(_CHECKS):
            if self.choose_replica("") is not None:
                return
            await asyncio.sleep(_CHECK_SECONDS)
