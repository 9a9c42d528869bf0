"""The gateway as a process: its settings, and how it stops."""

import asyncio
import base64
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from tests.component.fakes.api_server import FakeApiServer
from tests.component.gateway.conftest import CEX, KEY, SECRETS, until

SECONDS = 40
AUTHORIZED = {"Authorization": f"Bearer {KEY}"}


def environment(tmp_path: Path, api: FakeApiServer, **changes: str) -> dict[str, str]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": api.url}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
    (tmp_path / "key").write_text("the key\n")
    return {
        "PATH": os.environ["PATH"],
        "MCP_EXEC_NAMESPACES": "agents, others",
        "MCP_EXEC_SANDBOX_KEY_FILE": str(tmp_path / "key"),
        "MCP_EXEC_RELEASE_NAMESPACE": "mcp-exec-system",
        "MCP_EXEC_API_KEYS_SECRET": "api-keys",
        "MCP_EXEC_KUBECONFIG": str(tmp_path / "kubeconfig"),
        "MCP_EXEC_PORT": str(port),
        "MCP_EXEC_DRAIN_SECONDS": "0",
        "MCP_EXEC_SHUTDOWN_SECONDS": "30",
        **changes,
    }


@asynccontextmanager
async def process(env: dict[str, str]) -> AsyncIterator[asyncio.subprocess.Process]:
    running = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "mcp_exec_gateway"), env=env, stderr=asyncio.subprocess.PIPE
    )
    try:
        yield running
    finally:
        if running.returncode is None:
            running.kill()
        await running.communicate()


async def wait_for_line(running: asyncio.subprocess.Process, text: bytes) -> dict[str, Any]:
    assert running.stderr is not None
    async with asyncio.timeout(SECONDS):
        while True:
            line = await running.stderr.readline()
            assert line, f"it ended before it said {text!r}"
            if text in line:
                found: dict[str, Any] = json.loads(line)
                return found


async def test_waiting_requests_get_their_answer_when_it_is_told_to_stop(api: FakeApiServer, tmp_path: Path) -> None:
    env = environment(tmp_path, api)
    url = f"http://127.0.0.1:{env['MCP_EXEC_PORT']}"
    async with process(env) as running, aiohttp.ClientSession(headers=AUTHORIZED) as session:
        await wait_for_line(running, b'"ready"')
        async with asyncio.timeout(SECONDS):

            async def post() -> tuple[int, Any]:
                async with session.post(url + "/v1/executions", json={"code": "1"}) as response:
                    return response.status, await response.json()

            waiting = [asyncio.create_task(post()) for _ in range(3)]
            await until(lambda: len(api.collections.get(CEX, {})) == 3)
            running.send_signal(signal.SIGTERM)
            await wait_for_line(running, b"no longer ready")
            for name in list(api.collections[CEX]):
                api.merge(CEX, name, {"status": {"phase": "Succeeded"}})
            answers = [await asking for asking in waiting]
            assert {(status, body["phase"]) for status, body in answers} == {(200, "Succeeded")}
            assert await running.wait() == 0


async def test_waits_that_do_not_end_are_answered_within_the_bound(api: FakeApiServer, tmp_path: Path) -> None:
    env = environment(tmp_path, api, MCP_EXEC_SHUTDOWN_SECONDS="0.2")
    url = f"http://127.0.0.1:{env['MCP_EXEC_PORT']}"
    async with process(env) as running, aiohttp.ClientSession(headers=AUTHORIZED) as session:
        await wait_for_line(running, b'"ready"')
        async with asyncio.timeout(SECONDS):
            asking = asyncio.create_task(session.post(url + "/v1/executions", json={"code": "1"}))
            await until(lambda: len(api.collections.get(CEX, {})) == 1)
            name = next(iter(api.collections[CEX]))
            events = await session.get(f"{url}/v1/executions/{name}/events")
            running.send_signal(signal.SIGTERM)
            async with await asking as response:
                assert response.status == 202
                assert response.headers["Location"] == f"/v1/executions/{name}"
            assert "event: end" not in await events.text()
            assert await running.wait() == 0
    assert not api.collections[CEX][name]["spec"]["cancelRequested"]


async def test_a_reflector_that_breaks_for_good_ends_the_process(api: FakeApiServer, tmp_path: Path) -> None:
    secret = {"metadata": {"name": "api-keys"}, "data": {"a": base64.b64encode(b"{}").decode()}}
    api.put(SECRETS, secret)
    env = environment(tmp_path, api)
    async with process(env) as running:
        await wait_for_line(running, b'"ready"')
        api.put(SECRETS, {**secret, "data": ["not", "a", "secret"]})
        async with asyncio.timeout(SECONDS):
            assert await running.wait() != 0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"MCP_EXEC_NAMESPACE": "agents"}, "unknown settings: MCP_EXEC_NAMESPACE"),
        ({"MCP_EXEC_PORT": "http"}, "MCP_EXEC_PORT: "),
        ({"MCP_EXEC_NAMESPACES": ""}, "MCP_EXEC_NAMESPACES: "),
    ],
)
async def test_a_setting_that_is_wrong_is_named(
    api: FakeApiServer, tmp_path: Path, change: dict[str, str], said: str
) -> None:
    async with process(environment(tmp_path, api, **change)) as running, asyncio.timeout(SECONDS):
        assert running.stderr is not None
        assert said in (await running.stderr.read()).decode()
        assert await running.wait() == 2
