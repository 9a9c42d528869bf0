"""Egress of operator and gateway to the API server: to its addresses, given or found, and to no others."""

import ipaddress
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.component.chart.conftest import CHART, Render

WITHOUT = {"networkPolicy": {"apiServer": {"cidrs": []}}}
SERVICE = {"spec": {"clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1", "fd00::1"], "ports": [{"port": 443}]}}
SLICE = {
    "endpoints": [{"addresses": ["192.0.2.11"]}, {"addresses": ["192.0.2.10"]}],
    "ports": [{"name": "https", "port": 6443}],
}


def rules(egress: list[dict[str, Any]]) -> list[tuple[list[str], list[int]]]:
    return [
        ([peer["ipBlock"]["cidr"] for peer in rule["to"]], [port["port"] for port in rule["ports"]]) for rule in egress
    ]


@pytest.fixture
def found(helm: str, tmp_path: Path) -> Any:
    """Renders the rules for objects as a cluster would return them."""
    (tmp_path / "templates").mkdir()
    shutil.copy(CHART / "Chart.yaml", tmp_path)
    shutil.copy(CHART / "templates" / "_helpers.tpl", tmp_path / "templates")
    (tmp_path / "templates" / "rules.yaml").write_text(
        'egress:\n  {{- include "mcp-exec.foundEgress" .Values | nindent 2 }}\n'
    )

    def render(**objects: Any) -> list[dict[str, Any]]:
        (tmp_path / "values.json").write_text(json.dumps(objects))
        done = subprocess.run(
            [helm, "template", "x", str(tmp_path), "--values", str(tmp_path / "values.json")],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return list(yaml.safe_load(done.stdout)["egress"])

    return render


def test_the_found_addresses_are_those_of_the_service_and_of_its_slice(found: Any) -> None:
    assert rules(found(service=SERVICE, slice=SLICE)) == [
        (["10.96.0.1/32", "fd00::1/128"], [443]),
        (["192.0.2.10/32", "192.0.2.11/32"], [6443]),
    ]


@pytest.mark.parametrize(
    "objects",
    [{}, {"service": SERVICE}, {"service": SERVICE, "slice": {"endpoints": None, "ports": None}}, {"slice": SLICE}],
    ids=lambda each: "+".join(each) or "nothing",
)
def test_addresses_that_are_not_found_are_never_replaced_by_any_address(found: Any, objects: dict[str, Any]) -> None:
    with pytest.raises(AssertionError, match="kubectl get service,endpointslices kubernetes --namespace default"):
        found(**objects)


def test_without_a_cluster_the_addresses_are_required(render: Render) -> None:
    with pytest.raises(AssertionError, match=r"networkPolicy\.apiServer\.cidrs is empty.*kubectl get service"):
        render(WITHOUT)
    assert render({"networkPolicy": {"enabled": False, **WITHOUT["networkPolicy"]}}).all("Deployment")


@pytest.mark.parametrize("network", ["0.0.0.0/0", "::/0", "10.0.0.1", "kubernetes.default"])
def test_a_network_of_all_addresses_is_refused(render: Render, network: str) -> None:
    with pytest.raises(AssertionError, match=r"networkPolicy.apiServer.cidrs"):
        render({"networkPolicy": {"apiServer": {"cidrs": [network]}}})


@pytest.mark.parametrize("component", ["operator", "gateway"])
def test_no_rule_of_operator_and_gateway_is_without_peers(render: Render, component: str) -> None:
    egress = render().one("NetworkPolicy", f"mcp-exec-{component}")["spec"]["egress"]
    for rule in egress:
        assert rule["ports"]
        for peer in rule["to"]:
            block = peer.get("ipBlock")
            assert ipaddress.ip_network(block["cidr"]).num_addresses == 1 if block else peer["podSelector"]
