"""Addresses of the release itself, which no ToolServer leads the broker to: its pods, its Services, stdio servers.

Those of the broker's own pod are known at once, the others from the API server.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, Final, Self

from mcp_exec_api.constants import LABEL_NAME, MANAGED_BY
from mcp_exec_broker.core.upstream.servers import ToolServerCache
from mcp_exec_broker.core.upstream.stdio_transport import split_address
from mcp_exec_common.kube.client import KubeClient, resource_path
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.reflector import Reflector
from mcp_exec_common.util.addresses import Address

_SELECTOR: Final = f"{LABEL_NAME}={MANAGED_BY}"
_SYNC_SECONDS: Final = 3.0
"""Longest wait at the start for the first lists. Without the right to read them, the broker works all the same."""


@dataclass(frozen=True, kw_only=True)
class OwnAddresses:
    """Addresses of the release's parts."""

    pod_ips: frozenset[Address]
    """Those of the broker's own pod."""
    servers: ToolServerCache
    reflectors: tuple[Reflector, ...]
    """Pods and Services of releases in the release's namespace."""

    @classmethod
    def create(cls, *, kube: KubeClient, namespace: str, pod_ips: Iterable[Address], servers: ToolServerCache) -> Self:
        """Create it for the release in a namespace. Nothing is read yet."""
        reflectors = tuple(
            Reflector(
                kube=kube, path=resource_path(kind, namespace=namespace), selector=_SELECTOR, transform=_keep_addresses
            )
            for kind in ("pods", "services")
        )
        return cls(pod_ips=frozenset(pod_ips), servers=servers, reflectors=reflectors)

    @asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        """Follow pods and Services while the context is open."""
        async with AsyncExitStack() as stack:
            for reflector in self.reflectors:
                await stack.enter_async_context(reflector.run_in_background())
            with suppress(TimeoutError):
                async with asyncio.timeout(_SYNC_SECONDS):
                    for reflector in self.reflectors:
                        await reflector.synced.wait()
            yield

    def describe(self, address: Address) -> str:
        """Return what of the release has an address, or an empty text."""
        if address in self.pod_ips or any(
            address in item["addresses"] for reflector in self.reflectors for item in reflector.items.values()
        ):
            return "that of a part of mcp-exec"
        workloads = (server.workload for server in self.servers)
        bridges = (split_address(each.address)[0] for each in workloads if each is not None and each.address)
        return "that of a stdio server" if address in _parse(bridges) else ""


def _keep_addresses(item: Object) -> Object:
    """Return an object without all but its name, version and addresses."""
    metadata, spec, status = item["metadata"], item.get("spec") or {}, item.get("status") or {}
    found: list[Any] = [status.get("podIP"), *(each.get("ip") for each in status.get("podIPs") or ())]
    found += [spec.get("clusterIP"), *(spec.get("clusterIPs") or ()), *(spec.get("externalIPs") or ())]
    found += [each.get("ip") for each in (status.get("loadBalancer") or {}).get("ingress") or ()]
    kept = {name: metadata[name] for name in ("namespace", "name", "resourceVersion") if name in metadata}
    return {"metadata": kept, "addresses": _parse(found)}


def _parse(texts: Iterable[Any]) -> set[Address]:
    """Return the addresses among texts: a headless Service has `None`."""
    found = set()
    for text in texts:
        with suppress(ValueError):
            found.add(ip_address(text))
    return found
