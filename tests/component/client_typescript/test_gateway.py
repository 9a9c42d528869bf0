"""The TypeScript client with a real gateway, in Node and in Deno."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.component.client_typescript.conftest import Runtime
from tests.component.gateway.conftest import CEX, KEY, Gateway, api, serving
from tests.component.gateway.test_python_page import run
from tests.support.api_server import FakeApiServer
from tests.support.broker import running_broker

__all__ = ["api"]

SMOKE = Path(__file__).with_name("smoke.ts")


@asynccontextmanager
async def answering(api: FakeApiServer) -> AsyncIterator[Gateway]:
    """Serve a gateway whose executions end as soon as they are created, but for one that waits."""
    async with running_broker(api), serving(api, broker_service="mcp-exec-broker") as made:

        def finish(collection: str, item: Any) -> None:
            if collection == CEX and item["spec"]["code"] != "wait":
                made.finish(item["metadata"]["name"], **run(item["spec"]["code"], item["spec"].get("context") or {}))

        api.on_create = finish
        yield made


@pytest.fixture
async def gateway(api: FakeApiServer) -> AsyncIterator[Gateway]:
    async with answering(api) as made:
        yield made


async def test_the_client_speaks_with_a_gateway_in_each_runtime(
    gateway: Gateway, consumer: Path, runtime: Runtime
) -> None:
    program = Path(shutil.copy(SMOKE, consumer))
    assert await runtime.run(program, MCP_EXEC_GATEWAY=gateway.url, MCP_EXEC_API_KEY=KEY) == ["done"]
