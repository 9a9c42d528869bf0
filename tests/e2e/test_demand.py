"""Pools that follow demand."""

from typing import Any

from tests.e2e.support import Cluster, MakePool, condition, execution_manifest
from tests.support.until import eventually

PODS = "app.kubernetes.io/name=mcp-exec-sandbox,mcp-exec.dev/pool="


def status_of(cluster: Cluster, pool: str) -> dict[str, Any]:
    return dict(cluster.get("SandboxPool", pool).get("status", {}))


def test_a_pool_without_pods_grows_with_a_burst_and_is_empty_again_after_it(
    installed: Cluster, make_pool: MakePool
) -> None:
    scaling = {"stableSeconds": 2, "fastWindowSeconds": 2, "slowWindowSeconds": 5, "headroom": 1}
    make_pool("elastic", warm=0, maxPods=6, scaling=scaling)
    installed.merge("SandboxPool", "elastic", {"spec": {"warm": {"max": 3}}})
    eventually(
        lambda: condition(status_of(installed, "elastic"), "Ready").get("status") == "True", what="an empty pool"
    )
    names = [f"elastic-{number}" for number in range(6)]
    installed.apply(*(execution_manifest(name=name, code="print(1)", poolRef={"name": "elastic"}) for name in names))
    most = eventually(lambda: status_of(installed, "elastic").get("desired"), seconds=20, every=0.2, what="demand")
    assert 1 <= most <= 3
    statuses = [installed.finished(name) for name in names]
    assert [status["phase"] for status in statuses] == ["Succeeded"] * 6
    assert statuses[0]["start"] == "Cold"

    def empty() -> bool:
        status = status_of(installed, "elastic")
        found = installed.select("Pod", labels=PODS + "elastic")
        left = [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]
        return not status.get("desired") and not left and condition(status, "Scaled").get("reason") == "AtMinimum"

    eventually(empty, seconds=60, every=0.5, what="the pool is empty again")
