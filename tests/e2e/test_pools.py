"""A pool that can't have its pods says why, and so does an execution that waits for one."""

from typing import Any

import pytest

from tests.e2e.support import NAMESPACE, Cluster, MakePool, condition, execution_manifest
from tests.support.until import eventually


def reason_of(cluster: Cluster, pool: str, reason: str) -> dict[str, Any]:
    """The pool's Ready condition, once it has this reason."""

    def found() -> dict[str, Any]:
        ready = condition(cluster.get("SandboxPool", pool).get("status", {}), "Ready")
        return ready if ready.get("reason") == reason else {}

    return eventually(found, seconds=60, what=f"pool {pool} is not ready because of {reason}")


def pending(cluster: Cluster, name: str, reason: str) -> dict[str, Any]:
    """The status of an execution that waits for this reason."""

    def found() -> dict[str, Any]:
        status = cluster.get("CodeExecution", name).get("status", {})
        return status if status.get("reason") == reason else {}

    return eventually(found, seconds=60, what=f"execution {name} waits because of {reason}")


CASES: dict[str, tuple[dict[str, Any], str, str]] = {
    "no-runtime": ({"runtimeClassName": "missing"}, "RuntimeClassNotFound", "missing"),
    "no-image": (
        {"image": "localhost/no-such-image:1", "imagePullPolicy": "Never"},
        "ImagePullFailed",
        "no-such-image",
    ),
    "no-node": ({"nodeSelector": {"no": "such-node"}}, "Unschedulable", "node"),
    "too-big": ({"resources": {"limits": {"cpu": "900"}, "requests": {"cpu": "900"}}}, "LimitRangeExceeded", "cpu"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_pool_says_why_it_has_no_pods_and_so_does_the_execution(
    installed: Cluster, make_pool: MakePool, case: str
) -> None:
    spec, reason, word = CASES[case]
    make_pool(case, **spec)
    ready = reason_of(installed, case, reason)
    assert ready["status"] == "False"
    assert word in ready["message"].lower()
    installed.apply(execution_manifest(name=f"waits-{case}", code="1", poolRef={"name": case}))
    try:
        status = pending(installed, f"waits-{case}", reason)
        assert condition(status, "Bound")["status"] == "False"
        assert word in condition(status, "Bound")["message"].lower()
    finally:
        installed.delete("CodeExecution", f"waits-{case}")


def test_a_namespace_quota_shows_as_such(installed: Cluster, make_pool: MakePool) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "no-more", "namespace": NAMESPACE},
        "spec": {"hard": {"requests.memory": "1Mi"}},
    }
    installed.apply(quota)
    try:
        make_pool("over-quota")
        assert "quota" in reason_of(installed, "over-quota", "QuotaExceeded")["message"]
        installed.apply(execution_manifest(name="over-quota", code="1", poolRef={"name": "over-quota"}))
        pending(installed, "over-quota", "QuotaExceeded")
    finally:
        installed.delete("ResourceQuota", "no-more")
    # Once the quota is gone the pool heals by itself and what waited is run.
    assert installed.finished("over-quota", seconds=60)["phase"] == "Succeeded"
    installed.delete("CodeExecution", "over-quota")


def test_an_empty_pool_starts_a_pod_for_the_execution(installed: Cluster, make_pool: MakePool) -> None:
    make_pool("empty", warm=0, logOutput=True)
    status = installed.execute(name="cold", code="print('cold')", poolRef={"name": "empty"})
    assert (status["phase"], status["start"], status["output"]["stdout"]) == ("Succeeded", "Cold", "cold\n")
    assert condition(status, "Bound")["reason"] == "ColdPod"
    installed.delete("CodeExecution", "cold")
    # the pool also copies output to the log of the container, while the code runs
    code = "import time\nprint('followed', flush=True)\ntime.sleep(60)"
    installed.apply(execution_manifest(name="followed", code=code, poolRef={"name": "empty"}))
    pod = eventually(lambda: (installed.get("CodeExecution", "followed")["status"]).get("podName"), what="a pod")
    eventually(lambda: "stdout | followed" in installed.logs(pod).splitlines(), what="output in the log")
    installed.delete("CodeExecution", "followed")


