"""Catalogs of real servers: pages, changes, limits, and the tools of an absent server."""

import asyncio
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp.server.caching import CacheHint
from mcp.server.lowlevel import Server as LowServer
from tests.component.broker.conftest import TS, World
from tests.component.broker.servers import Toolbox, managed, paged_server, serving, serving_app, toolbox
from tests.support.constants import DEADLINE
from tests.support.until import until

from mcp_exec_broker.core.api import catalogs
from mcp_exec_tools.catalog import Catalog


async def test_the_status_says_what_is_there(world: World, box: Toolbox) -> None:
    status = world.status("box")
    assert (status["tools"], status["observedGeneration"]) == (7, 1)
    assert len(status["catalogHash"]) == 16
    assert {each["type"]: each["status"] for each in status["conditions"]} == {
        "Available": "True",
        "CredentialsFound": "True",
    }


async def test_a_status_that_says_the_same_is_not_written_again(world: World, box: Toolbox) -> None:
    def listings() -> float:
        return world.broker.metrics.registry.get_sample_value("mcp_exec_broker_listings_total", {"outcome": "ok"}) or 0

    await until(lambda: world.broker.tracker.servers.find("agents", "box").status.get("available"))  # type: ignore[union-attr]
    before = len(world.api.asked("PATCH", "/toolservers/box/status"))
    for _ in range(3):
        earlier = listings()
        world.broker.catalogs.refresh(("agents", "box"))
        await until(lambda: listings() > earlier)  # noqa: B023
    await world.broker.status_writer.write(("agents", "box"))
    assert len(world.api.asked("PATCH", "/toolservers/box/status")) == before


async def test_all_pages_are_listed_and_the_same_one_not_for_ever(world: World) -> None:
    low, _ = paged_server([["a", "b"], ["c"], ["d"]])
    endless, asked = paged_server([["x"]], endless=True)
    async with (
        serving_app(low.streamable_http_app()) as url,
        managed(low.session_manager),
        serving_app(endless.streamable_http_app()) as other,
        managed(endless.session_manager),
    ):
        world.add("paged", url=url + "/mcp")
        world.add("endless", url=other + "/mcp")
        await world.listed("paged")
        await world.listed("endless")
        assert world.status("paged")["tools"] == 4
        assert (world.status("endless")["tools"], asked()) == (1, 2)


@pytest.mark.parametrize("legacy", [False, True])
async def test_a_server_that_says_so_is_listed_again(world: World, legacy: bool) -> None:
    box = toolbox()
    box.server = changing(box)
    async with serving(box, legacy=legacy):
        world.add("box", url=box.url)
        await world.listed("box")
        before = world.status("box")["catalogHash"]
        if not legacy:
            await until(
                lambda: any(each["headers"].get("mcp-method") == "subscriptions/listen" for each in box.requests)
            )
        assert (await world.call("box.grow"))["type"] == "result"
        await until(lambda: world.status("box")["catalogHash"] != before)
        assert (await world.call("box.grown"))["value"] == "grown"


def changing(box: Toolbox) -> Any:
    from mcp.server import MCPServer
    from mcp.server.mcpserver import Context

    server = MCPServer("changing")

    async def grown() -> str:
        return "grown"

    @server.tool()
    async def grow(context: Context) -> str:
        server.add_tool(grown)
        if context.session.protocol_version == "2026-07-28":
            await context.notify_tools_changed()
        else:
            await context.session.send_tool_list_changed()
        return "done"

    return server


async def test_what_the_server_says_of_time_is_honoured(world: World) -> None:
    asked = 0

    async def list_tools(context: Any, params: Any) -> types.ListToolsResult:
        nonlocal asked
        asked += 1
        return types.ListToolsResult(tools=[], ttl_ms=3_600_000)

    low = LowServer("timed", on_list_tools=list_tools)
    async with serving_app(low.streamable_http_app()) as url, managed(low.session_manager):
        world.add("timed", url=url + "/mcp", refreshSeconds=5)
        await world.listed("timed")
        known = world.broker.catalogs.get_entry(("agents", "timed")).listing
        assert known is not None
        assert known.expires - asyncio.get_running_loop().time() > 3000


