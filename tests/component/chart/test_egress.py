"""Egress of operator and gateway to the API server: to the given networks, or to its ports at any address."""

import ipaddress

import pytest
from tests.component.chart.conftest import Object, Render

PORTS = [443, 6443, 8443, 16443]
COMPONENTS = ["operator", "gateway"]


def egress(render: Render, component: str, server: Object | None = None) -> list[Object]:
    values = {"networkPolicy": {"apiServer": server}} if server else {}
    return list(render(values).one("NetworkPolicy", f"mcp-exec-{component}")["spec"]["egress"])


@pytest.mark.parametrize("component", COMPONENTS)
def test_a_rendering_without_a_cluster_allows_the_api_servers_ports_at_any_address(
    render: Render, component: str
) -> None:
    *others, server = egress(render, component)
    assert server == {"ports": [{"port": port, "protocol": "TCP"} for port in PORTS]}
    assert all(peer["podSelector"] for rule in others for peer in rule["to"])


@pytest.mark.parametrize("component", COMPONENTS)
def test_given_networks_are_the_only_addresses(render: Render, component: str) -> None:
    networks = ["10.96.0.1/32", "fd00::1/128"]
    rules = egress(render, component, {"cidrs": networks, "ports": [6443]})
    assert rules[-1] == {
        "to": [{"ipBlock": {"cidr": network}} for network in networks],
        "ports": [{"port": 6443, "protocol": "TCP"}],
    }
    for rule in rules:
        assert rule["ports"]
        for peer in rule["to"]:
            block = peer.get("ipBlock")
            assert ipaddress.ip_network(block["cidr"]).num_addresses == 1 if block else peer["podSelector"]


@pytest.mark.parametrize("network", ["0.0.0.0/0", "::/0", "10.0.0.1", "kubernetes.default"])
def test_a_network_of_all_addresses_is_refused(render: Render, network: str) -> None:
    with pytest.raises(AssertionError, match=r"networkPolicy.apiServer.cidrs"):
        render({"networkPolicy": {"apiServer": {"cidrs": [network]}}})
