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
from tests.support.world import EVENTS, NAMESPACE, NAMESPACES, World

from mcp_exec_api.constants import LABEL_RELEASE
from mcp_exec_api.meta import micro_time, now
from mcp_exec_common.kube.client import KubeClient, resource_path
from mcp_exec_common.kube.credentials import KubeCredentials
from mcp_exec_operator.cluster.namespaces.claims import CLAIM, EXPIRES_SECONDS, NamespaceClaims
from mcp_exec_operator.cluster.namespaces.membership import NamespaceMembership
from mcp_exec_operator.metrics import Metrics

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
            return NamespaceClaims(
                kube=kube,
                release=release,
                label=release.replace("/", ".").removesuffix("-operator"),
                clock=lambda: now() + timedelta(seconds=after),
            )

        yield make


def holder(world: World) -> str:
    return str(world.collections.get(LEASES, {}).get(CLAIM, {}).get("spec", {}).get("holderIdentity"))


def claim(world: World, release: str, *, collection: str = LEASES) -> None:
    """Claim the namespace for a release, as its operator does."""
    spec = {"holderIdentity": release, "renewTime": micro_time(now())}
    world.put(collection, {"metadata": {"name": CLAIM}, "spec": spec})


def label(world: World, release: str) -> None:
    """Give the namespace to a release, as its administrator does."""
    world.put(NAMESPACES, {"metadata": {"name": NAMESPACE, "labels": {LABEL_RELEASE: release}}})


async def test_the_second_release_is_refused_with_the_name_of_the_first(world: World, claiming: Claiming) -> None:
    async with aiohttp.ClientSession(base_url=world.url) as session:
        kube = KubeClient(session=session, credentials=KubeCredentials(server=""))
        of = {
            release: NamespaceMembership(kube=kube, claims=claiming(release), metrics=Metrics(), named=(NAMESPACE,))
            for release in (OWN, OTHER)
        }
        for each in (*of.values(), *of.values()):
            await each.check()
    assert [list(each.served) for each in of.values()] == [[NAMESPACE], []]
    why = f"the release {OWN} serves it; remove it from the values of one of the two"
    assert of[OTHER].refused == {NAMESPACE: why}
    assert of[OTHER].metrics.registry.get_sample_value("mcp_exec_namespaces_refused") == 1
    assert holder(world) == OWN
    (event,) = world.collections[EVENTS].values()
    about = (event["type"], event["reason"], event["involvedObject"]["kind"], event["involvedObject"]["name"])
    assert about == ("Warning", "NamespaceTaken", "Namespace", NAMESPACE)
    assert OWN in event["message"]
    assert OTHER in event["message"]


async def test_no_lease_takes_a_namespace_whose_label_gives_it_to_a_release(world: World, claiming: Claiming) -> None:
    label(world, "mcp-exec-system.mcp-exec")
    claim(world, OTHER)
    assert await claiming(OWN).claim(NAMESPACE) == await claiming(OWN).find_other(NAMESPACE) == ""


async def test_the_lease_of_a_namespace_with_a_label_shows_that_its_operator_runs(
    world: World, claiming: Claiming
) -> None:
    label(world, "mcp-exec-system.mcp-exec")
    claim(world, OTHER)
    assert await claiming(OWN).claim(NAMESPACE) == ""
    assert holder(world) == OWN
    before = world.collections[LEASES][CLAIM]["spec"]["renewTime"]
    assert await claiming(OWN, after=90).claim(NAMESPACE) == ""
    assert world.collections[LEASES][CLAIM]["spec"]["renewTime"] > before
    world.forbidden.add("/leases")
    assert await claiming(OWN, after=180).claim(NAMESPACE) == "", "the label is enough"


async def test_a_namespace_whose_label_names_another_release_is_refused(world: World, claiming: Claiming) -> None:
    claim(world, OWN)
    label(world, "tools.mcp-exec")
    for problem in (await claiming(OWN).claim(NAMESPACE), await claiming(OWN).find_other(NAMESPACE)):
        assert "its label mcp-exec.dev/release names the release tools.mcp-exec" in problem
    assert await claiming(OTHER).claim(NAMESPACE) == ""


@pytest.mark.parametrize(("seconds", "is_claim"), [(30, True), (90, False), (30e9, False)])
async def test_a_claim_from_the_future_is_forged(
    world: World, claiming: Claiming, seconds: float, is_claim: bool
) -> None:
    renewed = micro_time(now() + timedelta(seconds=seconds))
    world.put(LEASES, {"metadata": {"name": CLAIM}, "spec": {"holderIdentity": OTHER, "renewTime": renewed}})
    assert (OTHER in await claiming(OWN).claim(NAMESPACE)) == is_claim


async def test_a_claim_is_renewed_each_minute_by_any_replica(world: World, claiming: Claiming) -> None:
    for after, writes in ((0, 1), (50, 1), (70, 2), (80, 2)):
        assert await claiming(OWN, after=after).claim(NAMESPACE) == ""
        assert len([each for each in world.seen if each.method in ("POST", "PUT")]) == writes
    assert await claiming(OTHER, after=70 + EXPIRES_SECONDS - 2).claim(NAMESPACE)


async def test_a_claim_that_nobody_renews_expires(world: World, claiming: Claiming) -> None:
    assert await claiming(OWN).claim(NAMESPACE) == ""
    assert await claiming(OTHER, after=EXPIRES_SECONDS + 1).claim(NAMESPACE) == ""
    assert holder(world) == OTHER
    assert OTHER in await claiming(OWN, after=EXPIRES_SECONDS + 2).claim(NAMESPACE)


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


CHECKED = (
    "from mcp_exec_operator.cluster.namespaces import membership\n"
    f"membership.NamespaceMembership.CHECK_SECONDS = 0.2\n{MAIN}"
)


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
    assert f"{LEASES}/{CLAIM}" in used
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
    await operator.says(f"namespace {NAMESPACE} is not served, nothing runs in it: the release {OTHER} serves it")
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
    hour = {"MCP_EXEC_LEASE_DURATION_SECONDS": "3600", "MCP_EXEC_LEASE_RENEW_SECONDS": "1800"}
    changes = {"MCP_EXEC_NAMESPACES": f"batch,{NAMESPACE}", **hour}
    async with leader_and_standby(cluster, start, **changes) as (leader, standby):
        cluster.faults += [
            Fault("GET", f"batch/{kind}", 403) for kind in ("sandboxsessions", "pods") for _ in range(20)
        ]
        leader.tell(signal.SIGTERM)
        cluster.release.set()
        assert await leader.ended() == 0
        await standby.says("namespace batch is not served, nothing runs in it: its objects can't be listed")
        assert (await cluster.finished("running"))["phase"] == "Succeeded"
        standby.tell(signal.SIGTERM)
        assert await standby.ended() == 0