async def test_the_last_good_list_stays_when_a_server_goes(world: World) -> None:
    async with serving(toolbox()) as box:
        world.add("box", url=box.url)
        await world.listed("box")
        hash = world.status("box")["catalogHash"]
    world.broker.catalogs.refresh(("agents", "box"))
    await until(lambda: world.status("box")["available"] is False)
    assert (world.status("box")["catalogHash"], world.status("box")["reason"]) == (hash, "ConnectionRefused")
    status, found = await world.ask("GET", "/v1/namespaces/agents/catalog")
    server = found["servers"][0]
    assert (status, server["available"], len(server["tools"])) == (200, False, 7)
    assert (await world.call("box.add", a=1, b=1))["reason"] == "ServerUnavailable"


async def test_code_sees_what_the_toolserver_lets_it_see(world: World, box: Toolbox) -> None:
    world.add("box", url=box.url, allow=["e*", "add"], deny=["echo"])
    await until(lambda: world.status("box").get("tools") == 1)
    _, found = await world.ask("GET", "/v1/namespaces/agents/catalog")
    assert [tool["name"] for tool in found["servers"][0]["tools"]] == ["add"]
    answer = await world.call("box.echo", value=1)
    assert answer["type"] == "error"


async def test_tools_that_the_policy_denies_are_not_shown_and_still_refused_by_it(world: World, box: Toolbox) -> None:
    world.add("box", url=box.url, allow=["echo", "add"], policy={"rules": [{"tools": ["echo"], "action": "Deny"}]})
    await until(lambda: world.status("box").get("tools") == 2)
    _, found = await world.ask("GET", "/v1/namespaces/agents/catalog")
    assert [tool["name"] for tool in found["servers"][0]["tools"]] == ["add"]
    _, wrappers = await world.ask("GET", "/v1/namespaces/agents/wrappers")
    assert "box/echo.py" not in wrappers["files"]
    assert wrappers["hash"] == found["hash"]
    answer = await world.call("box.echo", value=1)
    assert answer["reason"] == "DeniedByPolicy"


async def test_wrappers_are_made_of_the_catalog(world: World, box: Toolbox) -> None:
    status, found = await world.ask("GET", "/v1/namespaces/agents/wrappers")
    _, catalog = await world.ask("GET", "/v1/namespaces/agents/catalog")
    assert (status, found["hash"]) == (200, catalog["hash"])
    assert {"box/__init__.py", "box/add.py", "catalog.json"} <= found["files"].keys()
    assert (await world.ask("GET", "/v1/namespaces/elsewhere/wrappers"))[0] == 404
    # who has them already gets no files
    path = f"/v1/namespaces/agents/wrappers?hash={found['hash']}"
    assert await world.ask("GET", path) == (200, {"hash": found["hash"]})
    assert await world.ask("GET", "/v1/namespaces/agents/wrappers?hash=another") == (200, found)


async def test_wrappers_are_made_in_the_language_that_is_asked_for(world: World, box: Toolbox) -> None:
    path = "/v1/namespaces/agents/wrappers"
    _, python = await world.ask("GET", path)
    status, found = await world.ask("GET", f"{path}?language=typescript")
    assert status == 200
    assert any(name.startswith("box/") for name in found["files"])
    assert not any(name.endswith(".py") for name in found["files"])
    assert found["files"]["catalog.json"] == python["files"]["catalog.json"]
    assert await world.ask("GET", f"{path}?language=python") == (200, python)
    assert (await world.ask("GET", f"{path}?language=ruby"))[0] == 422


