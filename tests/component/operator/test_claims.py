"""A namespace that two releases name is served by the one that has claimed it, and refused by the other."""

import signal
from collections.abc import AsyncIterator, Callable
from datetime import timedelta

import aiohttp
import pytest
from tests.component.operator.test_failover import MAIN, Start, leader_and_standby, start
from tests.component.operator.test_served_namespaces import cluster
from tests.component.operator.test_watching import Discovered
from tests.support.api_server import Fault
from tests.support.world import EVENTS, NAMESPACE, World

from mcp_exec_api.meta import micro_time, now
from mcp_exec_common.kube.client import KubeClient, resource_path
from mcp_exec_common.kube.credentials import KubeCredentials
from mcp_exec_operator.kube.claims import CLAIM, EXPIRES_SECONDS, NamespaceClaims

__all__ = ["cluster", "start"]
LEASES = resource_path("leases", namespace=NAMESPACE, group="coordination.k8s.io/v1")
OWN, OTHER = "mcp-exec-system/mcp-exec-operator", "tools/mcp-exec-operator"
Claiming = Callable[..., NamespaceClaims]


@pytest.fixture
async def claiming(world: World) -> AsyncIterator[Claiming]:
    """Makes the claims of a release, some seconds from now."""
    async with aiohttp.ClientSession(base_url=world.url) as session:
        kube = KubeClient(session=session, credentials=KubeCredentials(server=""), retry_delays=(), timeout_seconds=5)

        def make(release: str, *, after: float = 0) -> NamespaceClaims:
            return NamespaceClaims(kube=kube, release=release, clock=lambda: now() + timedelta(seconds=after))

        yield make


def holder(world: World) -> str:
    return str(world.collections.get(LEASES, {}).get(CLAIM, {}).get("spec", {}).get("holderIdentity"))


def claim(world: World, release: str) -> None:
    """Claim the namespace for a release, as its operator does."""
    world.put(
        LEASES, {"metadata": {"name": CLAIM}, "spec": {"holderIdentity": release, "renewTime": micro_time(now())}}
    )


async def test_the_second_release_is_refused_with_the_name_of_the_first(world: World, claiming: Claiming) -> None:
    assert await claiming(OWN).claim_all([NAMESPACE]) == {}
    refused = await claiming(OTHER).claim_all([NAMESPACE])
    assert refused == {NAMESPACE: f"the release {OWN} serves it; remove it from the values of one of the two"}
    assert holder(world) == OWN
    (event,) = world.collections[EVENTS].values()
    assert (event["type"], event["reason"], event["involvedObject"]["name"]) == ("Warning", "NamespaceTaken", CLAIM)
    assert OWN in event["message"]
    assert OTHER in event["message"]


async def test_a_claim_is_renewed_each_minute_by_any_replica(world: World, claiming: Claiming) -> None:
    for after, writes in ((0, 1), (50, 1), (70, 2), (80, 2)):
        assert await claiming(OWN, after=after).claim(NAMESPACE) == ""
        assert len([each for each in world.seen if each.method in ("POST", "PUT")]) == writes
    assert await claiming(OTHER, after=70 + EXPIRES_SECONDS - 2).claim(NAMESPACE) == OWN


async def test_a_claim_that_nobody_renews_expires(world: World, claiming: Claiming) -> None:
    assert await claiming(OWN).claim(NAMESPACE) == ""
    assert await claiming(OTHER, after=EXPIRES_SECONDS + 1).claim(NAMESPACE) == ""
    assert holder(world) == OTHER
    assert await claiming(OWN, after=EXPIRES_SECONDS + 2).claim(NAMESPACE) == OTHER


async def test_a_claim_that_is_given_up_is_free_at_once(world: World, claiming: Claiming) -> None:
    assert await claiming(OWN).claim(NAMESPACE) == ""
    await claiming(OTHER).release_claim(NAMESPACE)
    assert holder(world) == OWN
    await claiming(OWN).release_claim(NAMESPACE)
    assert await claiming(OTHER).claim(NAMESPACE) == ""


@pytest.mark.parametrize("code", [409, 500])
async def test_of_two_that_claim_at_once_one_has_it(world: World, claiming: Claiming, code: int) -> None:
    """The API server refuses the second write. Another error is no refusal: it is raised."""
    world.faults.append(Fault("POST", "/leases", code))
    if code == 500:
        with pytest.raises(Exception, match="500"):
            await claiming(OWN).claim(NAMESPACE)
        return
    assert await claiming(OWN).claim(NAMESPACE) == ""
    assert not world.faults


