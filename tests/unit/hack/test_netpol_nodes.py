"""netpol on several nodes: routes to the pods of others, and this node's CNI configuration."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.scripts import load

nodes = load("netpol/nodes.py")


def node(name: str, address: str | None = None, subnet: str | None = None) -> dict[str, Any]:
    addresses = [{"type": "Hostname", "address": name}]
    if address:
        addresses.append({"type": "InternalIP", "address": address})
    return {
        "metadata": {"name": name},
        "spec": {"podCIDR": subnet} if subnet else {},
        "status": {"addresses": addresses},
    }


CONTROL = node("control-plane", "192.0.2.2", "10.244.0.0/24")
WORKER = node("worker", "192.0.2.3", "10.244.1.0/24")


class Routes:
    """Records the changes of routes in place of the `ip` command."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.changes: list[str] = []
        self.works = True
        monkeypatch.setattr(nodes, "_change", self.change)

    def change(self, *route: str) -> bool:
        self.changes.append(" ".join(route))
        return self.works


@pytest.fixture
def changed(monkeypatch: pytest.MonkeyPatch) -> Routes:
    return Routes(monkeypatch)


def test_the_pods_of_another_node_are_behind_its_address() -> None:
    assert nodes.routes([CONTROL, WORKER], own="worker") == {"10.244.0.0/24": "192.0.2.2"}


@pytest.mark.parametrize("other", [node("new", "192.0.2.4"), node("new", None, "10.244.2.0/24")])
def test_a_node_without_address_or_pod_network_has_no_route_yet(other: dict[str, Any]) -> None:
    assert nodes.routes([other, WORKER], own="worker") == {}


def test_only_changes_of_the_nodes_change_routes(changed: Routes, tmp_path: Path) -> None:
    network = nodes.Nodes(own="worker", file=tmp_path / "pods.conflist")
    network.follow([CONTROL, WORKER])
    network.follow([CONTROL, WORKER])
    assert changed.changes == ["replace 10.244.0.0/24 via 192.0.2.2"]
    network.follow([node("control-plane", "192.0.2.9", "10.244.0.0/24"), WORKER])
    network.follow([WORKER])
    assert changed.changes[1:] == ["replace 10.244.0.0/24 via 192.0.2.9", "del 10.244.0.0/24"]


def test_a_route_that_failed_is_tried_again(changed: Routes, tmp_path: Path) -> None:
    network = nodes.Nodes(own="worker", file=tmp_path / "pods.conflist")
    changed.works = False
    network.follow([CONTROL, WORKER])
    changed.works = True
    network.follow([CONTROL, WORKER])
    assert changed.changes == ["replace 10.244.0.0/24 via 192.0.2.2"] * 2


@pytest.mark.usefixtures("changed")
def test_pods_get_addresses_of_their_nodes_network_and_keep_them_on_the_way(tmp_path: Path) -> None:
    file = tmp_path / "pods.conflist"
    nodes.Nodes(own="worker", file=file).follow([CONTROL, WORKER])
    (pods, _) = json.loads(file.read_text())["plugins"]
    assert pods["ipam"]["ranges"] == [[{"subnet": "10.244.1.0/24"}]]
    assert pods["ipMasq"] is False


@pytest.mark.usefixtures("changed")
def test_there_is_no_configuration_before_the_node_has_a_pod_network(tmp_path: Path) -> None:
    file = tmp_path / "pods.conflist"
    nodes.Nodes(own="worker", file=file).follow([CONTROL, node("worker", "192.0.2.3")])
    assert not file.exists()
