"""The cleanup before an uninstallation: executions end as Cancelled, pools are deleted, pods are waited for."""

import asyncio
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import aiohttp
import pytest
from tests.support.api_server import Fault
from tests.support.world import CEX, NAMESPACE, PODS, SBP, World

from mcp_exec_common.kube.client import KubeClient
from mcp_exec_common.kube.credentials import KubeCredentials
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_operator.cleanup import NamespaceCleanup
from mcp_exec_operator.cleanup import clean_up as clean_up_all

Operating = Callable[..., Any]


async def clean_up(world: World, **seconds: float) -> bool:
    async with aiohttp.ClientSession(base_url=world.url) as session:
        kube = KubeClient(session=session, credentials=KubeCredentials(server=""), retry_delays=(0.001,))
        return await NamespaceCleanup(kube=kube, namespace=NAMESPACE, **seconds).run()


def collect_garbage(world: World) -> None:
    """Delete the pods of a deleted pool, as Kubernetes does."""
    remove = world.remove

    def delete(collection: str, name: str) -> None:
        remove(collection, name)
        if collection == SBP:
            for pod in list(world.pods()):
                remove(PODS, pod)

    world.remove = delete  # type: ignore[method-assign]


async def test_the_operator_ends_the_runs_and_nothing_is_left(world: World, operating: Operating) -> None:
    collect_garbage(world)
    world.pool()
    async with operating():
        world.execution("done")
        await world.finished("done")
        world.execution("long", "wait")
        await world.until(lambda: len(world.ran) == 2)
        assert await clean_up(world)
    assert (world.status("done")["phase"], world.status("long")["phase"]) == ("Succeeded", "Cancelled")
    assert (world.pods(), world.collections[SBP]) == ({}, {})


async def test_without_an_operator_the_cleanup_writes_the_end(world: World, operating: Operating) -> None:
    collect_garbage(world)
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
    assert not await clean_up(world, gone_seconds=0)
    assert world.collections[SBP] == {}


@pytest.mark.parametrize("code", [403, 404])
async def test_a_namespace_that_was_deleted_holds_up_no_uninstallation(world: World, code: int) -> None:
    world.faults.append(Fault("GET", CEX, code))
    assert await clean_up(world)


async def test_namespaces_are_cleaned_up_side_by_side_and_one_that_fails_stops_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    both, cleaned = asyncio.Barrier(2), []

    async def run(cleanup: NamespaceCleanup) -> bool:
        await both.wait()
        if cleanup.namespace == "broken":
            raise ApiError(code=500, reason="InternalError", message="broken")
        cleaned.append(cleanup.namespace)
        return True

    monkeypatch.setattr(NamespaceCleanup, "run", run)
    monkeypatch.setattr(KubeClient, "connect", nullcontext)
    async with asyncio.timeout(10):
        with pytest.raises(SystemExit):
            await clean_up_all(["broken", "agents"])
    assert cleaned == ["agents"]
