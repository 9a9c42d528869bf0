"""Pools that follow demand, and pools of several kinds of pods."""

from collections import Counter
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


def test_callers_keep_their_variant_and_each_variant_has_its_share(installed: Cluster, make_pool: MakePool) -> None:
    half = {"limits": {"cpu": "500m", "memory": "256Mi"}}
    variants = [{"name": "whole", "weight": 50}, {"name": "half", "weight": 50, "resources": half}]
    make_pool("mixed", warm=2, variants=variants)
    installed.wait_for("Ready", "SandboxPool", "mixed", seconds=90)

    def each_has_one() -> bool:
        return {each["name"]: each.get("warm") for each in status_of(installed, "mixed")["variants"]} == {
            "whole": 1,
            "half": 1,
        }

    eventually(each_has_one, seconds=60, what="a warm pod of each variant")
    seen: dict[str, set[str]] = {}
    with installed.as_component("gateway") as gateway:  # which alone states a caller
        for number in range(8):
            caller = f"caller-{number % 4}"
            manifest = execution_manifest(name=f"mixed-{number}", code="print(1)", poolRef={"name": "mixed"})
            manifest["metadata"]["annotations"] = {"mcp-exec.dev/variant-key": caller}
            gateway.apply(manifest)
            status = installed.finished(f"mixed-{number}")
            assert status["phase"] == "Succeeded"
            seen.setdefault(caller, set()).add(status["variant"])
    assert all(len(found) == 1 for found in seen.values()), seen
    pods = installed.select("Pod", labels=PODS + "mixed")
    memory = Counter(
        (
            pod["metadata"]["labels"]["mcp-exec.dev/variant"],
            pod["spec"]["containers"][0]["resources"]["limits"]["memory"],
        )
        for pod in pods
    )
    assert set(memory) <= {("whole", "512Mi"), ("half", "256Mi")}
