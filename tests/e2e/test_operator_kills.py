"""The operator is killed every one to five seconds while executions run: nothing is lost, nothing runs twice."""

import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.journal import TELL, Journal, journal
from tests.e2e.support import OPERATOR, SYSTEM, Cluster, execution_manifest, patch_operator
from tests.support.pace import paced
from tests.support.until import eventually

pytestmark = pytest.mark.long
EXECUTIONS = int(os.environ.get("MCP_EXEC_KILLED_EXECUTIONS", "60"))
"""`make kills` runs 200."""
SEAL_AFTER = "MCP_EXEC_SEAL_AFTER_SECONDS"
LIVES = (paced(1), paced(5))
"""Shortest and longest life of a process: some end before it leads, and some long enough to bring executions on."""
KILLER = f"""
import random, signal, subprocess, sys
lives = random.Random(0)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
while True:
    process = subprocess.Popen([sys.executable, "-m", "mcp_exec_operator"])
    try:
        process.wait(timeout=lives.uniform{LIVES})
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
"""


@pytest.fixture
def told(installed: Cluster) -> Iterator[Journal]:
    with journal(installed) as found:
        yield found


@pytest.fixture
def killed_operator(installed: Cluster) -> Iterator[None]:
    """The operator's own pod, image and rights, but its process lives one to five seconds at a time.

    It is the only one, and so takes its own lease up again each time: one that stood by would only take CPU.
    """
    spec = installed.get("Deployment", OPERATOR, namespace=SYSTEM)["spec"]
    before = spec["template"]["spec"]["containers"][0]
    probes = dict.fromkeys(("livenessProbe", "readinessProbe", "startupProbe"))
    container = {"name": before["name"], "command": ["python3", "-c", KILLER], **probes}
    # by default a pod is sealed at the age of five seconds, which no such process reaches
    patch_operator(installed, container | {"env": [{"name": SEAL_AFTER, "value": "0"}]}, replicas=1)
    yield
    restored = {name: before.get(name) for name in ("command", *probes)}
    env = [{"name": SEAL_AFTER, "$patch": "delete"}]
    patch_operator(installed, {"name": before["name"], **restored, "env": env}, replicas=spec["replicas"])


def statuses(cluster: Cluster) -> dict[str, dict[str, Any]]:
    found = cluster.select("CodeExecution", labels="test=kills")
    return {item["metadata"]["name"]: item.get("status", {}) for item in found}


@pytest.mark.timeout(900)
def test_all_executions_end_once_each_while_the_operator_is_killed_again_and_again(
    installed: Cluster, told: Journal, killed_operator: None
) -> None:
    for index in range(EXECUTIONS):
        name = f"killed-{index:04}"
        pool = "runc" if index % 2 else "default"
        context = {"journal": told.address, "me": name}
        spec = {"code": TELL, "context": context, "poolRef": {"name": pool}, "timeoutSeconds": 20}
        manifest = execution_manifest(name=name, **spec)
        manifest["metadata"]["labels"] = {"test": "kills"}
        installed.apply(manifest)
    ended = ("Succeeded", "Failed", "TimedOut", "Cancelled")

    def all_ended() -> dict[str, dict[str, Any]]:
        found = statuses(installed)
        return found if all(each.get("phase") in ended for each in found.values()) else {}

    found = eventually(all_ended, seconds=600, every=2, what="all executions end")
    assert len(found) == EXECUTIONS
    calls = Counter(execution for execution, _ in told.entries())
    assert {name: times for name, times in calls.items() if times > 1} == {}
    for name, status in found.items():
        if status["phase"] == "Succeeded":
            assert (calls[name], status["output"]["stdout"]) == (1, f"{name}\n")
        else:
            assert status["reason"] in ("SandboxLost", "SupervisorDied", "StreamBroken", "PoolUnavailable"), status
    succeeded = sum(status["phase"] == "Succeeded" for status in found.values())
    assert succeeded > EXECUTIONS * 0.9, Counter(status.get("reason") for status in found.values())


@pytest.mark.timeout(300)
def test_afterwards_the_pools_are_as_warm_as_they_should_be_and_nothing_is_left_over(installed: Cluster) -> None:
    def settled() -> bool:
        pods = installed.select("Pod", labels="app.kubernetes.io/managed-by=mcp-exec")
        live = Counter(
            pod["metadata"]["labels"]["mcp-exec.dev/pool"] for pod in pods if "deletionTimestamp" not in pod["metadata"]
        )
        pools = installed.select("SandboxPool")
        wanted = {pool["metadata"]["name"]: pool["spec"]["warm"]["min"] for pool in pools}
        warm = {pool["metadata"]["name"]: pool["status"]["warm"] for pool in pools}
        return dict(live) == {name: number for name, number in wanted.items() if number} and warm == wanted

    eventually(settled, seconds=120, every=1, what="each pool has just its warm pods")
    installed.delete("CodeExecution", *installed.names("CodeExecution", labels="test=kills"), wait=False)
