"""The gateway as a process: its settings and its shutdown."""

import asyncio
import base64
import os
import signal
import ssl
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.component.gateway.conftest import CEX, KEY, SECRETS
from tests.support.api_server import FakeApiServer
from tests.support.certificates import certificates_for
from tests.support.mounts import write_version
from tests.support.ports import free_port
from tests.support.processes import FEW_FILES, SECONDS, environment, most_files, started
from tests.support.until import until

from mcp_exec_gateway.__main__ import main

AUTHORIZED = {"Authorization": f"Bearer {KEY}"}


MODULE = ("-m", "mcp_exec_gateway")


def gateway(folder: Path, api: FakeApiServer, **changes: str) -> dict[str, str]:
    given = {
        "MCP_EXEC_NAMESPACES": "agents, others",
        "MCP_EXEC_RELEASE_NAMESPACE": "mcp-exec-system",
        "MCP_EXEC_API_KEYS_SECRET": "api-keys",
        "MCP_EXEC_PORT": str(free_port()),
        "MCP_EXEC_METRICS_PORT": str(free_port()),
        "MCP_EXEC_DRAIN_SECONDS": "0",
        "MCP_EXEC_SHUTDOWN_SECONDS": "30",
    }
    return environment(folder, api.url, **(given | changes))


async def test_it_may_have_more_connections_than_it_is_started_with(api: FakeApiServer, tmp_path: Path) -> None:
    async with started("-c", FEW_FILES, MODULE[1], env=gateway(tmp_path, api)) as running, asyncio.timeout(SECONDS):
        await running.says("ready")
        assert most_files(running) == 4096


async def test_both_ports_serve_tls_if_a_secret_is_mounted_and_follow_its_changes(
    api: FakeApiServer, tmp_path: Path
) -> None:
    (folder := tmp_path / "tls").mkdir()

    def mount() -> aiohttp.TCPConnector:
        authority, both = certificates_for("gateway.example")
        certificate, begin, key = both.partition("-----BEGIN PRIVATE KEY-----")
        write_version(folder, {"tls.crt": certificate.encode(), "tls.key": (begin + key).encode()})
        return aiohttp.TCPConnector(ssl=ssl.create_default_context(cadata=authority))

    connector = mount()
    env = gateway(tmp_path, api, MCP_EXEC_TLS_FOLDER=str(folder))

    async def read(connector: aiohttp.TCPConnector, port: str, path: str) -> int:
        async with (
            aiohttp.ClientSession(connector=connector, headers=AUTHORIZED) as session,
            session.get(f"https://127.0.0.1:{env[port]}{path}", server_hostname="gateway.example") as response,
        ):
            return response.status

    async with started(*MODULE, env=env) as running, asyncio.timeout(SECONDS):
        await running.says("ready")
        assert await read(connector, "MCP_EXEC_PORT", "/v1/executions") == 200
        changed = mount()
        await running.says("new connections use the changed certificate")
        assert await read(changed, "MCP_EXEC_METRICS_PORT", "/metrics") == 200


async def test_waiting_requests_get_their_answer_when_it_is_told_to_stop(api: FakeApiServer, tmp_path: Path) -> None:
    env = gateway(tmp_path, api)
    url = f"http://127.0.0.1:{env['MCP_EXEC_PORT']}"
    async with (
        started(*MODULE, env=env) as running,
        aiohttp.ClientSession(headers=AUTHORIZED) as session,
    ):
        await running.says("ready")
        async with asyncio.timeout(SECONDS):

            async def post() -> tuple[int, Any]:
                async with session.post(url + "/v1/executions", json={"code": "1"}) as response:
                    return response.status, await response.json()

            waiting = [asyncio.create_task(post()) for _ in range(3)]
            await until(lambda: len(api.collections.get(CEX, {})) == 3)
            running.tell(signal.SIGTERM)
            await running.says("no longer ready")
            for name in list(api.collections[CEX]):
                api.merge(CEX, name, {"status": {"phase": "Succeeded"}})
            answers = [await asking for asking in waiting]
            assert {(status, body["phase"]) for status, body in answers} == {(200, "Succeeded")}
            assert await running.ended() == 0


async def test_waits_that_do_not_end_are_answered_within_the_bound(api: FakeApiServer, tmp_path: Path) -> None:
    env = gateway(tmp_path, api, MCP_EXEC_SHUTDOWN_SECONDS="0.2")
    url = f"http://127.0.0.1:{env['MCP_EXEC_PORT']}"
    async with (
        started(*MODULE, env=env) as running,
        aiohttp.ClientSession(headers=AUTHORIZED) as session,
    ):
        await running.says("ready")
        async with asyncio.timeout(SECONDS):
            asking = asyncio.create_task(session.post(url + "/v1/executions", json={"code": "1"}))
            await until(lambda: len(api.collections.get(CEX, {})) == 1)
            name = next(iter(api.collections[CEX]))
            events = await session.get(f"{url}/v1/executions/{name}/events")
            running.tell(signal.SIGTERM)
            async with await asking as response:
                assert response.status == 202
                assert response.headers["Location"] == f"/v1/executions/{name}"
            assert "event: end" not in await events.text()
            assert await running.ended() == 0
    assert not api.collections[CEX][name]["spec"]["cancelRequested"]


async def test_a_reflector_that_breaks_for_good_ends_the_process(api: FakeApiServer, tmp_path: Path) -> None:
    secret = {"metadata": {"name": "api-keys"}, "data": {"a": base64.b64encode(b"{}").decode()}}
    api.put(SECRETS, secret)
    env = gateway(tmp_path, api)
    async with started(*MODULE, env=env) as running:
        await running.says("ready")
        api.put(SECRETS, {**secret, "data": ["not", "a", "secret"]})
        async with asyncio.timeout(SECONDS):
            assert await running.ended() != 0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"MCP_EXEC_PORT": "http"}, "MCP_EXEC_PORT: "),
        ({"MCP_EXEC_NAMESPACES": ""}, "MCP_EXEC_NAMESPACES: "),
        ({"MCP_EXEC_TLS_FOLDER": "/nowhere"}, "MCP_EXEC_TLS_FOLDER: "),
    ],
)
async def test_a_setting_that_is_wrong_is_named(
    api: FakeApiServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    change: dict[str, str],
    said: str,
) -> None:
    monkeypatch.setattr(os, "environ", gateway(tmp_path, api, **change))
    assert main() == 2
    assert said in capsys.readouterr().err.splitlines()[0]


async def test_settings_that_are_wrong_end_the_process_with_their_names_alone(
    api: FakeApiServer, tmp_path: Path
) -> None:
    async with started(*MODULE, env=gateway(tmp_path, api, MCP_EXEC_NAMESPACE="agents")) as running:
        assert await running.ended() == 2
        assert "unknown settings: MCP_EXEC_NAMESPACE" in running.lines[0]
        assert not any("Traceback" in line for line in running.lines)


async def test_metrics_have_a_port_of_their_own_until_it_stops(api: FakeApiServer, tmp_path: Path) -> None:
    env = gateway(tmp_path, api)
    async with started(*MODULE, env=env) as running, aiohttp.ClientSession() as session:
        await running.says("ready")
        async with asyncio.timeout(SECONDS):
            found = []
            for name in ("MCP_EXEC_METRICS_PORT", "MCP_EXEC_PORT"):
                async with session.get(f"http://127.0.0.1:{env[name]}/metrics") as response:
                    found.append(response.status)
            assert found == [200, 404]
            running.tell(signal.SIGTERM)
            assert await running.ended() == 0
