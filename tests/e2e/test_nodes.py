"""Several nodes: sandboxes on all of them, and a node that is lost, drained or without its kubelet for a moment."""

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import pytest

from tests.e2e.journal import TELL, Journal, journal
from tests.e2e.objects import wait_until_none
from tests.e2e.providers import Provider
from tests.e2e.support import (
    OPERATOR,
    RELEASE,
    SYSTEM,
    Cluster,
    MakePool,
    execution_manifest,
    leader,
    operator_lease,
    workers,
)
from tests.support.pace import paced
from tests.support.until import eventually

pytestmark = pytest.mark.timeout(900)
POOL = "nodes"
SANDBOXES = f"mcp-exec.dev/pool={POOL}"
WARM = 4
LOST = {"NodeLost", "SandboxLost", "StreamBroken"}
"""Reasons for the end of an execution whose node is gone."""
NOTICE_SECONDS = paced(120)
"""Kubernetes takes 40 to 50 seconds to see that a node is lost."""
RETURN_SECONDS = paced(180)
TAKEOVER_SECONDS = 20
WAIT = "import threading\nthreading.Event().wait(seconds)\nprint('over')"


@pytest.fixture
def nodes(installed: Cluster) -> list[str]:
    found = workers(installed)
    if len(found) < 2:
        pytest.skip(f"the cluster has {len(found)} node for sandboxes, and the test needs two")
    return found


@pytest.fixture
def breakable(nodes: list[str], installed: Cluster, provider: Provider) -> Iterator[Provider]:
    """The provider, if it stops nodes. All of them are up again after the test."""
    if not provider.stops_nodes:
        pytest.skip(f"the cluster is {provider.name}: its nodes are not the tests' own to stop")
    yield provider
    whole(installed, nodes)


@pytest.fixture
def pool(installed: Cluster, make_pool: MakePool) -> str:
    make_pool(POOL, warm=WARM)
    installed.wait_for("Ready", "SandboxPool", POOL, seconds=120)
    return POOL


def whole(cluster: Cluster, nodes: list[str]) -> None:
    """Wait until all nodes and all pods of the release are ready."""
    cluster.wait_for("Ready", "Node", *nodes, namespace=None, seconds=RETURN_SECONDS)
    for component in ("operator", "gateway", "broker"):
        cluster.rolled_out(f"{RELEASE}-{component}", namespace=SYSTEM, seconds=RETURN_SECONDS)
    for name in cluster.names("SandboxPool"):
        cluster.wait_for("Ready", "SandboxPool", name, seconds=RETURN_SECONDS)


def live_pods(cluster: Cluster) -> list[dict[str, Any]]:
    return cluster.live_pods(SANDBOXES)


def nodes_of(pods: list[dict[str, Any]]) -> Counter[str]:
    return Counter(pod["spec"].get("nodeName", "") for pod in pods)


def node_of(cluster: Cluster, pod: str, *, namespace: str) -> str:
    return str(cluster.get("Pod", pod, namespace=namespace)["spec"]["nodeName"])


def uids_on(cluster: Cluster, node: str) -> set[str]:
    """Return the pool's pods on a node, also those that terminate."""
    pods = cluster.select("Pod", labels=SANDBOXES)
    return {pod["metadata"]["uid"] for pod in pods if pod["spec"].get("nodeName") == node}


def start(cluster: Cluster, told: Journal, names: list[str], *, seconds: int) -> dict[str, str]:
    """Start executions that last so long. Return the node of each, once all of them run."""
    for name in names:
        context = {"journal": told.address, "me": name, "seconds": seconds}
        spec = {"code": TELL + WAIT, "context": context, "poolRef": {"name": POOL}, "timeoutSeconds": 290}
        cluster.delete("CodeExecution", name)
        cluster.apply(execution_manifest(name=name, **spec))

    def missing() -> dict[str, Any] | None:
        recorded = dict(told.entries())
        return {
            name: cluster.get("CodeExecution", name).get("status") for name in names if name not in recorded
        } or None

    wait_until_none(missing, seconds=60, what=f"{names} run")
    pods = dict(told.entries())
    return {name: node_of(cluster, pods[name], namespace="agents") for name in names}


