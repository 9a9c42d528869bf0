"""What operator and gateway can reach: the API server's ports, and no other port of pods that are none of ours.

And what the rules by address admit when the API server moves.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import yaml

from tests.e2e.support import RELEASE, ROOT, SYSTEM, Cluster, api_server
from tests.support.until import eventually

NAMESPACE = "egress"
API_PORTS = (443, 6443)
OTHER_PORTS = (8700, 8084, 9000)
"""Those of sandboxes and of the broker, and one that nobody uses."""
LISTENER = f"""
import socket, threading
def accept(server):
    while True:
        server.accept()[0].close()
servers = [socket.create_server(("", port)) for port in {(*API_PORTS, *OTHER_PORTS)}]
for server in servers:
    threading.Thread(target=accept, args=[server]).start()
"""
CONNECT = """
import json, socket, sys
def attempt(host, port):
    try:
        socket.create_connection((host, port), timeout=3).close()
        return "open"
    except OSError as error:
        return type(error).__name__
print(json.dumps([attempt(*target) for target in json.loads(sys.argv[1])]))
"""


@pytest.fixture(scope="module")
def namespace(installed: Cluster) -> Iterator[str]:
    """A namespace of others."""
    installed.objects.create_namespace(NAMESPACE)
    yield NAMESPACE
    installed.delete("Namespace", NAMESPACE, wait=False)


@pytest.fixture(scope="module")
def listener(installed: Cluster, namespace: str) -> str:
    """The address of a pod that listens at the ports of API server, sandboxes and broker, and is none of them."""
    probe = {"tcpSocket": {"port": OTHER_PORTS[-1]}, "periodSeconds": 1}
    root = {"runAsUser": 0}  # for a port below 1024
    return start_pod(installed, "listener", ["python3", "-c", LISTENER], securityContext=root, readinessProbe=probe)


def start_pod(installed: Cluster, name: str, command: list[str], **fields: Any) -> str:
    """Start a pod that is none of ours, with its name as the label `app`, and return its address."""
    image = installed.get("SandboxPool", "runc")["spec"]["image"]
    installed.apply(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"app": name}},
            "spec": {
                "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "main", "image": image, "command": command, **fields}],
            },
        }
    )
    installed.wait_for("Ready", "Pod", name, namespace=NAMESPACE, seconds=60)
    return str(installed.get("Pod", name, namespace=NAMESPACE)["status"]["podIP"])


@pytest.mark.parametrize("component", ["operator", "gateway"])
def test_operator_and_gateway_connect_to_other_pods_at_the_api_servers_ports_only(
    installed: Cluster, listener: str, component: str
) -> None:
    targets = [*api_server(installed), *((listener, port) for port in (*API_PORTS, *OTHER_PORTS))]
    outcomes = installed.kubectl(
        "exec", "-n", SYSTEM, f"deployment/{RELEASE}-{component}", "--", "python3", "-c", CONNECT, json.dumps(targets)
    )
    found = json.loads(outcomes)
    others = found[-len(OTHER_PORTS) :]
    assert found[: -len(OTHER_PORTS)] == ["open"] * (len(targets) - len(OTHER_PORTS))
    # network plugins drop or reject
    assert "open" not in others


def render_strict_rules(installed: Cluster, addresses: Sequence[str]) -> Any:
    """Return the egress rules of an operator whose API server may have these addresses only."""
    cidrs = ",".join(f"{address}/{128 if ':' in address else 32}" for address in addresses)
    text = installed.helm(
        "template", RELEASE, str(ROOT / "charts/mcp-exec"), "--namespace", SYSTEM,
        "--show-only", "templates/operator/networkpolicy.yaml",
        "--set", f"networkPolicy.flavour=Addresses,networkPolicy.apiServer.cidrs={{{cidrs}}}",
        "--set", "networkPolicy.brokerTo[0].ipBlock.cidr=192.0.2.1/32",
    )  # fmt: skip
    return yaml.safe_load(text)["spec"]["egress"]


def test_rules_by_address_lose_an_api_server_that_moves_unless_they_name_both_addresses(
    installed: Cluster, namespace: str
) -> None:
    """A pod with the operator's rules stands for the operator; the address of documentation for the former one."""
    start_pod(installed, "client", ["sleep", "3600"])
    targets = api_server(installed)
    former, present = ["192.0.2.10"], [address for address, _ in targets]

    def reach() -> list[str]:
        command = ("python3", "-c", CONNECT, json.dumps(targets))
        found: list[str] = json.loads(installed.kubectl("exec", "-n", namespace, "client", "--", *command))
        return found

    for addresses, is_open in ((present, True), (former, False), ([*former, *present], True)):
        installed.apply(
            {
                "apiVersion": "networking.k8s.io/v1",
                "kind": "NetworkPolicy",
                "metadata": {"name": "client", "namespace": namespace},
                "spec": {
                    "podSelector": {"matchLabels": {"app": "client"}},
                    "policyTypes": ["Egress"],
                    "egress": render_strict_rules(installed, addresses),
                },
            }
        )
        eventually(
            lambda is_open=is_open: [each == "open" for each in reach()] == [is_open] * len(targets),
            seconds=60,
            every=1,
        )
