"""The pod network of a cluster with several nodes: routes to their pods, and a CNI configuration.

Each node has a part of the pod network (`spec.podCIDR`). All nodes are on one link, so a route by the node's address
reaches its pods.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

Object = dict[str, Any]


class Nodes:
    """This node's routes to the pods of others, and its CNI configuration in a file."""

    def __init__(self, *, own: str, file: Path) -> None:
        self._own = own
        self._file = file
        self._routes: dict[str, str] = {}

    def follow(self, nodes: list[Object]) -> None:
        """Add the routes to new nodes, remove those to former ones, and write the configuration if it changed."""
        wanted = routes(nodes, own=self._own)
        for network in self._routes.keys() - wanted.keys():
            if _change("del", network):
                del self._routes[network]
        for network, gateway in wanted.items():
            if self._routes.get(network) != gateway and _change("replace", network, "via", gateway):
                self._routes[network] = gateway
        for node in nodes:
            subnet = node["spec"].get("podCIDR")
            if node["metadata"]["name"] == self._own and subnet:
                self._write(network_configuration(subnet))

    def _write(self, text: str) -> None:
        if self._file.exists() and self._file.read_text() == text:
            return
        part = self._file.with_suffix(".part")  # the kubelet reads complete files only
        part.write_text(text)
        part.rename(self._file)


def routes(nodes: list[Object], *, own: str) -> dict[str, str]:
    """Return the address of the node behind each part of the pod network, except this node's own."""
    found = {}
    for node in nodes:
        addresses = node.get("status", {}).get("addresses") or []
        address = next((each["address"] for each in addresses if each["type"] == "InternalIP"), None)
        if node["metadata"]["name"] != own and address and node["spec"].get("podCIDR"):
            found[str(node["spec"]["podCIDR"])] = str(address)
    return found


def network_configuration(subnet: str) -> str:
    """Return a CNI configuration list: pods of this subnet, all their traffic by the node, where the rules apply."""
    addresses = {"type": "host-local", "ranges": [[{"subnet": subnet}]], "routes": [{"dst": "0.0.0.0/0"}]}
    plugins = [
        {"type": "ptp", "ipMasq": False, "ipam": addresses},
        {"type": "portmap", "capabilities": {"portMappings": True}},
    ]
    return json.dumps({"cniVersion": "0.4.0", "name": "pods", "plugins": plugins}) + "\n"


def _change(*route: str) -> bool:
    done = subprocess.run(["ip", "route", *route], text=True, capture_output=True, timeout=20)
    if done.returncode:
        print(f"ip route {' '.join(route)}: {done.stderr}", file=sys.stderr, flush=True)
    return done.returncode == 0
