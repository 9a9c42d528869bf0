"""Namespaces that come and go while an operator runs: its process stays, and serves the others all the time."""

import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.component.operator.test_failover import Start, start
from tests.component.operator.test_leadership import holder
from tests.component.operator.test_watching import Discovered
from tests.support.mounts import mount_namespaces
from tests.support.world import NAMESPACE

__all__ = ["start"]
GROUP = "/apis/mcp-exec.dev/v1alpha1/namespaces/others"


@pytest.fixture
async def cluster() -> AsyncIterator[Discovered]:
    async with Discovered().up() as world:
        yield world  # type: ignore[misc]


def status(cluster: Discovered, collection: str, name: str) -> Any:
    return cluster.collections[f"{GROUP}/{collection}"][name].get("status") or {}


async def test_an_operator_serves_a_new_namespace_without_an_end_of_its_process(
    cluster: Discovered, start: Start, tmp_path: Path
) -> None:
    folder = mount_namespaces(tmp_path / "namespaces", NAMESPACE)
    cluster.pool()
    cluster.put(
        f"{GROUP}/sandboxpools", {"metadata": {"name": "default", "generation": 1}, "spec": {"image": "sandbox"}}
    )
    operator = await start("pod-a", MCP_EXEC_NAMESPACES="", MCP_EXEC_NAMESPACES_FOLDER=str(folder))
    await cluster.warm(1)
    cluster.execution("running", "wait")
    await cluster.until(lambda: len(cluster.ran) == 1)
    mount_namespaces(folder, NAMESPACE, "others")
    await operator.says("the served namespaces change")
    await cluster.until(lambda: status(cluster, "sandboxpools", "default"))
    assert holder(cluster) == "pod-a_1"
    cluster.release.set()
    assert (await cluster.finished("running"))["phase"] == "Succeeded"
    assert len(cluster.ran) == 1
    mount_namespaces(folder, NAMESPACE)
    await cluster.until(lambda: cluster.condition("Ready"))
    cluster.execution("after")
    assert (await cluster.finished("after"))["phase"] == "Succeeded"
    operator.tell(signal.SIGTERM)
    assert await operator.ended() == 0
