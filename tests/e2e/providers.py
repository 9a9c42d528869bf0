"""Kinds of clusters that the tests run on: what each promises, and what tests may do to its nodes.

MCP_EXEC_CLUSTER names the kind, as `hack/cluster kind-of` prints it. Without it, the cluster counts as existing.
"""

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.support.pace import paced

ROOT: Final = Path(__file__).parents[2]
GVISOR_NODES: Final = {"mcp-exec.dev/runtime": "gvisor"}
"""Label of the nodes where hack/kind has installed gVisor."""
_SECONDS: Final = paced(90)


@dataclass(frozen=True)
class Provider:
    """A cluster that somebody else made: tests use its API alone."""

    name: str = "existing"
    audit_log: Path | None = None
    """The API server's audit log, if this machine has it."""
    runs_here: bool = False
    """Whether this machine is the node, so that it reaches Services and pods by their addresses."""
    stops_nodes: bool = False
    """Whether `power_off` and the other changes of nodes exist."""

    def promises_gvisor(self, nodes: list[dict[str, Any]]) -> bool:
        """Return whether these nodes must have gVisor and its RuntimeClass."""
        return False

    def power_off(self, node: str) -> None:
        """Stop a node at once, like a power cut."""
        raise NotImplementedError

    def power_on(self, node: str) -> None:
        """Start a node that was powered off."""
        raise NotImplementedError

    def freeze(self, node: str) -> None:
        """Stop all processes of a node, which keep their memory and connections."""
        raise NotImplementedError

    def thaw(self, node: str) -> None:
        """Continue the processes of a frozen node."""
        raise NotImplementedError

    def kill_kubelet(self, node: str) -> None:
        """Kill a node's kubelet, which is started again."""
        raise NotImplementedError


@dataclass(frozen=True)
class Devcluster(Provider):
    """A cluster of hack/devcluster: this machine is its only node."""

    name: str = "devcluster"
    audit_log: Path | None = Path("/run/devcluster/audit.log")
    runs_here: bool = True

    def promises_gvisor(self, nodes: list[dict[str, Any]]) -> bool:
        """Every devcluster has gVisor."""
        return True

    def kill_kubelet(self, node: str) -> None:
        """Kill the process of this machine."""
        self.restart("kubelet")

    def restart(self, daemon: str) -> None:
        """Kill one of Kubernetes' own processes, and start it again."""
        _run(str(ROOT / "hack/devcluster/devcluster"), "restart", daemon)


@dataclass(frozen=True)
class Kind(Provider):
    """A cluster of kind: each node is a container of the Docker engine, by the node's name."""

    name: str = "kind"
    stops_nodes: bool = True

    def promises_gvisor(self, nodes: list[dict[str, Any]]) -> bool:
        """hack/kind labels the nodes that have gVisor."""
        return any(_has_labels(node, GVISOR_NODES) for node in nodes)

    def power_off(self, node: str) -> None:
        """Kill the container."""
        _run("docker", "kill", node)

    def power_on(self, node: str) -> None:
        """Start the container, which kind's image expects to happen after a restart of the engine."""
        _run("docker", "start", node)

    def freeze(self, node: str) -> None:
        """Freeze the container's processes."""
        _run("docker", "pause", node)

    def thaw(self, node: str) -> None:
        """Continue them."""
        _run("docker", "unpause", node)

    def kill_kubelet(self, node: str) -> None:
        """Kill the kubelet inside of the container, where systemd starts it again."""
        _run("docker", "exec", node, "systemctl", "kill", "--signal=SIGKILL", "kubelet")


def provider() -> Provider:
    """Return the provider of the cluster under test."""
    kinds: Mapping[str, type[Provider]] = {"kind": Kind, "devcluster": Devcluster, "existing": Provider}
    name = os.environ.get("MCP_EXEC_CLUSTER", "existing")
    assert name in kinds, f"MCP_EXEC_CLUSTER must be one of {', '.join(kinds)}, not {name}"
    return kinds[name]()


def _has_labels(node: dict[str, Any], labels: Mapping[str, str]) -> bool:
    return labels.items() <= (node["metadata"].get("labels") or {}).items()


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr or done.stdout}"
