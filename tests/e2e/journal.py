"""A pod that records what ran in which sandbox, independently of every status."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.e2e.support import NAMESPACE, Cluster

LISTENER = """
import os, socket, threading

def record(connection):
    with connection, connection.makefile() as lines:
        os.write(1, lines.readline().encode())  # one write a line: threads do not mix
        connection.sendall(b"ok")

with socket.create_server(("", 9000), backlog=128) as server:
    while True:
        threading.Thread(target=record, args=server.accept()[:1], daemon=True).start()
"""
TELL = """
import socket
with socket.create_connection((journal, 9000), timeout=30) as connection:
    connection.sendall(f"{me} {socket.gethostname()}\\n".encode())
    connection.recv(2)
print(me)
"""
"""Code that sends its name and its pod's to the journal, and prints its name. The context has `journal` and `me`."""


@dataclass(frozen=True, kw_only=True)
class Journal:
    """The recorded runs."""

    cluster: Cluster
    address: str

    def entries(self) -> list[tuple[str, str]]:
        """Return pairs of execution and pod, in the order of their arrival."""
        lines = self.cluster.logs("journal").splitlines()
        return [(execution, pod) for execution, pod in (line.split() for line in lines)]


@contextmanager
def journal(cluster: Cluster, *, node: str | None = None) -> Iterator[Journal]:
    """Run the pod, on this node or on any, with a policy that lets sandboxes call it."""
    image = cluster.get("SandboxPool", "default")["spec"]["image"]
    metadata = {"name": "journal", "namespace": NAMESPACE, "labels": {"app": "journal"}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            **({"nodeSelector": {"kubernetes.io/hostname": node}} if node else {}),
            "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [
                {
                    "name": "main",
                    "image": image,
                    "imagePullPolicy": "IfNotPresent",
                    "command": ["python3", "-c", LISTENER],
                    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                    "resources": {"limits": {"cpu": "500m", "memory": "64Mi"}},
                }
            ],
        },
    }
    policy = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata,
        "spec": {
            "podSelector": {"matchLabels": {"app.kubernetes.io/name": "mcp-exec-sandbox"}},
            "policyTypes": ["Egress"],
            "egress": [{"to": [{"podSelector": {"matchLabels": {"app": "journal"}}}]}],
        },
    }
    # that of an interrupted run has entries of its own
    cluster.delete("Pod", "journal")
    cluster.apply(pod)
    with cluster.as_component("operator") as operator:
        operator.apply(policy)
    cluster.wait_for("Ready", "Pod", "journal", seconds=60)
    address = cluster.get("Pod", "journal")["status"]["podIP"]
    try:
        yield Journal(cluster=cluster, address=address)
    finally:
        cluster.delete("NetworkPolicy", "journal")
        cluster.delete("Pod", "journal")
