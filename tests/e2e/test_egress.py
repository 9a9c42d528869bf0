"""What operator and gateway can reach: the API server, and no other address on its ports."""

import json
from collections.abc import Iterator

import pytest

from tests.e2e.support import RELEASE, SYSTEM, Cluster, api_server

NAMESPACE = "egress"
PORTS = (443, 6443, 8700, 8084)
"""Ports that operator and gateway use elsewhere."""
LISTENER = f"""
import socket, threading
def accept(server):
    while True:
        server.accept()[0].close()
servers = [socket.create_server(("", port)) for port in {PORTS}]
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
def listener(installed: Cluster) -> Iterator[str]:
    """The address of a pod that listens at the ports of API server, sandboxes and broker, and is none of them."""
    image = installed.get("SandboxPool", "runc")["spec"]["image"]
    probe = {"tcpSocket": {"port": PORTS[-1]}, "periodSeconds": 1}
    root = {"runAsUser": 0}  # for a port below 1024
    program = ["python3", "-c", LISTENER]
    container = {
        "name": "main", "image": image, "command": program, "securityContext": root, "readinessProbe": probe,
    }  # fmt: skip
    installed.objects.create_namespace(NAMESPACE)
    installed.apply(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "listener", "namespace": NAMESPACE},
            "spec": {"terminationGracePeriodSeconds": 0, "containers": [container]},
        }
    )
    installed.wait_for("Ready", "Pod", "listener", namespace=NAMESPACE, seconds=60)
    yield str(installed.get("Pod", "listener", namespace=NAMESPACE)["status"]["podIP"])
    installed.delete("Namespace", NAMESPACE, wait=False)


@pytest.mark.parametrize("component", ["operator", "gateway"])
def test_an_installation_finds_the_api_servers_addresses(installed: Cluster, component: str) -> None:
    policy = installed.get("NetworkPolicy", f"{RELEASE}-{component}", namespace=SYSTEM)["spec"]
    found = [
        (peer["ipBlock"]["cidr"], port["port"])
        for rule in policy["egress"]
        for peer in rule["to"]
        for port in rule["ports"]
        if "ipBlock" in peer
    ]
    assert sorted(found) == sorted((f"{host}/32", port) for host, port in api_server(installed))


@pytest.mark.parametrize("component", ["operator", "gateway"])
def test_operator_and_gateway_connect_to_the_api_server_and_to_no_other_pod(
    installed: Cluster, listener: str, component: str
) -> None:
    servers = api_server(installed)
    targets = [*servers, *((listener, port) for port in PORTS)]
    outcomes = installed.kubectl(
        "exec", "-n", SYSTEM, f"deployment/{RELEASE}-{component}", "--", "python3", "-c", CONNECT, json.dumps(targets)
    )
    found = json.loads(outcomes)
    assert found[: len(servers)] == ["open"] * len(servers)
    # network plugins drop or reject
    assert "open" not in found[len(servers) :]
