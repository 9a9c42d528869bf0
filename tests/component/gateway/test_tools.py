"""Searches for tools: the broker's catalog, filtered by the key's limits, also while the broker is down."""

import asyncio
from typing import Any

import pytest
from tests.component.gateway.conftest import KEY, OTHER_KEY, Gateway, serving
from tests.component.gateway.test_limits import limited
from tests.component.gateway.test_refusals import assert_problem
from tests.support.api_server import FakeApiServer
from tests.support.broker import CATALOG, SLICES, FakeBroker
from tests.support.until import until

from mcp_exec_gateway.features.tools.service import Tools

SEARCH = "/api/v1/mcp/tools/search"
TOOLS = "/api/v1/mcp/servers/{}/tools"


@pytest.fixture
def gateway(gateway_with_broker: Gateway) -> Gateway:
    return gateway_with_broker


async def names(gateway: Gateway, query: str = "", key: str = KEY) -> list[str]:
    answer = await gateway.ask("GET", f"{SEARCH}?{query}", key=key)
    assert answer.status == 200
    return [each["name"] for each in answer.json]


async def test_each_level_has_exactly_its_keys(gateway: Gateway, broker: FakeBroker) -> None:
    keys = {"name", "server"}
    for level, more in (
        ("name_only", set()),
        ("with_description", {"description", "import"}),
        ("full", {"signature", "input_schema", "output_schema"}),
    ):
        keys |= more
        answer = await gateway.ask("GET", f"{SEARCH}?query=open+a+PR&detail_level={level}")
        assert set(answer.json[0]) == keys
        assert answer.json[0]["name"] == "create_pull_request"
    answer = await gateway.ask("GET", f"{SEARCH}?query=docs+page&detail_level=full")
    assert answer.json[0]["import"] == "from servers.my_docs import get_page"
    assert answer.json[0]["output_schema"] is None
    assert broker.senders == {"gateway"}


async def test_no_query_lists_all_up_to_the_limit(gateway: Gateway) -> None:
    assert await names(gateway) == ["create_issue", "create_pull_request", "get_file_contents", "get_page"]
    assert await names(gateway, "limit=2") == ["create_issue", "create_pull_request"]
    assert await names(gateway, key=OTHER_KEY) == []


async def test_a_key_finds_only_what_it_may_use(gateway: Gateway) -> None:
    await limited(gateway, tools=["github.create_*"])
    assert await names(gateway) == ["create_issue", "create_pull_request"]
    assert await names(gateway, "query=file+contents") == []
    await limited(gateway, tools=[])
    assert await names(gateway) == []


async def test_a_servers_tools_are_told_as_the_server_lists_them(gateway: Gateway) -> None:
    answer = await gateway.ask("GET", TOOLS.format("my-docs"))
    assert (answer.status, answer.json) == (200, {"server": "my-docs", "tools": CATALOG["servers"][1]["tools"]})
    answer = await gateway.ask("GET", TOOLS.format("github"))
    assert answer.json["tools"] == CATALOG["servers"][0]["tools"]
    assert (await gateway.ask("GET", TOOLS.format("github"), key=OTHER_KEY)).status == 404


async def test_of_a_servers_tools_a_key_sees_those_that_it_may_use(gateway: Gateway) -> None:
    await limited(gateway, tools=["github.create_*"])
    answer = await gateway.ask("GET", TOOLS.format("github"))
    assert [each["name"] for each in answer.json["tools"]] == ["create_issue", "create_pull_request"]
    for server in ("my-docs", "nothing"):
        problem = assert_problem(await gateway.ask("GET", TOOLS.format(server)), 404)
        assert problem.detail.endswith("servers with tools: github")
    assert_problem(await gateway.ask("GET", TOOLS.format("github") + "?limit=5"), 422, "limit")


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("detail_level=all", "detail_level"),
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("limit=many", "limit"),
        ("query=" + "x" * 1001, "query"),
        ("q=x", "q"),
    ],
)
async def test_what_is_wrong_with_a_search_is_named(gateway: Gateway, query: str, field: str) -> None:
    assert_problem(await gateway.ask("GET", f"{SEARCH}?{query}"), 422, field)


async def test_statistics_count_the_tools_that_a_key_may_use(gateway: Gateway) -> None:
    stats = (await gateway.ask("GET", "/v1/stats")).json
    assert stats["servers"] == [{"name": "github", "tools": 3}, {"name": "my-docs", "tools": 1}]
    assert stats["tools"] == 4
    await limited(gateway, tools=["github.create_*"])
    stats = (await gateway.ask("GET", "/v1/stats")).json
    assert (stats["servers"], stats["tools"]) == ([{"name": "github", "tools": 2}], 2)


async def test_many_searches_ask_the_broker_once(gateway: Gateway, broker: FakeBroker) -> None:
    await asyncio.gather(*(names(gateway, "query=issue") for _ in range(10)))
    assert [path for path, _ in broker.asked] == ["/v1/namespaces/agents/catalog"]


