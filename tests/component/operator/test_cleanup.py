"""The cleanup before an uninstallation: executions end as Cancelled, the operator stops, sandboxes are deleted."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from tests.component.operator.test_claims import claim, holder, label
from tests.support.api_server import Fault
from tests.support.world import BINDINGS, CEX, DEPLOYMENTS, LEASES, NAMESPACE, PODS, POLICIES, SBP, SYSTEM, World

from mcp_exec_api.constants import LABEL_MANAGED_BY, LABEL_NAME, MANAGED_BY, SANDBOX_NAME
from mcp_exec_api.sandbox_pool import UNOBSERVED_STATUS
from mcp_exec_common.kube.client import KubeClient
from mcp_exec_common.kube.credentials import KubeCredentials
from mcp_exec_operator.cleanup import ReleaseCleanup, build_parser
from mcp_exec_operator.cleanup import clean_up as clean_up_by_command

Operating = Callable[..., Any]
OPERATOR, LABEL = "mcp-exec-operator", "mcp-exec-system.mcp-exec"
REMOVAL = f"{OPERATOR}-removal"


async def clean_up(world: World, *, namespaces: tuple[str, ...] = (NAMESPACE,), **seconds: float) -> bool:
    async with aiohttp.ClientSession(base_url=world.url) as session:
        kube = KubeClient(session=session, credentials=KubeCredentials(server=""), retry_delays=(0.001,))
        cleanup = ReleaseCleanup(
            kube=kube, release_namespace=SYSTEM, operator=OPERATOR, label=LABEL, namespaces=list(namespaces), **seconds
        )
        return await cleanup.run()


@pytest.fixture
async def release(world: World) -> World:
    """The world with what the chart brings, and with a pool."""
    world.put(DEPLOYMENTS, {"metadata": {"name": OPERATOR}, "spec": {"replicas": 2}})
    world.put(LEASES, {"metadata": {"name": OPERATOR}, "spec": {"holderIdentity": "operator-1"}})
    world.put(BINDINGS, {"metadata": {"name": REMOVAL}})
    world.pool()
    return world


def replicas(world: World) -> int:
    return int(world.collections[DEPLOYMENTS][OPERATOR]["spec"]["replicas"])


def unobserved(world: World, pool: str = "default") -> bool:
    """Whether the status of a pool is that of one that no operator has seen."""
    return bool(world.collections[SBP][pool]["status"] == UNOBSERVED_STATUS)


async def test_the_operator_ends_the_runs_then_stops_and_no_sandbox_is_left(
    release: World, operating: Operating
) -> None:
    async with operating():
        release.execution("done")
        await release.finished("done")
        release.execution("long", "wait")
        await release.until(lambda: len(release.ran) == 2)
        cleaning = asyncio.create_task(clean_up(release))
        await release.until(lambda: replicas(release) == 0)
        assert (release.status("done")["phase"], release.status("long")["phase"]) == ("Succeeded", "Cancelled")
        assert release.pods(), "the operator has refilled the pool"
    release.merge(LEASES, OPERATOR, {"spec": {"holderIdentity": None}})
    assert await cleaning
    assert release.pods() == {}
    assert set(release.collections[POLICIES]) == {"mcp-exec-base-default", "mcp-exec-pool-default"}


async def test_a_namespace_that_another_release_has_claimed_is_left_to_it(release: World, operating: Operating) -> None:
    async with operating():
        release.execution("long", "wait")
        await release.until(lambda: len(release.ran) == 1)
        claim(release, "tools/mcp-exec-operator")
        pods = set(release.pods())
        assert await clean_up(release, stop_seconds=0)
        assert pods <= set(release.pods())
        assert release.status("long")["phase"] == "Running"
        assert holder(release) == "tools/mcp-exec-operator"
        release.release.set()


async def test_no_claim_keeps_a_namespace_of_the_release_from_being_cleaned_up(
    release: World, operating: Operating
) -> None:
    label(release, LABEL)
    async with operating():
        release.execution("long", "wait")
        await release.until(lambda: len(release.ran) == 1)
    claim(release, "tools/mcp-exec-operator")
    assert await clean_up(release, cancel_seconds=0, stop_seconds=0)
    assert release.status("long")["phase"] == "Cancelled"
    assert release.pods() == {}


async def test_pools_stay_and_say_that_nobody_observes_them(release: World, operating: Operating) -> None:
    release.put(SBP, {"metadata": {"name": "own"}, "spec": {"image": "sandbox", "warm": {"min": 2}}})
    async with operating():
        await release.until(lambda: len(release.pods()) == 3)
        await release.until(lambda: not unobserved(release, "own"))
    assert await clean_up(release, stop_seconds=0)
    assert release.pods() == {}
    assert set(release.collections[SBP]) == {"default", "own"}
    assert unobserved(release)
    assert unobserved(release, "own")


async def test_the_binding_that_helm_keeps_is_deleted(release: World) -> None:
    assert await clean_up(release, stop_seconds=0)
    assert release.collections[BINDINGS] == {}


async def test_no_sandbox_is_deleted_before_the_operator_has_stopped(release: World, operating: Operating) -> None:
    async with operating():
        await release.warm(1)
        before = set(release.pods())
        cleaning = asyncio.create_task(clean_up(release))
        await release.until_asked(lambda: len([*release.asked("GET", f"leases/{OPERATOR}")]) > 1)
        assert set(release.pods()) == before
    release.merge(LEASES, OPERATOR, {"spec": {"holderIdentity": None}})
    assert await cleaning
    assert release.pods() == {}


async def test_without_an_operator_the_cleanup_writes_the_end(world: World, operating: Operating) -> None:
    world.pool()
    async with operating():
        world.execution("long", "wait")
        await world.until(lambda: len(world.ran) == 1)
    world.execution("waiting")
    assert await clean_up(world, cancel_seconds=0)
    for name in ("long", "waiting"):
        status = world.status(name)
        assert (status["phase"], status["reason"]) == ("Cancelled", "Cancelled")
        assert status["conditions"][-1]["message"] == "cancelled: the namespace is not served any more"
    assert world.status("long")["podName"]


async def test_executions_larger_together_than_an_answer_of_the_api_server_do_not_stop_the_cleanup(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcp_exec_common.kube.client.MAX_ANSWER_BYTES", 256 * 1024)
    world.pool()
    for number in range(19):
        world.execution(f"done-{number}", code="x" * 64 * 1024)
        world.put(f"{CEX}", world.collections[CEX][f"done-{number}"] | {"status": {"phase": "Succeeded"}})
    world.execution("waiting", code="x" * 64 * 1024)
    assert await clean_up(world, cancel_seconds=0)
    assert world.status("waiting")["phase"] == "Cancelled"


async def test_pods_that_do_not_go_are_left_to_kubernetes(world: World, operating: Operating) -> None:
    world.pool()
    async with operating():
        await world.warm(1)
    remove = world.remove
    world.remove = lambda collection, name: None if collection == PODS else remove(collection, name)  # type: ignore[method-assign]
    assert await clean_up(world, gone_seconds=0)
    assert unobserved(world)


@pytest.mark.parametrize("code", [403, 404])
@pytest.mark.parametrize("path", [CEX, BINDINGS, PODS])
async def test_a_namespace_that_was_deleted_holds_up_no_uninstallation(world: World, code: int, path: str) -> None:
    world.faults.append(Fault("GET", path, code))
    assert await clean_up(world)


async def test_an_operator_that_cannot_be_stopped_holds_up_no_uninstallation(release: World) -> None:
    release.faults.append(Fault("PATCH", "/scale", 403))
    assert await clean_up(release)


async def test_the_command_fails_if_a_namespace_does_which_stops_no_other(
    release: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    @asynccontextmanager
    async def connect() -> AsyncIterator[KubeClient]:
        async with aiohttp.ClientSession(base_url=release.url) as session:
            yield KubeClient(session=session, credentials=KubeCredentials(server=""), retry_delays=())

    monkeypatch.setattr(KubeClient, "connect", connect)
    labels = {LABEL_MANAGED_BY: MANAGED_BY, LABEL_NAME: SANDBOX_NAME}
    release.put(PODS, {"metadata": {"name": "idle", "labels": labels}})
    release.put(PODS, {"metadata": {"name": "other"}})
    release.merge(LEASES, OPERATOR, {"spec": {"holderIdentity": None}})
    release.faults.append(Fault("GET", "namespaces/broken/codeexecutions", 500))
    arguments = [f"--operator={OPERATOR}", f"--release-namespace={SYSTEM}", "broken", NAMESPACE]
    with pytest.raises(SystemExit) as end:
        await clean_up_by_command(build_parser().parse_args(arguments))
    assert end.value.code == 1
    assert (set(release.pods()), replicas(release)) == ({"other"}, 0)