def refilled(cluster: Cluster, *, without: str) -> None:
    """Wait until the pool has all its warm pods on other nodes than this one."""

    def found() -> bool:
        pods = [pod for pod in live_pods(cluster) if pod["metadata"]["labels"]["mcp-exec.dev/state"] == "warm"]
        on = nodes_of([pod for pod in pods if pod["spec"].get("nodeName") != without])
        return on.total() >= WARM and cluster.get("SandboxPool", POOL)["status"].get("warm") == WARM

    eventually(found, seconds=NOTICE_SECONDS, every=0.5, what=f"{WARM} warm pods on other nodes than {without}")


def settle_operators(cluster: Cluster) -> tuple[str, str]:
    """Return the nodes of the leading operator and of the standby, which are two."""

    def apart() -> tuple[str, str] | None:
        leading = leader(cluster)
        pods = cluster.select("Pod", namespace=SYSTEM, labels="app.kubernetes.io/component=operator")
        found = {
            pod["metadata"]["name"]: pod["spec"].get("nodeName")
            for pod in pods
            if "deletionTimestamp" not in pod["metadata"]
        }
        if leading not in found or len(found) != 2:
            return None
        (standby,) = set(found) - {leading}
        if found[standby] == found[leading]:
            # the scheduler prefers another node, but a rolling update may have left both on one
            cluster.delete("Pod", standby, namespace=SYSTEM)
            return None
        return str(found[leading]), str(found[standby])

    cluster.rolled_out(OPERATOR, namespace=SYSTEM, seconds=RETURN_SECONDS)
    assert cluster.get("Deployment", OPERATOR, namespace=SYSTEM)["spec"]["replicas"] == 2
    return eventually(apart, seconds=RETURN_SECONDS, every=1, what="two operators on two nodes")


def test_warm_sandboxes_are_spread_over_the_nodes(installed: Cluster, nodes: list[str], pool: str) -> None:
    found = nodes_of(live_pods(installed))
    assert set(found) == set(nodes) or len(found) == WARM, found
    assert max(found.values()) - min(found.values()) <= 1, found


@pytest.mark.parametrize("way", ["off", "frozen"])
def test_a_lost_node_ends_its_runs_alone_and_has_sandboxes_again_when_it_is_back(
    installed: Cluster, breakable: Provider, nodes: list[str], pool: str, way: str
) -> None:
    stop: Callable[[str], None] = breakable.power_off if way == "off" else breakable.freeze
    resume: Callable[[str], None] = breakable.power_on if way == "off" else breakable.thaw
    leading, lost = settle_operators(installed)
    names = [f"node-{way}-{number}" for number in range(WARM)]
    with journal(installed, node=leading) as told:
        ran_on = start(installed, told, names, seconds=NOTICE_SECONDS)
        on_lost = [name for name in names if ran_on[name] == lost]
        assert 0 < len(on_lost) < len(names), ran_on
        before = uids_on(installed, lost)
        stop(lost)
        try:
            ends = {name: installed.finished(name, seconds=NOTICE_SECONDS) for name in on_lost}
            refilled(installed, without=lost)
            others = {name: installed.finished(name, seconds=290) for name in names if name not in on_lost}
        finally:
            resume(lost)
        assert {name: end["phase"] for name, end in ends.items()} == dict.fromkeys(on_lost, "Failed")
        assert {end["reason"] for end in ends.values()} <= LOST, ends
        assert {end["phase"] for end in others.values()} == {"Succeeded"}, others
        installed.wait_for("Ready", "Node", lost, namespace=None, seconds=RETURN_SECONDS)
        eventually(
            lambda: not before & uids_on(installed, lost),
            seconds=RETURN_SECONDS, every=0.5, what=f"the old pods of {lost} are gone",
        )  # fmt: skip
        installed.merge("SandboxPool", POOL, {"spec": {"warm": {"min": 2 * WARM}}})
        eventually(
            lambda: nodes_of(live_pods(installed))[lost] and installed.get("SandboxPool", POOL)["status"]["warm"] == 8,
            seconds=RETURN_SECONDS, every=0.5, what=f"{lost} has warm sandboxes again",
        )  # fmt: skip
        assert Counter(name for name, _ in told.entries()) == Counter(names), "each has run once"
    installed.delete("CodeExecution", *names)


