"""Operators as processes of their own: one leads, and when it goes, however it goes, another goes on from there."""

import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.component.operator.test_leadership import NAME, holder, lease
from tests.component.operator.test_watching import Discovered
from tests.support.processes import Process, environment, started
from tests.support.world import KEY_SECRET, LEASES, NAMESPACE, SBP, SYSTEM

MAIN = """
import sys
from functools import partial
import mcp_exec_operator.__main__ as operator
operator.run_operator = partial(operator.run_operator, sandbox_port=int(sys.argv[1]))
operator.main()
"""
LEASE_SECONDS = 4


Start = Callable[..., Any]


@pytest.fixture
async def cluster() -> AsyncIterator[Discovered]:
    async with Discovered().up() as world:
        yield world  # type: ignore[misc]


@pytest.fixture
async def start(cluster: Discovered, tmp_path: Path) -> AsyncIterator[Start]:
    """Starts an operator in a pod of that name."""
    given = {
        "MCP_EXEC_NAMESPACES": NAMESPACE,
        "MCP_EXEC_RELEASE_NAMESPACE": SYSTEM,
        "MCP_EXEC_SANDBOX_KEY_SECRET": KEY_SECRET,
        "MCP_EXEC_PORT": "0",
        "MCP_EXEC_RESYNC_SECONDS": "60",
        "MCP_EXEC_POD_UID": "1",
        "MCP_EXEC_LEASE_DURATION_SECONDS": str(LEASE_SECONDS),
        "MCP_EXEC_LEASE_RENEW_SECONDS": "2",
        "MCP_EXEC_LEASE_RETRY_SECONDS": "0.2",
    }
    async with AsyncExitStack() as stack:

        async def run(pod: str, **changes: str) -> Process:
            env = environment(tmp_path, cluster.url, MCP_EXEC_POD_NAME=pod, **(given | changes))
            return await stack.enter_async_context(started("-c", MAIN, str(cluster.port), env=env))

        yield run


@asynccontextmanager
async def leader_and_standby(
    cluster: Discovered, start: Start, **changes: str
) -> AsyncIterator[tuple[Process, Process]]:
    """Two operators. The first leads and has one execution running."""
    cluster.pool()
    leader = await start("pod-a", **changes)
    await cluster.warm(1)
    await leader.says("the operator is reconciling")
    standby = await start("pod-b", **changes)
    await standby.says("standing by")
    cluster.execution("running", "wait")
    await cluster.until(lambda: len(cluster.ran) == 1)
    yield leader, standby


def settled(cluster: Discovered) -> bool:
    """Whether one pod is labelled busy, one is warm, and the pool's status says both."""
    states = sorted(pod["metadata"]["labels"]["mcp-exec.dev/state"] for pod in cluster.pods().values())
    status = cluster.collections[SBP]["default"].get("status") or {}
    return (states, status.get("warm"), status.get("busy")) == (["busy", "warm"], 1, 1)


async def test_a_killed_leader_is_replaced_and_what_ran_is_collected(cluster: Discovered, start: Start) -> None:
    async with leader_and_standby(cluster, start) as (leader, _):
        leader.tell(signal.SIGKILL)
        cluster.release.set()
        cluster.execution("waiting")
        for name in ("running", "waiting"):
            assert (await cluster.finished(name))["phase"] == "Succeeded"
    assert (holder(cluster), lease(cluster)["leaseTransitions"]) == ("pod-b_1", 1)
    assert cluster.status("running")["output"]["stdout"] == "waiting\n"
    assert len(cluster.ran) == len(set(cluster.ran)) == 2


async def test_a_leader_that_is_told_to_stop_hands_over_at_once(cluster: Discovered, start: Start) -> None:
    hour = {"MCP_EXEC_LEASE_DURATION_SECONDS": "3600", "MCP_EXEC_LEASE_RENEW_SECONDS": "1800"}
    async with leader_and_standby(cluster, start, **hour, MCP_EXEC_LEASE_RETRY_SECONDS="900") as (leader, _):
        leader.tell(signal.SIGTERM)
        cluster.release.set()
        assert (await cluster.finished("running"))["phase"] == "Succeeded"
        assert await leader.ended() == 0
        # far sooner than by the next try
        await cluster.until(lambda: holder(cluster) == "pod-b_1")
    assert len(cluster.ran) == 1


async def test_one_that_stands_by_stops_when_it_is_told_to(cluster: Discovered, start: Start) -> None:
    async with leader_and_standby(cluster, start) as (_, standby):
        standby.tell(signal.SIGTERM)
        assert await standby.ended() == 0
        assert holder(cluster) == "pod-a_1"


async def test_a_leader_that_lost_its_lease_ends_with_an_error_and_writes_nothing_more(
    cluster: Discovered, start: Start
) -> None:
    cluster.pool()
    leader = await start("pod-a")
    await cluster.warm(1)
    await leader.says("the operator is reconciling")
    cluster.execution("running", "wait")
    await cluster.until(lambda: len(cluster.ran) == 1)
    await cluster.until(lambda: settled(cluster))  # no write is under way
    cluster.merge(LEASES, NAME, {"spec": {"holderIdentity": "pod-b_1"}})
    await leader.says("the lease is lost, and all tasks are cancelled: pod-b_1 holds the lease")
    before = len(cluster.seen)
    cluster.release.set()
    assert await leader.ended() == 1
    assert [(seen.method, seen.path) for seen in cluster.seen[before:] if seen.method != "GET"] == []
    assert cluster.status("running")["phase"] == "Running"


async def test_an_api_server_that_stays_away_ends_the_leader_and_another_goes_on_when_it_is_back(
    cluster: Discovered, start: Start
) -> None:
    async with leader_and_standby(cluster, start) as (leader, _):
        cluster.go_away()
        cluster.release.set()
        assert await leader.ended() == 1
        cluster.away = False
        assert (await cluster.finished("running"))["phase"] == "Succeeded"
        cluster.execution("later")
        assert (await cluster.finished("later"))["phase"] == "Succeeded"
    assert cluster.status("running")["output"]["stdout"] == "waiting\n"
    assert len(cluster.ran) == 2


async def test_a_leader_started_again_in_its_pod_goes_on_without_waiting_for_its_lease(
    cluster: Discovered, start: Start
) -> None:
    hour = {"MCP_EXEC_LEASE_DURATION_SECONDS": "3600", "MCP_EXEC_LEASE_RENEW_SECONDS": "1800"}
    cluster.pool()
    leader = await start("pod-a", **hour)
    await cluster.warm(1)
    cluster.execution("running", "wait")
    await cluster.until(lambda: len(cluster.ran) == 1)
    leader.tell(signal.SIGKILL)
    await leader.ended()
    cluster.release.set()
    await start("pod-a", **hour)
    assert (await cluster.finished("running"))["phase"] == "Succeeded"
    assert (len(cluster.ran), lease(cluster)["leaseTransitions"]) == (1, 0)