def test_kata_pods_carry_the_overhead_and_node_selector_of_their_runtime_class(
    installed: Cluster, make_pool: MakePool
) -> None:
    """No Kata runs here: the pods are right as far as the scheduler, which finds no node that has it."""
    installed.apply(
        {
            "apiVersion": "node.k8s.io/v1",
            "kind": "RuntimeClass",
            "metadata": {"name": "kata"},
            "handler": "kata",
            "overhead": {"podFixed": {"memory": "160Mi", "cpu": "250m"}},
            "scheduling": {"nodeSelector": {"katacontainers.io/kata-runtime": "true"}},
        }
    )
    try:
        make_pool("kata", runtimeClassName="kata")
        reason_of(installed, "kata", "Unschedulable")
        pod = installed.select("Pod", labels="mcp-exec.dev/pool=kata")[0]["spec"]
        assert pod["overhead"] == {"memory": "160Mi", "cpu": "250m"}
        assert pod["nodeSelector"] == {"katacontainers.io/kata-runtime": "true"}
        assert pod["runtimeClassName"] == "kata"
    finally:
        installed.delete("RuntimeClass", "kata")


def current_of(cluster: Cluster, pool: str, *words: str) -> dict[str, Any]:
    """The pool's Current condition, once its message has these words."""

    def found() -> dict[str, Any]:
        current = condition(cluster.get("SandboxPool", pool).get("status", {}), "Current")
        return current if all(word in current.get("message", "") for word in words) else {}

    return eventually(found, seconds=60, what=f"pool {pool} says {words}")


def test_pods_without_another_node_are_held_while_theirs_is_cordoned_and_drained(
    installed: Cluster, make_pool: MakePool
) -> None:
    make_pool("cordoned", warm=1)
    reason_of(installed, "cordoned", "Warm")
    selector = "mcp-exec.dev/pool=cordoned"

    def pods() -> set[str]:
        return {pod["metadata"]["name"] for pod in installed.select("Pod", labels=selector)}

    (idle,) = pods()
    nodes = [node["metadata"]["name"] for node in installed.select("Node")]
    installed.kubectl("cordon", *nodes)
    try:
        # the replacement is asked for and held; the pod that it is for stays, and is of use
        assert current_of(installed, "cordoned", "is cordoned", "nodes are available")["status"] == "False"
        assert idle in pods()
        assert len(pods()) == 2
        status = installed.execute(name="on-cordoned", code="1", poolRef={"name": "cordoned"})
        assert (status["phase"], status["start"], status["podName"]) == ("Succeeded", "Warm", idle)
        held = reason_of(installed, "cordoned", "Unschedulable")
        assert "nodes are available" in held["message"]
        installed.kubectl("uncordon", *nodes)
        reason_of(installed, "cordoned", "Warm")
        current_of(installed, "cordoned", "all idle pods are up to date")
        # no budget holds up a drain, and what it takes is replaced when a node takes pods again
        drained = pods()
        for node in nodes:
            installed.kubectl(
                "drain",
                node,
                f"--pod-selector={selector}",
                "--delete-emptydir-data",
                "--ignore-daemonsets",
                "--timeout=60s",
            )
        reason_of(installed, "cordoned", "Unschedulable")
    finally:
        installed.kubectl("uncordon", *nodes)
        installed.delete("CodeExecution", "on-cordoned")
    reason_of(installed, "cordoned", "Warm")
    current_of(installed, "cordoned", "all idle pods are up to date")
    assert not drained & pods()


def test_a_pool_lists_the_python_of_its_image(installed: Cluster) -> None:
    def find_python() -> str:
        return str(installed.get("SandboxPool", "default").get("status", {}).get("python") or "")

    python = eventually(find_python, seconds=60, what="the operator has asked a pod of the pool default")
    code = "import platform; platform.python_version()"
    assert installed.execute(name="which-python", code=code)["output"]["result"] == python
    installed.delete("CodeExecution", "which-python")


def test_code_may_use_what_models_write_today(installed: Cluster) -> None:
    code = 'd = {"k": 1}\ntype Pair = tuple[int, int]\ndef first[T](x: T) -> T:\n    return x\nfirst(f"{d["k"]}")'
    assert installed.execute(name="of-today", code=code)["output"]["result"] == "1"
    installed.delete("CodeExecution", "of-today")