def test_the_standby_leads_when_the_leaders_node_is_lost_and_runs_elsewhere_go_on(
    installed: Cluster, breakable: Provider, nodes: list[str], pool: str
) -> None:
    lost, standby = settle_operators(installed)
    names = [f"leader-{number}" for number in range(WARM)]
    with journal(installed, node=standby) as told:
        ran_on = start(installed, told, names, seconds=60)
        before = operator_lease(installed)
        breakable.power_off(lost)
        try:
            taken = eventually(
                lambda: (
                    (found := operator_lease(installed))["leaseTransitions"] > before["leaseTransitions"] and found
                ),
                seconds=3 * TAKEOVER_SECONDS, every=0.2, what="the standby leads",
            )  # fmt: skip
            new = installed.execute(name="leader-new", code="print(1)", poolRef={"name": POOL}, seconds=NOTICE_SECONDS)
            ends = {name: installed.finished(name, seconds=2 * NOTICE_SECONDS) for name in names}
        finally:
            breakable.power_on(lost)
        assert taken
        assert taken["holderIdentity"] != before["holderIdentity"]
        # a last renewal may have come between the reading and the loss
        seconds = (at(taken["acquireTime"]) - at(before["renewTime"])).total_seconds()
        assert 0 < seconds < TAKEOVER_SECONDS + 2
        assert new["phase"] == "Succeeded", new
        for name, end in ends.items():
            if ran_on[name] == lost:
                assert (end["phase"], end["reason"] in LOST) == ("Failed", True), end
            else:
                assert end["phase"] == "Succeeded", end
        assert Counter(name for name, _ in told.entries()) == Counter(names), "each has run once"
    installed.delete("CodeExecution", "leader-new", *names)


def test_a_drained_node_is_emptied_and_executions_go_on_elsewhere(
    installed: Cluster, breakable: Provider, nodes: list[str], pool: str
) -> None:
    drained, staying = settle_operators(installed)
    names = [f"drained-{number}" for number in range(WARM)]
    with journal(installed, node=staying) as told:
        ran_on = start(installed, told, names, seconds=60)
        assert 0 < sum(node == drained for node in ran_on.values()) < WARM, ran_on
        try:
            installed.kubectl(
                "drain", drained, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=180s"
            )
            assert not {pod["metadata"]["uid"] for pod in live_pods(installed)} & uids_on(installed, drained)
            ends = {name: installed.finished(name) for name in names}
            new = installed.execute(name="drained-new", code="print(1)", poolRef={"name": POOL})
            refilled(installed, without=drained)
            for component in ("operator", "gateway", "broker"):
                installed.rolled_out(f"{RELEASE}-{component}", namespace=SYSTEM, seconds=RETURN_SECONDS)
        finally:
            installed.kubectl("uncordon", drained)
        assert new["phase"] == "Succeeded", new
        for name, end in ends.items():
            if ran_on[name] == drained:
                # the leader leaves this node, too, and the next one may not know yet that it is cordoned
                assert (end["phase"], end["reason"] in ("Evicted", "SandboxLost")) == ("Failed", True), end
            else:
                assert end["phase"] == "Succeeded", end
        assert Counter(name for name, _ in told.entries()) == Counter(names), "each has run once"
    installed.delete("CodeExecution", "drained-new", *names)


def test_a_run_goes_on_without_its_kubelet_and_the_pool_fills_up_again(
    installed: Cluster, provider: Provider, pool: str
) -> None:
    if provider.name == "existing":
        pytest.skip("the cluster is existing: its kubelets are not the tests' own to kill")
    context = {"seconds": 8}
    installed.delete("CodeExecution", "kubelet")
    installed.apply(execution_manifest(name="kubelet", code=WAIT, context=context, poolRef={"name": POOL}))
    bound = eventually(
        lambda: installed.get("CodeExecution", "kubelet").get("status", {}).get("podName"), what="a bound execution"
    )
    provider.kill_kubelet(node_of(installed, str(bound), namespace="agents"))
    status = installed.finished("kubelet", seconds=60)
    assert (status["phase"], status["output"]["stdout"]) == ("Succeeded", "over\n"), status
    whole(installed, workers(installed))
    installed.delete("CodeExecution", "kubelet")


def at(moment: str) -> datetime:
    return datetime.fromisoformat(moment)
