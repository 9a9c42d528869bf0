"""NetworkPolicies: what deletes one, or adds one, opens no sandbox unnoticed."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.support.world import NAMESPACE, NAMESPACES, PODS, POLICIES, SBP, World

Operating = Callable[..., Any]
BASE, POOLS_OWN, NAMESPACES_OWN = "mcp-exec-base-default", "mcp-exec-pool-default", "mcp-exec-base"


def policy(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"podSelector": {}, "policyTypes": ["Egress"], **spec}}


@pytest.mark.parametrize("name", [BASE, POOLS_OWN, NAMESPACES_OWN])
async def test_a_deleted_policy_is_put_back_at_once(world: World, operating: Operating, name: str) -> None:
    world.pool()
    async with operating(resync_seconds=3600):
        await world.warm(1)
        world.remove(POLICIES, name)
        await world.until(lambda: name in world.collections[POLICIES])


FOREIGN = [{"kind": "ConfigMap", "name": "gone", "uid": "gone"}]


@pytest.mark.parametrize("changes", [{"labels": {}}, {"ownerReferences": FOREIGN}], ids=["labels", "owners"])
@pytest.mark.parametrize("name", [BASE, POOLS_OWN, NAMESPACES_OWN])
async def test_a_policy_that_somebody_altered_is_corrected_at_once(
    world: World, operating: Operating, name: str, changes: dict[str, Any]
) -> None:
    """Without its labels no admission policy guards it, and with another owner Kubernetes may delete it."""
    world.pool()
    async with operating(resync_seconds=3600):
        await world.warm(1)
        before = world.collections[POLICIES][name]
        spec = {**before["spec"], "podSelector": {"matchLabels": {"app": "web"}}}
        world.put(POLICIES, {**before, "metadata": {**before["metadata"], **changes}, "spec": spec})

        def corrected() -> bool:
            found = world.collections[POLICIES][name]
            same = all(found["metadata"].get(each) == before["metadata"].get(each) for each in changes)
            return same and found["spec"] == before["spec"]

        await world.until(corrected)


async def test_pools_of_one_namespace_share_its_policy(world: World, operating: Operating) -> None:
    world.pool()
    world.put(SBP, {"metadata": {"name": "other"}, "spec": {"image": "sandbox", "warm": {"min": 1}}})
    async with operating(resync_seconds=3600):
        await world.until(lambda: len(world.pods()) == 2)
        world.remove(POLICIES, NAMESPACES_OWN)
        await world.until(lambda: NAMESPACES_OWN in world.collections[POLICIES])
        world.execution("plain")
        assert (await world.finished("plain"))["phase"] == "Succeeded"


async def test_the_pods_of_a_policy_that_was_deleted_belong_to_the_new_one(world: World, operating: Operating) -> None:
    world.pool(warm={"min": 2})
    async with operating(resync_seconds=3600):
        await world.warm(2)
        world.execution("long", "wait")
        await world.until(lambda: len(world.ran) == 1)
        world.remove(POLICIES, BASE)
        for name in list(world.pods()):  # as the garbage collector does
            world.merge(PODS, name, {"metadata": {"ownerReferences": []}})
        await world.until(lambda: BASE in world.collections[POLICIES])
        uid = world.collections[POLICIES][BASE]["metadata"]["uid"]

        def owned() -> bool:
            owners = [pod["metadata"]["ownerReferences"] for pod in world.pods().values()]
            return all((uid, True) in {(o["uid"], o["blockOwnerDeletion"]) for o in each} for each in owners)

        await world.until(owned)
        world.release.set()
        await world.finished("long")


async def test_no_pod_is_made_while_its_base_policy_is_being_deleted(world: World, operating: Operating) -> None:
    world.pool()
    async with operating():
        await world.warm(1)
    gone = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    world.merge(POLICIES, BASE, {"metadata": gone})
    world.remove(PODS, next(iter(world.pods())))
    async with operating():
        await world.until(lambda: "is being deleted" in world.condition("Isolated").get("message", ""))
        assert world.pods() == {}
        world.remove(POLICIES, BASE)
        await world.warm(1)


async def test_the_run_of_a_deleted_pool_ends_as_cancelled(world: World, operating: Operating) -> None:
    world.pool()
    async with operating():
        world.execution("long", "wait")
        await world.until(lambda: len(world.ran) == 1)
        pod = world.status("long")["podName"]
        world.remove(SBP, "default")
        status = await world.finished("long")
        await world.until(lambda: pod not in world.pods())
    assert (status["phase"], status["reason"]) == ("Cancelled", "Cancelled")
    assert status["conditions"][-1]["message"] == "cancelled: the pool default was deleted"


async def test_the_run_of_a_pool_that_was_deleted_with_its_pods_while_no_operator_ran_ends_as_cancelled(
    world: World, operating: Operating
) -> None:
    world.pool()
    async with operating():
        world.execution("long", "wait")
        await world.until(lambda: len(world.ran) == 1)
    world.remove(PODS, world.status("long")["podName"])
    world.remove(SBP, "default")
    async with operating():
        assert (await world.finished("long"))["phase"] == "Cancelled"


async def test_the_sandboxes_of_a_namespace_that_is_deleted_end_while_its_policies_stand(
    world: World, operating: Operating
) -> None:
    world.pool()
    namespace = world.put(NAMESPACES, {"metadata": {"name": NAMESPACE}})
    async with operating():
        world.execution("long", "wait")
        await world.until(lambda: len(world.ran) == 1)
        await world.warm(1)
        deleted = {**namespace["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
        world.put(NAMESPACES, {"metadata": deleted})
        status = await world.finished("long")
        await world.until(lambda: not world.pods())
        world.execution("late")
        late = await world.finished("late")
        assert set(world.collections[POLICIES]) == {BASE, POOLS_OWN, NAMESPACES_OWN}
        assert (status["phase"], late["phase"]) == ("Cancelled", "Cancelled")
        assert status["conditions"][-1]["message"] == "cancelled: the namespace agents is being deleted"
        world.put(NAMESPACES, {"metadata": namespace["metadata"]})  # deleted, and created again
        await world.warm(1)


async def test_a_namespace_that_nothing_has_changed_for_long_is_still_followed(
    world: World, operating: Operating
) -> None:
    world.pool()
    namespace = world.put(NAMESPACES, {"metadata": {"name": NAMESPACE}})
    world.compacted = world.version + 1  # as etcd does every five minutes
    async with operating():
        world.execution("long", "wait")
        await world.until(lambda: len(world.ran) == 1)
        world.put(NAMESPACES, {"metadata": {**namespace["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}})
        assert (await world.finished("long"))["phase"] == "Cancelled"
        assert len([seen for seen in world.seen if "/watch/namespaces/" in seen.path]) == 1


async def test_policies_of_others_that_open_sandboxes_are_named(world: World, operating: Operating) -> None:
    world.put(POLICIES, policy("allow-dns", egress=[{"ports": [{"port": 53}]}]))
    world.put(POLICIES, policy("deny-all"))
    world.put(POLICIES, policy("elsewhere", podSelector={"matchLabels": {"app": "web"}}, egress=[{}]))
    world.pool()
    async with operating():
        await world.until(lambda: world.condition("Isolated").get("reason") == "OpenedByOthers")
        assert world.condition("Isolated")["message"].endswith(": allow-dns (egress)")
        busy = {"matchLabels": {"mcp-exec.dev/state": "busy"}}
        world.put(POLICIES, policy("busy-ones", podSelector=busy, policyTypes=["Ingress"], ingress=[{}]))
        await world.until(lambda: "busy-ones (ingress)" in world.condition("Isolated")["message"])
        world.remove(POLICIES, "allow-dns")
        world.remove(POLICIES, "busy-ones")
        await world.until(lambda: world.condition("Isolated").get("status") == "True")
