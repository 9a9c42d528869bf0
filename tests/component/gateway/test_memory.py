"""The gateway as a process with the memory of its container, and 2,000 executions of maximal size."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.component.gateway.conftest import CEX, KEY, SBP, SECRETS, key_entry, keys_secret, pool
from tests.component.gateway.test_process import gateway
from tests.support.large import MEMORY_MIB, WITHIN, LargeObjects, finished, large_output, peak_mib, raised_bounds
from tests.support.processes import SECONDS, started
from tests.support.until import until

STORED = 2_000
AT_ONCE = 40
"""Requests for executions of maximal size at the same time."""
PROGRAM = f"""{WITHIN}
import runpy
runpy.run_module("mcp_exec_gateway", run_name="__main__")
"""


@pytest.fixture
async def crowded() -> AsyncIterator[LargeObjects]:
    async with LargeObjects().running() as api:
        api.put(SBP, pool("default", 60))
        api.put(SECRETS, keys_secret(**{"team-a": key_entry(KEY)}))
        for number in range(STORED):
            api.add_large(f"finished-{number:04}", context="@lists@" if number % 2 else "@context@", status=finished())
        yield api


async def test_it_starts_and_serves_with_2000_executions_of_maximal_size(crowded: LargeObjects, tmp_path: Path) -> None:
    env = gateway(tmp_path, crowded) | raised_bounds()
    async with (
        started("-c", PROGRAM, env=env) as process,
        aiohttp.ClientSession(
            f"http://127.0.0.1:{env['MCP_EXEC_PORT']}", headers={"Authorization": f"Bearer {KEY}"}
        ) as session,
    ):

        async def get(path: str) -> Any:
            async with session.get(path) as response:
                assert response.status == 200, await response.text()
                return await response.json()

        async def run(number: int) -> int:
            async with session.post(
                "/v1/executions", json={"code": f"'{number}'", "context": {"a": [[]] * 1_000}}
            ) as sent:
                assert sent.status == 200, await sent.text()
                return len((await sent.json())["output"]["stdout"])

        await process.says("ready")
        assert crowded.sent_bytes < 10**6  # the pools and the keys
        async with asyncio.timeout(SECONDS):
            page = await get("/v1/executions?limit=500")
            assert len(page["items"]) == 500
            assert (await get(f"/v1/executions?limit=500&continue={page['continue']}"))["items"]
            names = [each["name"] for each in page["items"][:AT_ONCE]]
            views = await asyncio.gather(*(get(f"/v1/executions/{name}") for name in names))
            assert {len(view["output"]["result"]) for view in views} == {256 * 1024}
            waiting = [asyncio.create_task(run(number)) for number in range(AT_ONCE)]
            created = await until(lambda: crowded.list_new(AT_ONCE))
            for name in created:
                crowded.merge(CEX, name, {"status": finished() | {"output": large_output()}})
            assert await asyncio.gather(*waiting) == [256 * 1024] * AT_ONCE
        assert peak_mib(process) < MEMORY_MIB
