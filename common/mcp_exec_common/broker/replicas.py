"""Replicas of the broker, as the EndpointSlices of its Service list them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from mcp_exec_common.kube.client import KubeClient, resource_path
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.reflector import Reflector

MAX_REPLICAS: Final = 100
"""Most replicas that are used, five times what the chart allows."""
_GROUP: Final = "discovery.k8s.io"
_ADDRESS_TYPES: Final = ("IPv4", "IPv6")


@dataclass(frozen=True, kw_only=True)
class Replica:
    """One pod behind the Service."""

    uid: str
    """UID of the pod; empty for an address that belongs to no pod."""
    host: str
    """IP address as URLs contain it."""
    ports: Mapping[str, int]
    """Numbers of the ports by their names."""
    ready: bool


def reflect_replicas(*, kube: KubeClient, namespace: str, service: str) -> Reflector:
    """Return the reflector of a Service's EndpointSlices. Kubernetes has their `v1` since 1.21."""
    return Reflector(
        kube=kube,
        path=resource_path("endpointslices", namespace=namespace, group=f"{_GROUP}/v1"),
        older_path=resource_path("endpointslices", namespace=namespace, group=f"{_GROUP}/v1beta1"),
        selector=f"kubernetes.io/service-name={service}",
        transform=_reduce,
    )


def list_replicas(slices: Iterable[Object]) -> list[Replica]:
    """Return the pods of a Service's slices, without those that terminate. A pod appears once, with its first address.

    A pod may be in two slices for a moment, and in those of both address types.
    """
    found: dict[str, Replica] = {}
    terminating: set[str] = set()
    for item in slices:
        if item.get("addressType") not in _ADDRESS_TYPES:
            continue
        ports = {entry.get("name") or "": entry["port"] for entry in item.get("ports") or [] if entry.get("port")}
        for endpoint in item.get("endpoints") or []:
            address = endpoint["addresses"][0]
            uid = (endpoint.get("targetRef") or {}).get("uid") or ""
            conditions = endpoint.get("conditions") or {}
            host = f"[{address}]" if ":" in address else address
            # Kubernetes: an unknown state, null, is to be taken for ready
            replica = Replica(uid=uid, host=host, ports=ports, ready=conditions.get("ready") is not False)
            key = uid or host
            if conditions.get("terminating"):
                terminating.add(key)
            found[key] = _merge(found.get(key, replica), replica)
    replicas = [replica for key, replica in found.items() if key not in terminating]
    return sorted(replicas, key=_address_order)[:MAX_REPLICAS]


def _merge(one: Replica, other: Replica) -> Replica:
    return replace(min(one, other, key=_address_order), ready=one.ready or other.ready)


def _address_order(replica: Replica) -> tuple[bool, str]:
    return ":" in replica.host, replica.host


def _reduce(item: Object) -> Object:
    return {name: item.get(name) for name in ("addressType", "endpoints", "ports")}