async def test_another_generator_changes_the_wrappers_and_their_hash(
    world: World, box: Toolbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, before = await world.ask("GET", "/v1/namespaces/agents/wrappers")
    monkeypatch.setattr(catalogs, "compute_folder_digest", lambda folder: "another")
    monkeypatch.setattr("mcp_exec_tools.wrappers.build_files", lambda catalogs, **_: {"box/new.py": ""})
    _, after = await world.ask("GET", "/v1/namespaces/agents/wrappers")
    _, catalog = await world.ask("GET", "/v1/namespaces/agents/catalog")
    assert after["hash"] == catalog["hash"] != before["hash"]
    assert "box/new.py" in after["files"]


def test_the_digest_of_a_generator_covers_its_files(tmp_path: Path) -> None:
    seen = set()
    for name, text in (("a.py", "1"), ("a.py", "2"), ("overlay.json", "1"), ("b.py.in", "1")):
        (tmp_path / name).write_text(text)
        seen.add(catalogs.compute_folder_digest.__wrapped__(tmp_path))
    assert len(seen) == 4
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "a.pyc").write_text("1")
    assert catalogs.compute_folder_digest.__wrapped__(tmp_path) in seen


async def test_undeclared_outputs_are_inferred_and_stored(world: World, box: Toolbox) -> None:
    before = world.status("box")["catalogHash"]
    assert (await world.call("box.echo", value={"rows": [{"id": 1}]}))["type"] == "result"
    await until(lambda: "inferredOutputs" in world.status("box"))
    schema = world.status("box")["inferredOutputs"]["echo"]
    assert schema["properties"]["rows"]["type"] == "array"
    assert world.status("box")["catalogHash"] != before
    _, found = await world.ask("GET", "/v1/namespaces/agents/catalog")
    tool = next(tool for tool in found["servers"][0]["tools"] if tool["name"] == "echo")
    assert (tool["outputSchema"], tool["inferred"]) == (schema, True)
    catalog = Catalog.from_tools("box", found["servers"][0]["tools"])
    assert catalog.hash == world.status("box")["catalogHash"]


async def test_the_inferred_output_of_a_removed_tool_leaves_the_status(world: World, box: Toolbox) -> None:
    for tool in ("echo", "headers"):
        await world.call(f"box.{tool}", **({"value": {"id": 1}} if tool == "echo" else {}))
    await until(lambda: world.status("box").get("inferredOutputs", {}).keys() == {"echo", "headers"})
    box.server.remove_tool("echo")
    world.broker.catalogs.refresh(("agents", "box"))
    await until(lambda: world.status("box")["inferredOutputs"].keys() == {"headers"})
    box.server.remove_tool("headers")
    world.broker.catalogs.refresh(("agents", "box"))
    await until(lambda: "inferredOutputs" not in world.status("box"))


async def test_a_toolserver_that_is_deleted_is_gone(world: World, box: Toolbox) -> None:
    world.api.remove(TS, "box")
    await until(lambda: not list(world.broker.tracker.servers))
    assert (await world.call("box.add", a=1, b=1))["reason"] == "NoSuchServer"


async def test_a_spec_that_is_wrong_is_said_to_be(world: World) -> None:
    world.add("odd", nonsense=True)
    await until(lambda: world.status("odd").get("reason") == "InvalidSpec")
    assert "nonsense" in world.status("odd")["message"]


async def test_servers_are_listed_at_the_same_time(world: World) -> None:
    inside, all_inside = 0, asyncio.Event()

    async def list_tools(context: Any, params: Any) -> types.ListToolsResult:
        nonlocal inside
        inside += 1
        if inside == 3:
            all_inside.set()
        await asyncio.wait_for(all_inside.wait(), DEADLINE)
        return types.ListToolsResult(tools=[])

    low = LowServer("slow", on_list_tools=list_tools, cache_hints={"tools/list": CacheHint(ttl_ms=60_000)})
    async with serving_app(low.streamable_http_app()) as url, managed(low.session_manager):
        for name in ("one", "two", "three"):
            world.add(name, url=url + "/mcp")
        for name in ("one", "two", "three"):
            await world.listed(name)
