"""Catalogs of servers that are down when the broker starts."""

import json
import logging
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.component.broker.conftest import SECRETS, SIGNER, TS, World, grant, running, secret
from tests.component.broker.servers import serving, toolbox
from tests.component.broker.test_process import MODULE, broker
from tests.support.api_server import FakeApiServer
from tests.support.processes import started
from tests.support.until import until

Object = dict[str, Any]
KEY = ("agents", "box")


def copies(folder: Path) -> list[Path]:
    return sorted((folder / "catalogs").iterdir())


async def listed_once(api: FakeApiServer, folder: Path, **spec: Any) -> str:
    """Run a broker until it has listed a server, stop both, and return the server's URL."""
    async with running(api, folder) as world, serving(toolbox()) as box:
        world.add("box", url=box.url, **spec)
        await world.listed("box")
        return box.url


@asynccontextmanager
async def restarted(api: FakeApiServer, folder: Path) -> AsyncIterator[tuple[World, Object]]:
    """Run a broker until it reports the server as down; yield it and the server's part of its catalog."""
    async with running(api, folder) as world:
        await until(lambda: world.status("box").get("available") is False)
        _, found = await world.ask("GET", "/v1/namespaces/agents/catalog")
        yield world, found["servers"][0]


async def test_a_broker_that_was_killed_shows_the_last_good_list_of_a_server_that_is_down(
    api: FakeApiServer, tmp_path: Path
) -> None:
    def status() -> Object:
        return dict(api.collections[TS]["box"].get("status") or {})

    env = broker(tmp_path, api)
    async with started(*MODULE, env=env) as first, serving(toolbox()) as box:
        await first.says("ready")
        api.put(TS, {"metadata": {"name": "box", "generation": 1}, "spec": {"url": box.url}})
        await until(lambda: status().get("available"))
        first.tell(signal.SIGKILL)
        await first.ended()
    before = status()
    env = broker(tmp_path, api)
    async with started(*MODULE, env=env) as second, aiohttp.ClientSession() as session:
        await second.says("ready")
        await until(lambda: status().get("available") is False)
        headers = {"Authorization": f"Bearer {SIGNER.sign_service_token('gateway')}"}
        control = f"http://127.0.0.1:{env['MCP_EXEC_CONTROL_PORT']}"
        async with session.get(f"{control}/v1/namespaces/agents/catalog", headers=headers) as response:
            (server,) = (await response.json())["servers"]
        assert (server["available"], len(server["tools"])) == (False, 7)
        assert status()["reason"] == "ConnectionRefused"
        for name in ("catalogHash", "tools", "protocolVersion", "server"):
            assert status()[name] == before[name]
        assert status()["lastSync"]
        body = {"id": "1", "tool": "box.add", "arguments": {"a": 1, "b": 1}}
        headers = {"Authorization": f"Bearer {grant()}"}
        calls = f"http://127.0.0.1:{env['MCP_EXEC_PORT']}/v1/calls"
        async with session.post(calls, json=body, headers=headers) as response:
            assert json.loads(await response.read())["reason"] == "ServerUnavailable"


async def test_other_policies_leave_the_copy_and_show_what_may_be_seen_by_now(
    api: FakeApiServer, tmp_path: Path
) -> None:
    url = await listed_once(api, tmp_path)
    rules = [{"tools": ["add", "destroy"], "action": "Allow"}]
    async with running(api, tmp_path) as world:
        world.add("box", url=url, deny=["destroy"], policy={"default": "Deny", "rules": rules})
    async with restarted(api, tmp_path) as (_, server):
        assert {tool["name"] for tool in server["tools"]} == {"add"}


