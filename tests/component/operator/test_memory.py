"""The operator as a process with the memory of its container, and 2,000 executions of maximal size."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from tests.component.operator.conftest import Operator, settings
from tests.support.discovery import Discovered
from tests.support.large import CEX, MEMORY_MIB, WITHIN, LargeObjects, finished, peak_mib, raised_bounds
from tests.support.ports import free_port
from tests.support.processes import SECONDS, environment, started
from tests.support.world import KEY_SECRET, SYSTEM

FINISHED = 1_900
QUEUED = 60
"""Waiting executions of plain text: more than the operator keeps."""
NESTED = 6
"""Waiting executions whose context takes 25 times its size in memory."""
PROGRAM = f"""{WITHIN}
import asyncio, sys
from mcp_exec_common.process.setup import configure_logging
from mcp_exec_operator.process import run_operator
from mcp_exec_operator.settings import Settings
configure_logging("INFO")
asyncio.run(run_operator(Settings.from_environment(), sandbox_port=int(sys.argv[1])))
"""


class LargeWorld(LargeObjects, Discovered):
    """A cluster with large executions."""

    async def served(self, *names: str) -> None:
        """Return when these executions have ended well."""
        async with self._changed:
            await self._changed.wait_for(lambda: all(self.status(name).get("finishedAt") for name in names))
        ended = {name: (self.status(name)["phase"], self.status(name).get("error")) for name in names}
        assert {phase for phase, _ in ended.values()} == {"Succeeded"}, ended

    def describe(self) -> str:
        return str([f"{seen.method} {seen.path} {seen.query}" for seen in self.seen[-5:]])


@pytest.fixture
async def crowded() -> AsyncIterator[LargeWorld]:
    async with LargeWorld().up() as world:
        for number in range(FINISHED):
            world.add_large(f"finished-{number:04}", status=finished())
        for number in range(QUEUED):
            world.add_large(f"queued-{number:04}")
        for number in range(NESTED):
            world.add_large(f"nested-{number:04}", context="@lists@")
        world.pool(warm={"min": 2}, maxPods=4)
        yield world


async def test_it_starts_and_serves_with_2000_executions_of_maximal_size(crowded: LargeWorld, tmp_path: Path) -> None:
    env = environment(
        tmp_path,
        crowded.url,
        MCP_EXEC_RELEASE_NAMESPACE=SYSTEM,
        MCP_EXEC_SANDBOX_KEY_SECRET=KEY_SECRET,
        MCP_EXEC_PORT=str(port := free_port()),
        **raised_bounds(),
    )
    async with started("-c", PROGRAM, str(crowded.port), env=env) as process, aiohttp.ClientSession() as session:
        await process.says("the operator is reconciling")
        async with asyncio.timeout(SECONDS):
            async with session.get(f"http://127.0.0.1:{port}/readyz") as response:
                assert response.status == 200
            crowded.execution("small", priority="High")
            await crowded.served("small", "queued-0000", "nested-0000")
        assert peak_mib(process) < MEMORY_MIB


async def test_expired_executions_are_deleted_although_the_first_resync_never_ends() -> None:
    async with LargeWorld().up() as world:
        for number in range(30):
            old = {**finished(), "finishedAt": "2026-01-01T00:00:00.000000Z"}
            world.add_large(f"expired-{number}", status=old)
        world.add_large("kept", status=finished())
        world.hanging.add("/pods")
        operator = Operator(world, settings())
        starting = asyncio.create_task(operator.start())
        await world.until(lambda: list(world.collections[CEX]) == ["kept"])
        assert not starting.done()
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        await operator.stop()
