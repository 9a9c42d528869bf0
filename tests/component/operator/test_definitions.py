"""CustomResourceDefinitions, which the operator upgrades when it starts."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import aiohttp
import pytest
import yaml
from tests.support.api_server import Fault
from tests.support.world import World

from mcp_exec_api.__main__ import format_crd
from mcp_exec_api.constants import ANNOTATION_RELEASE_VERSION
from mcp_exec_api.crd_schema import build_definitions
from mcp_exec_api.wire.version import RELEASE
from mcp_exec_common.kube.client import KubeClient, resource_path
from mcp_exec_common.kube.credentials import KubeCredentials
from mcp_exec_operator.cluster.definitions import Definitions
from mcp_exec_operator.cluster.preflight import CannotStart

Object = dict[str, Any]
CRDS = resource_path("customresourcedefinitions", group="apiextensions.k8s.io/v1")
POOLS = "sandboxpools.mcp-exec.dev"


@pytest.fixture
async def upgrade(world: World) -> Any:
    """Upgrades the definitions, as an operator of some version does when it starts."""
    async with aiohttp.ClientSession(base_url=world.url) as session:
        kube = KubeClient(session=session, credentials=KubeCredentials(server=""), retry_delays=(), timeout_seconds=5)

        async def run(*, wait_seconds: float = 0, version: str = RELEASE) -> None:
            await Definitions(kube=kube, wait_seconds=wait_seconds, version=version).upgrade()

        yield run


def install(world: World, change: Callable[[Object], object] = lambda pools: None) -> None:
    """Install the chart's files as an API server stores them, with its defaults; change that of pools."""
    for definition in build_definitions().values():
        made = yaml.safe_load(format_crd(definition))
        made["metadata"]["labels"] = {"argocd.argoproj.io/instance": "mcp-exec"}
        made["spec"]["conversion"] = {"strategy": "None"}
        if made["metadata"]["name"] == POOLS:
            change(made)
        world.put(CRDS, made)


def spec(world: World) -> Object:
    return dict(world.collections[CRDS][POOLS]["spec"])


def writes(world: World) -> list[str]:
    """Return the definitions that were written so far."""
    return [seen.path.rpartition("/")[2] for seen in world.seen if seen.method in ("POST", "PUT", "PATCH")]


WANTED = build_definitions()["sandboxpools"]["spec"]


def older(pools: Object) -> None:
    """Make it that of an earlier version: without a field, without a column, and with a short name more."""
    version = pools["spec"]["versions"][0]
    del version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["maxPods"]
    del version["additionalPrinterColumns"][0]
    pools["spec"]["names"]["shortNames"].append("old")


def newer(pools: Object) -> None:
    older(pools)
    pools["metadata"]["annotations"] = {ANNOTATION_RELEASE_VERSION: "99.0.0"}


async def test_an_earlier_definition_is_replaced_as_a_whole_and_keeps_the_labels_of_others(
    world: World, upgrade: Any
) -> None:
    install(world, older)
    await upgrade()
    assert spec(world) == WANTED
    meta = world.collections[CRDS][POOLS]["metadata"]
    assert meta["labels"] == {"argocd.argoproj.io/instance": "mcp-exec"}
    assert meta["annotations"][ANNOTATION_RELEASE_VERSION] == RELEASE


async def test_a_kind_that_a_new_version_brings_is_created(world: World, upgrade: Any) -> None:
    install(world)
    world.remove(CRDS, POOLS)
    await upgrade()
    assert spec(world) == WANTED


async def test_definitions_of_the_own_release_are_not_written(world: World, upgrade: Any) -> None:
    install(world)
    await upgrade()
    assert writes(world) == []


async def test_a_server_that_drops_selectable_fields_gets_them_once_for_each_release(
    world: World, upgrade: Any
) -> None:
    """API servers before Kubernetes 1.30 do."""

    def drop(pools: Object) -> None:
        for version in pools["spec"]["versions"]:
            del version["selectableFields"]

    install(world, drop)
    await upgrade()
    assert writes(world) == []
    await upgrade(version="99.0.0")
    assert POOLS in writes(world)


async def test_files_of_a_newer_release_stay_before_its_operator_starts(world: World, upgrade: Any) -> None:
    """Argo CD applies the CRDs first. An operator of the release before may restart then."""
    await upgrade(version="0.0.9")
    install(world)
    await upgrade(version="0.0.9")
    assert world.collections[CRDS][POOLS]["metadata"]["annotations"] == {ANNOTATION_RELEASE_VERSION: RELEASE}
    await upgrade()
    assert len(writes(world)) == len(build_definitions())


async def test_definitions_of_a_newer_release_are_left_as_they_are(world: World, upgrade: Any) -> None:
    """A release of another team is older, or the release was rolled back: stored objects may have new fields."""
    install(world, newer)
    before = spec(world)
    await upgrade()
    assert spec(world) == before
    assert POOLS not in writes(world)


VERSIONS = ["latest", "0.9.0-rc.1", "0.9.0-rc.2", "0.9.0-rc.10", "0.9.0", "0.10.0-alpha", "0.10.0", "1.0.0"]


@pytest.mark.parametrize(("earlier", "later"), list(pairwise(VERSIONS)))
async def test_the_later_of_two_versions_wins_whichever_starts_last(
    world: World, upgrade: Any, earlier: str, later: str
) -> None:
    for version in (earlier, later, earlier):
        await upgrade(version=version)
    assert world.collections[CRDS][POOLS]["metadata"]["annotations"][ANNOTATION_RELEASE_VERSION] == later


async def test_an_operator_that_another_overtakes_reads_again(world: World, upgrade: Any) -> None:
    install(world, older)
    world.faults += [Fault("PUT", POOLS, 409), Fault("GET", POOLS, 500)]
    await upgrade(wait_seconds=30)
    assert spec(world) == WANTED


@pytest.mark.parametrize("method", ["GET", "PUT"])
async def test_without_its_definitions_the_operator_does_not_start(world: World, upgrade: Any, method: str) -> None:
    install(world, older)
    world.faults.append(Fault(method, POOLS, 403))
    with pytest.raises(CannotStart, match=rf"the CustomResourceDefinition {POOLS} can't be upgraded"):
        await upgrade()


async def test_an_image_of_another_version_than_the_chart_starts_with_equal_definitions(
    world: World, upgrade: Any
) -> None:
    """The admission policy allows the mark of the chart's version only."""
    marked = {"annotations": {ANNOTATION_RELEASE_VERSION: "0.0.1"}}
    install(world, lambda pools: pools["metadata"].update(marked))
    world.faults.append(Fault("PUT", POOLS, 403))
    await upgrade()
    assert world.collections[CRDS][POOLS]["metadata"]["annotations"][ANNOTATION_RELEASE_VERSION] == "0.0.1"