@pytest.mark.parametrize("spec", [{}, {"holderIdentity": OTHER}, {"holderIdentity": OTHER, "renewTime": "soon"}, None])
async def test_a_lease_that_says_nothing_is_no_claim(world: World, claiming: Claiming, spec: object) -> None:
    world.put(LEASES, {"metadata": {"name": CLAIM}, "spec": spec})
    assert await claiming(OWN).claim(NAMESPACE) == ""
    assert holder(world) == OWN


CHECKED = "from mcp_exec_operator.kube.claims import NamespaceClaims\nNamespaceClaims.CHECK_SECONDS = 0.2\n" + MAIN


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Operators of these tests check their claims at once."""
    monkeypatch.setattr("tests.component.operator.test_failover.MAIN", CHECKED)


@pytest.mark.usefixtures("quick")
async def test_nothing_runs_in_a_namespace_of_another_release_until_that_leaves_it(
    cluster: Discovered, start: Start
) -> None:
    cluster.pool()
    claim(cluster, OTHER)
    operator = await start("pod-a", MCP_EXEC_NAMESPACES=f"batch,{NAMESPACE}")
    await operator.says("the operator is reconciling")
    assert any(f"the release {OTHER} serves it" in line["message"] for line in operator.records)
    # a list of one object checks the rights
    asked = [each for each in cluster.seen if each.query.get("limit") != "1"]
    used = {each.path for each in asked if f"/namespaces/{NAMESPACE}/" in each.path}
    assert used <= {f"{LEASES}/{CLAIM}", EVENTS}
    assert not cluster.pods()
    cluster.remove(LEASES, CLAIM)
    await cluster.warm(1)
    assert holder(cluster) == OWN
    operator.tell(signal.SIGTERM)
    assert await operator.ended() == 0


@pytest.mark.usefixtures("quick")
async def test_a_release_whose_claim_is_taken_serves_the_namespace_no_more(cluster: Discovered, start: Start) -> None:
    cluster.pool()
    operator = await start("pod-a", MCP_EXEC_NAMESPACES=f"batch,{NAMESPACE}")
    await cluster.warm(1)
    await operator.says("the operator is reconciling")
    claim(cluster, OTHER)
    await operator.says(f"namespace {NAMESPACE} is lost: the release {OTHER} serves it")
    await operator.says(f"namespace {NAMESPACE} is not served, nothing runs in it")
    operator.tell(signal.SIGTERM)
    assert await operator.ended() == 0


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("path", [f"{NAMESPACE}/leases/{CLAIM}", f"{NAMESPACE}/pods"])
async def test_rights_that_come_after_the_name_of_a_namespace_are_waited_for(
    cluster: Discovered, start: Start, path: str
) -> None:
    cluster.pool()
    cluster.faults += [Fault("GET", path, 403)] * 3
    operator = await start("pod-a", MCP_EXEC_NAMESPACES=f"batch,{NAMESPACE}")
    await operator.says(f"namespace {NAMESPACE} is not served")
    await cluster.warm(1)
    assert not cluster.faults
    operator.tell(signal.SIGTERM)
    assert await operator.ended() == 0


async def test_a_standby_that_leads_after_the_rights_in_a_namespace_have_gone_serves_the_others(
    cluster: Discovered, start: Start
) -> None:
    async with leader_and_standby(cluster, start, MCP_EXEC_NAMESPACES=f"batch,{NAMESPACE}") as (leader, standby):
        cluster.faults += [
            Fault("GET", f"batch/{kind}", 403) for kind in ("sandboxsessions", "pods") for _ in range(20)
        ]
        leader.tell(signal.SIGTERM)
        cluster.release.set()
        assert await leader.ended() == 0
        await standby.says("namespace batch is not served, since its objects can't be listed")
        assert (await cluster.finished("running"))["phase"] == "Succeeded"
        standby.tell(signal.SIGTERM)
        assert await standby.ended() == 0


async def test_a_release_without_any_namespace_says_so_and_ends(cluster: Discovered, start: Start) -> None:
    claim(cluster, OTHER)
    operator = await start("pod-a")
    assert await operator.ended() == 1
    assert f"namespace {NAMESPACE} is not served: the release {OTHER} serves it" in operator.records[-1]["message"]
