"""What goes wrong in a cluster, one thing at a time. Each fault returns when what it hit works again."""

import os
import random
import re
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.e2e.providers import Devcluster
from tests.e2e.support import NAMESPACE, SYSTEM, Cluster, workers
from tests.support.pace import paced
from tests.support.until import eventually

SANDBOXES: Final = "app.kubernetes.io/name=mcp-exec-sandbox"
_RECOVERY_SECONDS: Final = paced(90)


@dataclass(frozen=True, kw_only=True)
class Faults:
    """The faults of a devcluster: its processes and its node are this machine's."""

    cluster: Cluster
    provider: Devcluster
    random: random.Random

    def all(self) -> dict[str, Callable[[], None]]:
        """Every fault by its name."""
        daemons = ("kubelet", "containerd", "apiserver", "etcd")
        return {
            "the leading operator is killed": self.kill_leader,
            "a gateway is killed": self.kill_gateway,
            "a broker is killed": self.kill_broker,
            "sandbox pods are deleted": self.delete_sandboxes,
            "a supervisor is killed": self.kill_supervisor,
            "the node is cordoned and drained": self.drain,
            **{f"{name} is killed": lambda name=name: self.restart(name) for name in daemons},
        }

    def kill_leader(self) -> None:
        """SIGKILL for the operator's process that holds the lease."""
        lease = self.cluster.get("Lease", "mcp-exec-operator", namespace=SYSTEM)["spec"]
        pods = self._pods(SYSTEM, "app.kubernetes.io/component=operator")
        (leader,) = (pod for pod in pods if pod["metadata"]["name"] in (lease.get("holderIdentity") or ""))
        self._kill(leader, r"mcp_exec_operator")

        def led() -> bool:
            found = self.cluster.get("Lease", "mcp-exec-operator", namespace=SYSTEM)["spec"]
            return bool(found["renewTime"] > lease["renewTime"])

        eventually(led, seconds=_RECOVERY_SECONDS, every=0.5, what="an operator leads")

    def kill_gateway(self) -> None:
        """SIGKILL for one gateway's process."""
        self._kill_one_of("gateway")

    def kill_broker(self) -> None:
        """SIGKILL for one broker's process, perhaps while it stores a version of a workspace."""
        self._kill_one_of("broker")

    def delete_sandboxes(self) -> None:
        """Somebody deletes two sandbox pods, busy or not."""
        pods = self._sandboxes()
        for pod in self.random.sample(pods, min(2, len(pods))):
            self.cluster.delete("Pod", pod["metadata"]["name"], wait=False)

    def kill_supervisor(self) -> None:
        """SIGKILL for one sandbox: its supervisor, in gVisor the whole kernel of it."""
        pods = self._sandboxes()
        if pods:
            self._kill(self.random.choice(pods), r"mcp_exec_sandbox/__main__\.py *$|^runsc-sandbox ")

    def drain(self) -> None:
        """A node takes no pods for a while, and its sandboxes have to go."""
        # a node is not ready for a moment some seconds after a kill of its daemons, too
        ready = eventually(lambda: workers(self.cluster), seconds=_RECOVERY_SECONDS, every=0.5, what="a node is ready")
        node = self.random.choice(ready)
        self.cluster.kubectl("cordon", node)
        try:
            self.cluster.run(
                "kubectl", "drain", node, f"--pod-selector={SANDBOXES}", "--force", "--ignore-daemonsets",
                "--delete-emptydir-data", "--grace-period=1", "--timeout=30s", check=False,
            )  # fmt: skip
        finally:
            self.cluster.kubectl("uncordon", node)

    def restart(self, daemon: str) -> None:
        """SIGKILL for one of Kubernetes' own processes, which is then started again."""
        self.provider.restart(daemon)

        def ready() -> bool:
            node = self.cluster.run(
                "kubectl", "wait", "node", "--all", "--for=condition=Ready", "--timeout=1s", check=False
            )
            return node.returncode == 0

        eventually(ready, seconds=_RECOVERY_SECONDS, every=0.5, what=f"the cluster after a kill of {daemon}")

    def _pods(self, namespace: str, selector: str) -> list[dict[str, Any]]:
        items = self.cluster.select("Pod", namespace=namespace, labels=selector)
        return [item for item in items if "deletionTimestamp" not in item["metadata"]]

    def _sandboxes(self) -> list[dict[str, Any]]:
        running = self._pods(NAMESPACE, SANDBOXES)
        return [pod for pod in running if pod["status"].get("phase") == "Running"]

    def _kill_one_of(self, component: str) -> None:
        pod = self.random.choice(self._pods(SYSTEM, f"app.kubernetes.io/component={component}"))
        self._kill(pod, f"mcp_exec_{component}")
        self.cluster.wait_for("Ready", "Pod", pod["metadata"]["name"], namespace=SYSTEM, seconds=_RECOVERY_SECONDS)

    def _kill(self, pod: dict[str, Any], command: str) -> None:
        for pid in processes_of(pod["metadata"]["uid"], command):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


def processes_of(uid: str, command: str) -> list[int]:
    """Processes in a pod's cgroup whose command line matches."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            cgroups = (folder / "cgroup").read_text()
            line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if f"pod{uid}" in cgroups.replace("_", "-") and re.search(command, line):
            found.append(int(folder.name))
    return found