async def test_inferred_outputs_survive_a_restart(api: FakeApiServer, tmp_path: Path) -> None:
    async with running(api, tmp_path) as world, serving(toolbox()) as box:
        world.add("box", url=box.url)
        await world.listed("box")
        await world.call("box.echo", value={"rows": [1]})
        await until(lambda: "inferredOutputs" in world.status("box"))
        hash = world.status("box")["catalogHash"]
    async with restarted(api, tmp_path) as (world, _):
        assert world.status("box")["catalogHash"] == hash


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.write_bytes(b"\xff no JSON"),
        lambda path: path.write_bytes(path.read_bytes()[:-10]),
        lambda path: path.write_bytes(b"[" * 100_000),
        lambda path: path.write_text('{"version": 2, "tools": []}'),
        lambda path: path.write_text(path.read_text().replace('"name": "add"', '"name": 7')),
        lambda path: (path.unlink(), path.mkdir()),
    ],
)
async def test_an_invalid_copy_is_logged_and_stops_nothing(
    api: FakeApiServer, tmp_path: Path, caplog: pytest.LogCaptureFixture, spoil: Callable[[Path], object]
) -> None:
    await listed_once(api, tmp_path)
    spoil(copies(tmp_path)[0])
    async with restarted(api, tmp_path) as (_, server):
        assert (server["available"], server["tools"]) == (False, [])
    (warning,) = [record for record in caplog.records if "the cached catalog of a server is invalid" in record.message]
    assert warning.levelno == logging.WARNING


async def test_a_folder_that_can_t_be_written_stops_nothing(api: FakeApiServer, tmp_path: Path) -> None:
    (tmp_path / "catalogs").write_text("no folder")
    await listed_once(api, tmp_path)


async def test_the_copy_of_another_server_is_not_used(api: FakeApiServer, tmp_path: Path) -> None:
    await listed_once(api, tmp_path)
    async with running(api, tmp_path) as world:
        world.add("box", url="http://127.0.0.1:9/mcp")
        await until(lambda: world.status("box").get("observedGeneration") == 2)
        assert copies(tmp_path) == []
    async with restarted(api, tmp_path) as (_, server):
        assert server["tools"] == []


async def test_a_toolserver_that_went_while_the_broker_was_down_leaves_no_copy(
    api: FakeApiServer, tmp_path: Path
) -> None:
    url = await listed_once(api, tmp_path)
    (tmp_path / "catalogs" / "half.new").write_text("what a write left that did not end")
    api.remove(TS, "box")
    async with running(api, tmp_path) as world:
        await until(lambda: copies(tmp_path) == [])
        world.add("box", url=url)  # another one of the same name
        await until(lambda: world.status("box").get("available") is False)
        assert world.broker.catalogs.get_entry(KEY).listing is None


async def test_a_toolserver_that_is_deleted_leaves_no_copy(api: FakeApiServer, tmp_path: Path) -> None:
    async with running(api, tmp_path) as world, serving(toolbox()) as box:
        world.add("box", url=box.url)
        await world.listed("box")
        assert len(copies(tmp_path)) == 1
        world.api.remove(TS, "box")
        await until(lambda: copies(tmp_path) == [])


async def test_what_only_a_user_may_list_is_on_no_disk(api: FakeApiServer, tmp_path: Path) -> None:
    box = toolbox()
    box.needed = {"x-user-token": "token-of-alice"}
    async with running(api, tmp_path) as world, serving(box):
        world.api.put(SECRETS, secret("users", alice="token-of-alice"))
        world.add("box", url=box.url, userHeaders=[{"name": "X-User-Token", "secretName": "users"}])
        await world.listed("box")
        assert (await world.call("box.add", token=grant(user="alice"), a=1, b=1))["value"] == 2
        assert copies(tmp_path) == []


async def test_a_copy_has_no_credential_in_it(api: FakeApiServer, tmp_path: Path) -> None:
    box = toolbox()

    @box.server.tool(description="Give it token-of-all")
    async def telling() -> str:
        return ""

    async with running(api, tmp_path) as world, serving(box):
        world.api.put(SECRETS, secret("shared", token="token-of-all"))
        header = {"name": "X-Token", "secretKeyRef": {"name": "shared", "key": "token"}}
        world.add("box", url=box.url, headers=[header])
        await world.listed("box")
        text = copies(tmp_path)[0].read_text()
        assert "Give it" in text
        assert "token-of-all" not in text
