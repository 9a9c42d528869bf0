"""Namespaces that come and go while an operator runs: what happens to one never ends the service of another."""

import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.component.operator.test_failover import MAIN, Start, start
from tests.component.operator.test_leadership import holder
from tests.component.operator.test_watching import Discovered
from tests.support.mounts import mount_namespaces
from tests.support.ports import free_port
from tests.support.processes import Process
from tests.support.until import until
from tests.support.world import NAMESPACE

from mcp_exec_api.constants import LABEL_RELEASE, POOLS
from mcp_exec_api.meta import micro_time, now
from mcp_exec_common.kube.client import custom_resource_path, resource_path

__all__ = ["start"]
BATCH_POOLS = custom_resource_path(POOLS, namespace="batch")
BATCH_LEASES = resource_path("leases", namespace="batch", group="coordination.k8s.io/v1")
NAMESPACES = resource_path("namespaces")
QUICK = (
    "from mcp_exec_operator.cluster.namespaces import membership\n"
    f"membership.NamespaceMembership.CHECK_SECONDS = 0.2\n{MAIN}"
)
"""An operator that checks its namespaces at once."""
REFUSED, SERVED = "namespace batch is not served, nothing runs in it", "namespace batch is served from now on"


@pytest.fixture
async def cluster() -> AsyncIterator[Discovered]:
    async with Discovered().up() as world:
        yield world  # type: ignore[misc]


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator that checks its namespaces only for a reason."""
    patient = QUICK.replace("CHECK_SECONDS = 0.2", "CHECK_SECONDS = 3600")
    monkeypatch.setattr("tests.component.operator.test_failover.MAIN", patient)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.component.operator.test_failover.MAIN", QUICK)


def put_pool(cluster: Discovered, name: str = "default") -> None:
    cluster.put(BATCH_POOLS, {"metadata": {"name": name, "generation": 1}, "spec": {"image": "sandbox"}})


def is_observed(cluster: Discovered, name: str) -> bool:
    return bool(cluster.collections[BATCH_POOLS][name].get("status"))


def count(operator: Process, text: str) -> int:
    return sum(text in record["message"] for record in operator.records)


@asynccontextmanager
async def serving_both(cluster: Discovered, start: Start, **changes: str) -> AsyncIterator[Process]:
    """An operator of two namespaces that runs code in `agents`, and must go on with it without a new list or watch."""
    cluster.pool()
    put_pool(cluster)
    operator = await start("pod-a", **({"MCP_EXEC_NAMESPACES": f"batch,{NAMESPACE}"} | changes))
    await cluster.warm(1)
    await operator.says("the operator is reconciling")
    await cluster.until(lambda: is_observed(cluster, "default"))
    cluster.execution("running", "wait")
    await cluster.until(lambda: len(cluster.ran) == 1)
    yield operator
    cluster.release.set()
    cluster.execution("after")
    for name in ("running", "after"):
        assert (await cluster.finished(name))["phase"] == "Succeeded"
    assert len(cluster.ran) == 2
    assert (holder(cluster), count(operator, "became leader")) == ("pod-a_1", 1)
    assert count(operator, "the operator is stopping") == 0
    operator.tell(signal.SIGTERM)
    assert await operator.ended() == 0


def list_asked(cluster: Discovered) -> list[str]:
    """Return the lists and watches in `agents`, which a restart of its service would repeat."""
    kinds = ("codeexecutions", "sandboxpools", "sandboxsessions", "pods", "networkpolicies", "skills")
    ends = tuple(f"/namespaces/{NAMESPACE}/{kind}" for kind in kinds)
    return [f"{each.method} {each.path} {each.query}" for each in cluster.seen if each.path.endswith(ends)
            and each.method == "GET"]  # fmt: skip


def take_by_lease(cluster: Discovered) -> Callable[[], None]:
    spec = {"holderIdentity": "tools/mcp-exec-operator", "renewTime": micro_time(now())}
    cluster.put(BATCH_LEASES, {"metadata": {"name": "mcp-exec"}, "spec": spec})
    return lambda: cluster.remove(BATCH_LEASES, "mcp-exec")


def take_by_label(cluster: Discovered) -> Callable[[], None]:
    cluster.put(NAMESPACES, {"metadata": {"name": "batch", "labels": {LABEL_RELEASE: "tools.mcp-exec"}}})
    return lambda: cluster.remove(NAMESPACES, "batch")


def take_rights(cluster: Discovered) -> Callable[[], None]:
    cluster.forbidden.add("/namespaces/batch/")
    return cluster.forbidden.clear


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("take", [take_by_lease, take_by_label, take_rights])
async def test_a_namespace_that_is_taken_away_and_given_back_changes_nothing_for_the_others(
    cluster: Discovered, start: Start, take: Callable[[Discovered], Callable[[], None]]
) -> None:
    async with serving_both(cluster, start) as operator:
        before = list_asked(cluster)
        for times in (1, 2, 3):
            give_back = take(cluster)
            await until(lambda times=times: count(operator, REFUSED) == times)
            put_pool(cluster, f"pool-{times}")
            give_back()
            await until(lambda times=times: count(operator, SERVED) == times + 1)
            await cluster.until(lambda times=times: is_observed(cluster, f"pool-{times}"))
        put_pool(cluster, "watched")
        await cluster.until(lambda: is_observed(cluster, "watched"))
        assert list_asked(cluster) == before


@pytest.mark.usefixtures("patient")
async def test_a_namespace_whose_label_gives_it_to_another_release_is_left_at_once(
    cluster: Discovered, start: Start
) -> None:
    """The other release may see the label first, and two operators would correct each other's policies."""
    async with serving_both(cluster, start) as operator:
        take_by_label(cluster)
        await until(lambda: count(operator, REFUSED) == 1)


