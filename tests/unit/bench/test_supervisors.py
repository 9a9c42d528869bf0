"""The supervisors of simulated pods, met by the client that operator and gateway use."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
import supervisors
import uvloop
from tests.support.pace import paced

from mcp_exec_api.code_execution import Phase
from mcp_exec_common.sandbox_keys import SandboxKeys
from mcp_exec_common.supervisor.client import SupervisorClient, SupervisorConnection
from mcp_exec_common.supervisor.protocol import Job, SandboxError, SandboxUsed
from mcp_exec_common.supervisor.tokens import supervisor_token, token_digest

KEY = b"key"
FIRST, SECOND = "127.1.0.1", "127.1.0.2"


class ScalingSimulation:
    def __init__(self, found: Any, sandboxes: SupervisorClient) -> None:
        self.supervisors, self.sandboxes = found, sandboxes

    def pod(self, name: str, address: str) -> SupervisorConnection:
        token = supervisor_token(key=KEY, namespace="agents", pod=name)
        self.supervisors.add(address, token_sha256=token_digest(token))
        return self.sandboxes.get_connection(namespace="agents", pod=name, address=address)


@asynccontextmanager
async def simulation(run_seconds: float = 0.0) -> AsyncIterator[ScalingSimulation]:
    found = supervisors.SimulatedSupervisors(run_seconds=run_seconds)
    server = await found.serve(port=0)
    port = server.sockets[0].getsockname()[1]
    try:
        async with asyncio.timeout(paced(20)), SupervisorClient.connect(keys=SandboxKeys(KEY), port=port) as sandboxes:
            yield ScalingSimulation(found, sandboxes)
    finally:
        server.close()


def job(execution: str = "uid-1") -> Job:
    return Job(id=execution, code="print(1)", context={}, timeout_seconds=30, output_bytes=1000)


async def run(sandbox: SupervisorConnection, execution: str = "uid-1") -> list[Any]:
    return [event async for event in sandbox.run(job(execution), timeout_seconds=10)]


async def test_a_run_prints_one_and_succeeds() -> None:
    async with simulation() as simulated:
        sandbox = simulated.pod("a", FIRST)
        assert (await sandbox.get_health()).state == "idle"
        events = await run(sandbox)
        assert [event.type for event in events] == ["status", "stdout", "end"]
        assert [event.seq for event in events] == [1, 2, 3]
        assert events[1].text == "1\n"
        assert events[2].phase is Phase.SUCCEEDED
        assert await sandbox.get_execution() == ("finished", "uid-1")


def test_it_runs_on_the_loop_that_the_simulator_uses() -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(prints_one())


async def prints_one() -> None:
    async with simulation() as simulated:
        assert [event.type for event in await run(simulated.pod("a", FIRST))] == ["status", "stdout", "end"]


async def test_a_sandbox_is_used_once_and_says_by_whom() -> None:
    async with simulation() as simulated:
        sandbox = simulated.pod("a", FIRST)
        await run(sandbox)
        with pytest.raises(SandboxUsed) as caught:
            await run(sandbox, "uid-2")
        assert caught.value.id == "uid-1"


async def test_a_sandbox_serves_its_owner_again_once_it_was_recycled_and_nobody_else() -> None:
    async with simulation() as simulated:
        sandbox = simulated.pod("a", FIRST)
        first, second = (replace(job(uid), owner="0" * 32) for uid in ("uid-1", "uid-2"))
        assert [event.type async for event in sandbox.run(first, timeout_seconds=10)][-1] == "end"
        with pytest.raises(SandboxUsed):
            await anext(sandbox.run(second, timeout_seconds=10))
        with pytest.raises(SandboxUsed):
            await sandbox.recycle("uid-2")
        assert await sandbox.recycle("uid-1") == 1
        assert (await sandbox.get_health()).state == "idle"
        for refused in (first, job("uid-2"), replace(second, owner="1" * 32)):
            with pytest.raises(SandboxUsed):
                await anext(sandbox.run(refused, timeout_seconds=10))
        assert [event.seq async for event in sandbox.run(second, timeout_seconds=10)] == [1, 2, 3]
        with pytest.raises(SandboxError, match="404"):
            await anext(sandbox.follow_events("uid-1", timeout_seconds=5))


async def test_a_session_runs_one_job_after_the_other() -> None:
    async with simulation() as simulated:
        sandbox = simulated.pod("a", FIRST)
        for number in (1, 2):
            kept = replace(job(f"uid-{number}"), owner="0" * 32, session=True)
            assert [event.type async for event in sandbox.run(kept, timeout_seconds=10)][-1] == "end"
            assert (await sandbox.get_health()).state == "idle"
        assert (await sandbox.get_session()).executions == 2


async def test_pods_are_told_apart_by_the_address_that_is_dialled() -> None:
    async with simulation() as simulated:
        first, second = simulated.pod("a", FIRST), simulated.pod("b", SECOND)
        await run(first)
        assert (await first.get_health()).state == "finished"
        assert (await second.get_health()).state == "idle"
