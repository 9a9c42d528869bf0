"""The gateway's process in front of a fake API server that ends each execution at once."""

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.component.gateway.conftest import CEX, KEY, SBP, SECRETS, key_entry, keys_secret, pool
from tests.component.gateway.test_process import MODULE
from tests.component.gateway.test_process import gateway as gateway_environment
from tests.support.api_server import FakeApiServer
from tests.support.processes import started

CACHE = Path(os.environ.get("MCP_EXEC_CACHE", Path.home() / ".cache" / "mcp-exec"))


class Gateway:
    """A running gateway."""

    def __init__(self, api: FakeApiServer, port: str) -> None:
        self.api, self.url = api, f"http://127.0.0.1:{port}/mcp"

    @property
    def executions(self) -> set[str]:
        return set(self.api.collections.get(CEX, {}))


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    async with FakeApiServer().running() as api:
        api.put(SBP, pool("default", 60))
        limits = {"requestsPerMinute": 100_000}
        api.put(SECRETS, keys_secret(**{"team-a": {**key_entry(KEY), "limits": limits}}))

        def finish(collection: str, item: dict[str, Any]) -> None:
            if collection == CEX:
                name = item["metadata"]["name"]  # as the result, because some clients show nothing but the text
                output = {"stdout": "", "stderr": "", "result": f'"{name}"', "truncated": False}
                calls = {"total": 1, "byTool": {"expenses.add_expense": 1}}
                status = {"phase": "Succeeded", "reason": "", "output": output, "toolCalls": calls}
                api.merge(CEX, name, {"status": status})

        api.on_create = finish
        env = gateway_environment(tmp_path, api)
        async with started(*MODULE, env=env) as running:
            await running.says("ready")
            yield Gateway(api, env["MCP_EXEC_PORT"])
