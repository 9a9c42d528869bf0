"""The broker as a process: its settings, and how it stops."""

import asyncio
import json
import os
import signal
from pathlib import Path

import aiohttp
import pytest
from tests.component.broker.conftest import LOOPBACK, TS, grant
from tests.component.broker.servers import serving, toolbox
from tests.support.api_server import FakeApiServer
from tests.support.ports import free_port
from tests.support.processes import FEW_FILES, SECONDS, environment, most_files, started
from tests.support.until import until

from mcp_exec_broker.__main__ import main

SECRET = "an argument that no log may have"


MODULE = ("-m", "mcp_exec_broker")


def broker(folder: Path, api: FakeApiServer, **changes: str) -> dict[str, str]:
    given = {
        "MCP_EXEC_ALLOWED_ADDRESSES": LOOPBACK,
        "MCP_EXEC_AUDIT_FILE": str(folder / "audit.sqlite"),
        "MCP_EXEC_LOG_LEVEL": "debug",
        "MCP_EXEC_PORT": str(free_port()),
        "MCP_EXEC_CONTROL_PORT": str(free_port()),
        "MCP_EXEC_DRAIN_SECONDS": "0",
        "MCP_EXEC_SHUTDOWN_SECONDS": "3",  # no operator closes the executions
    }
    return environment(folder, api.url, **(given | changes))


async def test_it_may_have_more_connections_than_it_is_started_with(api: FakeApiServer, tmp_path: Path) -> None:
    async with started("-c", FEW_FILES, MODULE[1], env=broker(tmp_path, api)) as running, asyncio.timeout(SECONDS):
        await running.says("ready")
        assert most_files(running) == 4096


async def test_a_call_under_way_ends_well_when_the_process_is_told_to_stop(api: FakeApiServer, tmp_path: Path) -> None:
    env = broker(tmp_path, api)
    async with (
        started(*MODULE, env=env) as running,
        serving(toolbox()) as box,
        aiohttp.ClientSession() as session,
    ):
        await running.says("ready")
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
            running.tell(signal.SIGTERM)
            await running.says("stopping")
            box.release.set()
            assert (await hanging)["value"] == "released"
            assert await running.ended() == 0
        assert all(SECRET not in json.dumps(line) for line in running.records if line["logger"] != "mcp_exec.audit")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"MCP_EXEC_NAMESPACES": ""}, "NAMESPACES"),
        ({"MCP_EXEC_PORT": "many"}, "PORT"),
    ],
)
async def test_a_setting_that_is_wrong_is_named(
    api: FakeApiServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    changes: dict[str, str],
    said: str,
) -> None:
    monkeypatch.setattr(os, "environ", broker(tmp_path, api, **changes))
    assert main() == 2
    assert said in capsys.readouterr().err.splitlines()[0]


async def test_settings_that_are_wrong_end_the_process_with_their_names_alone(
    api: FakeApiServer, tmp_path: Path
) -> None:
    async with started(*MODULE, env=broker(tmp_path, api, MCP_EXEC_NONSENSE="1")) as running:
        assert await running.ended() == 2
        assert "MCP_EXEC_NONSENSE" in running.lines[0]
        assert not any("Traceback" in line for line in running.lines)