async def test_the_last_good_catalog_serves_while_the_broker_is_down(gateway: Gateway, broker: FakeBroker) -> None:
    now = [0.0]
    gateway.dependencies.get(Tools).catalogs.clock = lambda: now[0]
    before = await names(gateway)
    broker.broken = True
    now[0] += 60
    assert await names(gateway) == before
    broker.broken = False
    broker.catalogs["agents"] = {"hash": "two", "servers": CATALOG["servers"][1:]}
    now[0] += 60
    assert await names(gateway) == ["get_page"]
    broker.catalogs["agents"] = {"hash": "three", "servers": [{"server": "x", "tools": [{}]}]}
    now[0] += 60
    assert await names(gateway) == ["get_page"]


async def test_without_a_broker_a_search_is_503(api: FakeApiServer, gateway: Gateway, broker: FakeBroker) -> None:
    broker.broken = True
    for path in (SEARCH, TOOLS.format("github")):
        assert "does not answer" in assert_problem(await gateway.ask("GET", path), 503).detail
    api.remove(SLICES, "mcp-exec-broker-x1")
    assert gateway.dependencies.broker is not None
    addresses = gateway.dependencies.broker.addresses
    await until(lambda: not addresses())
    assert_problem(await gateway.ask("GET", SEARCH), 503)
    async with serving(api) as without:
        assert "configured" in assert_problem(await without.ask("GET", SEARCH), 503).detail
        assert "configured" in assert_problem(await without.ask("GET", "/v1/audit"), 503).detail


async def test_what_an_execution_asks_for_is_written_down(gateway: Gateway) -> None:
    given = {
        "code": "1",
        "tools": ["github.create_issue", "nobody.knows_it", "x.*"],
        "user": "u-42",
        "limits": {"toolCalls": 7},
    }
    answer = await gateway.post(given, "?wait=0")
    assert answer.status == 202
    spec = gateway.executions[answer.json["name"]]["spec"]
    assert (spec["tools"], spec["user"], spec["limits"]["toolCalls"]) == (given["tools"], "u-42", 7)
    calls = {"total": 3, "failed": 1, "byTool": {"github.create_issue": 3}, "bytesIn": 9, "bytesKept": 1}
    gateway.finish(answer.json["name"], toolCalls=calls)
    assert (await gateway.ask("GET", f"/v1/executions/{answer.json['name']}")).json["toolCalls"] == calls


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"tools": ["github"]}, "tools.0"),
        ({"tools": ["a.b", "*x.y"]}, "tools.1"),
        ({"tools": "github.*"}, "tools"),
        ({"user": ""}, "user"),
        ({"limits": {"toolCalls": -1}}, "limits.toolCalls"),
        ({"approvals": [{"id": "x", "decision": "Approve"}]}, "approvals"),
    ],
)
async def test_what_can_not_be_asked_for_is_refused(gateway: Gateway, body: dict[str, Any], field: str) -> None:
    assert_problem(await gateway.post({"code": "1", **body}), 422, field)
    assert gateway.executions == {}


async def test_a_key_can_not_ask_for_more_tools_than_it_may_use(gateway: Gateway) -> None:
    await limited(gateway, tools=["github.create_*", "fs.*"])
    fine = {"code": "1", "tools": ["github.create_issue", "github.create_p*", "fs.*", "fs.read"]}
    assert (await gateway.post(fine, "?wait=0")).status == 202
    assert (await gateway.post({"code": "1"}, "?wait=0")).status == 202
    for beyond in ("github.*", "*.*", "git*.create_issue", "github.delete_repo", "f*.read"):
        problem = assert_problem(await gateway.post({"code": "1", "tools": ["fs.read", beyond]}), 403, "tools.1")
        assert "github.create_*" in problem.errors[0].message


async def test_a_key_can_name_no_user_but_those_that_it_may(gateway: Gateway) -> None:
    await limited(gateway, users=["team-a/*", "u-42"])
    for fine in ({}, {"user": "u-42"}, {"user": "team-a/ada"}):
        assert (await gateway.post({"code": "1", **fine}, "?wait=0")).status == 202
    made = len(gateway.executions)
    for other in ("u-421", "U-42", "team-b/ada", "team-a", "*"):
        problem = assert_problem(await gateway.post({"code": "1", "user": other}), 403, "user")
        assert "team-a/*, u-42" in problem.errors[0].message
    assert len(gateway.executions) == made


async def test_a_key_without_that_limit_may_name_any_user_and_one_with_an_empty_one_nobody(gateway: Gateway) -> None:
    assert (await gateway.post({"code": "1", "user": "anybody"}, "?wait=0")).status == 202
    await limited(gateway, users=[])
    assert_problem(await gateway.post({"code": "1", "user": "anybody"}), 403, "user")
    assert (await gateway.post({"code": "1"}, "?wait=0")).status == 202
