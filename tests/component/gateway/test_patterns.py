"""Patterns of tools in URLs and keys: how many there may be, and that their cost falls on the caller alone."""

import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from mcp import Client, MCPError
from mcp_types import ResourceTemplateReference
from tests.component.gateway.conftest import KEY, SECRETS, Gateway, key_entry, keys_secret, serving
from tests.component.gateway.mcp_client import MODERN, connecting
from tests.component.gateway.test_limits import limited
from tests.component.gateway.test_mcp import message
from tests.component.gateway.test_refusals import assert_problem
from tests.support.api_server import FakeApiServer
from tests.support.broker import CATALOG, FakeBroker

from mcp_exec_gateway.features.mcp.resources.addresses import TEMPLATES
from mcp_exec_gateway.features.tools.service import Tools
from mcp_exec_tools.patterns import NamePatterns

TOOL = TEMPLATES[-1].uri_template


@pytest.fixture
async def gateway(api: FakeApiServer, broker: FakeBroker) -> AsyncIterator[Gateway]:
    api.put(SECRETS, keys_secret(**{"team-a": key_entry(KEY, tools=["github.*", "my-docs.*"])}))
    github, docs = CATALOG["servers"]
    broker.catalogs["agents"] = {**CATALOG, "servers": [{**github, "direct": ["create_issue"]}, docs]}
    async with serving(api, broker_service="mcp-exec-broker") as made:
        yield made


async def test_a_url_has_at_most_32_patterns(gateway: Gateway) -> None:
    patterns = ",".join(f"github.tool_{number}" for number in range(32))
    ping = message("tools/list")
    assert (await gateway.ask("POST", f"/mcp?tools={patterns}", json=ping)).status == 200
    for query, headers in ((f"?tools={patterns},github.*", {}), ("", {"Mcp-Exec-Tools": f"{patterns},x"})):
        problem = assert_problem(await gateway.ask("POST", f"/mcp{query}", json=ping, headers=headers), 422, "tools")
        assert "at most 32 patterns are allowed" in problem.detail


async def test_patterns_of_a_url_and_of_a_key_have_a_limit_together(gateway: Gateway) -> None:
    await limited(gateway, tools=[f"{'b' * number}*.*" for number in range(1, 20)])
    query = "?tools=" + ",".join(f"*.{'x' * number}*" for number in range(1, 33))
    async with connecting(gateway.url, MODERN, query=query) as client:
        with pytest.raises(MCPError, match="together they are more than 256 patterns; choose fewer") as refused:
            await client.call_tool("search_tools", {"query": ""})
    assert refused.value.data["errors"][0]["field"] == "tools"


async def test_patterns_of_an_execution_are_counted_before_they_are_compared(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[str] = []
    find = NamePatterns.find
    monkeypatch.setattr(NamePatterns, "find", lambda self, name: compared.append(name) or find(self, name))
    async with connecting(gateway.url, MODERN, query="?tools=github.*") as client:
        refused = await client.call_tool("run_code", {"code": "1", "tools": ["github.x"] * 10_000})
    assert refused.is_error
    assert "tools" in refused.content[0].text
    assert len(compared) < 100


Use = Callable[[Gateway], Awaitable[Any]]


def by_http(path: str) -> Use:
    async def use(gateway: Gateway) -> None:
        assert (await gateway.ask("GET", path)).status == 200

    return use


def by_mcp(call: Callable[[Client], Awaitable[Any]], mode: str = "code") -> Use:
    async def use(gateway: Gateway) -> None:
        async with connecting(gateway.url, MODERN, query=f"?mode={mode}&tools=github.*") as client:
            await call(client)

    return use


async def listen(client: Client) -> None:
    async with client.listen(tools_list_changed=True):
        pass


def complete(variable: str) -> Callable[[Client], Awaitable[Any]]:
    reference = ResourceTemplateReference(uri=TOOL)
    return lambda client: client.complete(reference, {"name": variable, "value": "g"})


USES: dict[str, Use] = {
    "search": by_http("/api/v1/mcp/tools/search?query=issue"),
    "tools of a server": by_http("/api/v1/mcp/servers/github/tools"),
    "statistics": by_http("/v1/stats"),
    "search_tools": by_mcp(lambda client: client.call_tool("search_tools", {"query": "issue"})),
    "describe_tools": by_mcp(lambda client: client.call_tool("describe_tools", {"names": ["github.create_issue"]})),
    "unknown tool": by_mcp(lambda client: client.call_tool("describe_tools", {"names": ["github.create_issu"]})),
    "resource": by_mcp(lambda client: client.read_resource("tool://github/create_issue")),
    "completion of servers": by_mcp(complete("server")),
    "completion of tools": by_mcp(complete("tool")),
    "direct tools": by_mcp(lambda client: client.list_tools(), "direct"),
    "hybrid tools": by_mcp(lambda client: client.list_tools(), "hybrid"),
    "prompt": by_mcp(lambda client: client.get_prompt("code-mode")),
    "changes": by_mcp(listen, "direct"),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
async def test_no_tools_are_compared_with_patterns_on_the_event_loop(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch, use: Use
) -> None:
    names = {
        tool.tool.name
        for tool in (await gateway.dependencies.get(Tools).catalogs.get("agents")).exported.by_name.values()
    }
    threads: list[bool] = []
    find = NamePatterns.find

    def note(self: NamePatterns, name: str) -> list[str]:
        if name in names:
            threads.append(threading.current_thread() is threading.main_thread())
        return find(self, name)

    monkeypatch.setattr(NamePatterns, "find", note)
    await use(gateway)
    assert threads
    assert not any(threads)
    assert not gateway.dependencies.get(Tools).catalogs.threads.waiting
