"""What operator and gateway can reach: the API server's ports, and no other port of pods that are none of ours."""

import json
from collections.abc import Iterator

import pytest

from tests.e2e.support import RELEASE, SYSTEM, Cluster, api_server

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
def listener(installed: Cluster) -> Iterator[str]:
    """The address of a pod that listens at the ports of API server, sandboxes and broker, and is none of them."""
    image = installed.get("SandboxPool", "runc")["spec"]["image"]
    probe = {"tcpSocket": {"port": OTHER_PORTS[-1]}, "periodSeconds": 1}
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
