"""The broker as a process: its settings, and how it stops."""

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
import yaml
from tests.component.broker.conftest import TS, grant, until
from tests.component.broker.servers import serving, toolbox
from tests.component.conftest import SANDBOX_KEY
from tests.component.fakes.api_server import FakeApiServer

SECONDS = 40
SECRET = "an argument that no log may have"


def environment(tmp_path: Path, api: FakeApiServer, **changes: str) -> dict[str, str]:
    ports = []
    for _ in range(2):
        with socket.create_server(("127.0.0.1", 0)) as free:
            ports.append(free.getsockname()[1])
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": api.url}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
    (tmp_path / "key").write_bytes(SANDBOX_KEY)
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        "MCP_EXEC_NAMESPACES": "agents",
        "MCP_EXEC_SANDBOX_KEY_FILE": str(tmp_path / "key"),
        "MCP_EXEC_KUBECONFIG": str(tmp_path / "kubeconfig"),
        "MCP_EXEC_AUDIT_FILE": str(tmp_path / "audit.sqlite"),
        "MCP_EXEC_LOG_LEVEL": "debug",
        "MCP_EXEC_PORT": str(ports[0]),
        "MCP_EXEC_CONTROL_PORT": str(ports[1]),
        "MCP_EXEC_DRAIN_SECONDS": "0",
        **changes,
    }


@asynccontextmanager
async def process(env: dict[str, str]) -> AsyncIterator[asyncio.subprocess.Process]:
    running = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "mcp_exec_broker"), env=env, stderr=asyncio.subprocess.PIPE
    )
    try:
        yield running
    finally:
        if running.returncode is None:
            running.kill()
        await running.communicate()


async def ready(running: asyncio.subprocess.Process) -> bytes:
    """Until it says that it is ready; what it has said."""
    assert running.stderr is not None
    log = b""
    async with asyncio.timeout(SECONDS):
        while b'"message": "ready"' not in log:
            line = await running.stderr.readline()
            assert line, log
            log += line
    return log


async def test_a_call_under_way_ends_well_when_the_process_is_told_to_stop(api: FakeApiServer, tmp_path: Path) -> None:
    env = environment(tmp_path, api)
    async with process(env) as running, serving(toolbox()) as box, aiohttp.ClientSession() as session:
        assert running.stderr is not None
        log = await ready(running)
        async with asyncio.timeout(SECONDS):
            api.put(TS, {"metadata": {"name": "box", "generation": 1}, "spec": {"url": box.url}})
            await until(lambda: (api.collections[TS]["box"].get("status") or {}).get("available"))

            async def call(tool: str, **arguments: object) -> dict[str, object]:
                body = {"id": "1", "tool": tool, "arguments": arguments}
                headers = {"Authorization": f"Bearer {grant()}"}
                async with session.post(
                    f"http://127.0.0.1:{env['MCP_EXEC_PORT']}/v1/calls", json=body, headers=headers
                ) as response:
                    found: dict[str, object] = json.loads(await response.read())
                    return found

            assert SECRET in str((await call("box.echo", value=SECRET))["value"])
            hanging = asyncio.create_task(call("box.hang"))
            await box.entered.wait()
            running.send_signal(signal.SIGTERM)
            while b'"message": "stopping"' not in log:
                log += await running.stderr.readline()
            box.release.set()
            assert (await hanging)["value"] == "released"
            assert await running.wait() == 0
            log += await running.stderr.read()
        lines = [json.loads(line) for line in log.splitlines()]
        assert all(SECRET not in json.dumps(line) for line in lines if line["logger"] != "mcp_exec.audit")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"MCP_EXEC_NAMESPACES": ""}, "NAMESPACES"),
        ({"MCP_EXEC_PORT": "many"}, "PORT"),
        ({"MCP_EXEC_NONSENSE": "1"}, "MCP_EXEC_NONSENSE"),
    ],
)
async def test_settings_that_are_wrong_are_refused(
    api: FakeApiServer, tmp_path: Path, changes: dict[str, str], said: str
) -> None:
    async with process(environment(tmp_path, api, **changes)) as running:
        assert running.stderr is not None
        async with asyncio.timeout(SECONDS):
            error = await running.stderr.read()
            assert await running.wait() == 2
        assert said.encode() in error
        assert b"Traceback" not in error