async def test_a_watch_that_is_refused_in_one_namespace_ends_no_watch_in_another(
    cluster: Discovered, start: Start
) -> None:
    """kopf ends all its watches after a refusal that it has repeated five times."""

    def list_refused() -> list[Any]:
        return [each for each in cluster.asked("GET", "/batch/sandboxpools") if "fieldSelector" in each.query]

    async with serving_both(cluster, start) as operator:
        # by a resync the operator would leave the namespace at once, and end its watches
        cluster.forbidden.add(f"{custom_resource_path(POOLS, namespace='batch')}/?limit=10&fieldSelector")
        before = len(list_refused())
        await cluster.expire_watches()
        await cluster.until_asked(lambda: len(list_refused()) > before + 7)
        assert count(operator, "the watches have ended") == 0


async def test_a_namespace_that_is_named_or_removed_is_served_or_left_without_a_restart(
    cluster: Discovered, start: Start, tmp_path: Path
) -> None:
    folder = mount_namespaces(tmp_path / "namespaces", "batch", NAMESPACE)
    changes = {"MCP_EXEC_NAMESPACES": "", "MCP_EXEC_NAMESPACES_FOLDER": str(folder)}
    others = custom_resource_path(POOLS, namespace="others")
    cluster.put(others, {"metadata": {"name": "default", "generation": 1}, "spec": {"image": "sandbox"}})
    async with serving_both(cluster, start, **changes) as operator:
        before = list_asked(cluster)
        mount_namespaces(folder, NAMESPACE, "others")
        await operator.says("namespace others is served from now on")
        await operator.says("namespace batch is not served any more")
        await cluster.until(lambda: cluster.collections[others]["default"].get("status"))
        mount_namespaces(folder, NAMESPACE, "batch")
        put_pool(cluster, "later")
        await cluster.until(lambda: is_observed(cluster, "later"))
        assert list_asked(cluster) == before


@pytest.mark.usefixtures("quick")
async def test_an_operator_whose_only_namespace_is_taken_waits_for_it_and_says_so(
    cluster: Discovered, start: Start
) -> None:
    take_by_lease(cluster)
    port = free_port()
    operator = await start("pod-a", MCP_EXEC_NAMESPACES="batch", MCP_EXEC_PORT=str(port))
    await operator.says(REFUSED)
    await operator.says("the operator is reconciling")
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
        async with session.get("/readyz") as response:
            missing = (await response.json())["missing"]
            assert response.status == 503
        why = "the release tools/mcp-exec-operator serves it; remove it from the values of one of the two"
        assert missing == [f"no namespace is served; namespace batch: {why}"]
        async with session.get("/healthz") as response:
            assert response.status == 200
        async with session.get("/metrics") as response:
            assert "mcp_exec_namespaces_refused 1.0" in await response.text()
    put_pool(cluster)
    cluster.remove(BATCH_LEASES, "mcp-exec")
    await cluster.until(lambda: is_observed(cluster, "default"))
    operator.tell(signal.SIGTERM)
    assert await operator.ended() == 0
