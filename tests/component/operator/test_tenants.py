"""Two tenants at one operator: an execution gets a pod of its own namespace's pools alone, and pods share no user."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.support.until import until
from tests.support.world import CEX, World

from mcp_exec_api.constants import POOLS
from mcp_exec_common.kube.client import custom_resource_path
from mcp_exec_common.kube.errors import ApiError

Operating = Callable[..., Any]
NAMED = ("phase", "reason", "message")
B_POOLS = custom_resource_path(POOLS, namespace="others")


async def test_a_pool_of_another_namespace_is_as_if_it_were_not(world: World, operating: Operating) -> None:
    world.pool()
    spec = {"image": "sandbox", "warm": {"min": 1}}
    metadata = {"name": "of-b", "namespace": "others", "generation": 1}
    world.put(B_POOLS, {"metadata": metadata, "spec": spec})
    async with operating(namespaces=("agents", "others"), bind_timeout_seconds=0.5) as operator:
        operator.manager.observe("pool", world.collections[B_POOLS]["of-b"], deleted=False)
        await world.warm(1)
        for name in ("of-b", "absent"):
            world.execution(f"uses-{name}", poolRef={"name": name})
        found = [await world.finished(f"uses-{name}") for name in ("of-b", "absent")]
    texts = [str([each.get(name) for name in NAMED]) for each in found]
    assert texts[0].replace("of-b", "absent") == texts[1]
    assert found[0]["reason"] == "PoolNotFound"
    assert world.ran == []
    assert [item["status"].get("podName") for item in world.collections[CEX].values()] == [None, None]


async def test_each_pod_has_a_user_id_of_its_own(world: World, operating: Operating) -> None:
    world.pool(warm={"min": 6})
    async with operating():
        await world.warm(6)
    contexts = [pod["spec"]["containers"][0]["securityContext"] for pod in world.pods().values()]
    assert len({context["runAsUser"] for context in contexts}) == 6
    assert all(context["runAsUser"] == context["runAsGroup"] > 65535 for context in contexts)


async def test_a_cluster_that_assigns_user_ids_gets_pods_without_one(world: World, operating: Operating) -> None:
    world.pool(warm={"min": 2})
    async with operating(sandbox_users="Cluster"):
        await world.warm(2)
    for pod in world.pods().values():
        for context in (pod["spec"]["securityContext"], pod["spec"]["containers"][0]["securityContext"]):
            assert context["runAsNonRoot"] is True
            assert not context.keys() & {"runAsUser", "runAsGroup"}


async def test_a_namespace_whose_rights_are_gone_is_left_and_those_of_others_are_served(
    world: World, operating: Operating
) -> None:
    world.pool()
    async with operating(namespaces=("others", "agents"), resync_seconds=60) as operator:
        await world.warm(1)
        world.forbidden.add("/namespaces/others/")
        with pytest.raises(ApiError, match="403"):
            await operator.manager.namespaces["others"].resync.resync(first=False)
        await operator.part.resync.resync(first=False)
        await operator.manager.membership.check()
        assert list(operator.manager.membership.served) == ["agents"]
        await until(lambda: list(operator.manager.namespaces) == ["agents"])
        assert operator.metrics.registry.get_sample_value("mcp_exec_namespaces_refused") == 1
