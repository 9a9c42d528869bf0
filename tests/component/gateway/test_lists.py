"""Lists of executions: newest first, in pages, with filters, the same at every replica."""

from typing import Any

import pytest
from tests.component.gateway.conftest import (
    CEX,
    KEY,
    OTHER_KEY,
    SECRETS,
    Gateway,
    key_entry,
    keys_secret,
    listing,
    serving,
)
from tests.support.api_server import FakeApiServer
from tests.support.until import until

from mcp_exec_api.wire.executions import ExecutionList

SECOND_KEY = "mcpx_" + "c" * 43


def put(api: FakeApiServer, name: str, second: int, **labels: str) -> None:
    metadata = {"name": name, "creationTimestamp": f"2026-11-21T20:00:{second:02}Z", "labels": labels}
    api.put(CEX, {"metadata": metadata, "spec": {"code": "1"}})


async def test_a_list_has_the_newest_first_whatever_their_names(gateway: Gateway, api: FakeApiServer) -> None:
    for name, second in (("zebra", 1), ("exec-000000000001", 3), ("apple", 2), ("middle", 3)):
        put(api, name, second)
    found = await listing(gateway, "name", "middle", "exec-000000000001", "apple", "zebra")
    assert "output" not in found[0]
    api.remove(CEX, "middle")
    await listing(gateway, "name", "exec-000000000001", "apple", "zebra")
    made = [(await gateway.post({"code": "1", "name": name}, "?wait=0")).json["name"] for name in ("z", "a")]
    await listing(gateway, "name", *reversed(made), query="?limit=2")


async def test_a_page_of_one_replica_continues_at_another(gateway: Gateway, api: FakeApiServer) -> None:
    for number in range(5):
        put(api, f"e{number}", number)
    async with serving(api) as other:
        await listing(other, "name", "e4", "e3", "e2", "e1", "e0")
        await listing(gateway, "name", "e4", "e3", "e2", "e1", "e0")
        names, token, replicas = [], "", [gateway, other, gateway]
        for replica in replicas:
            page = (await replica.ask("GET", f"/v1/executions?limit=2{token}")).json
            ExecutionList.model_validate(page)
            names += [item["name"] for item in page["items"]]
            token = f"&continue={page.get('continue')}"
            put(api, f"new-{len(names)}", 30)
    assert names == ["e4", "e3", "e2", "e1", "e0"]
    assert "continue" not in page


async def test_a_list_is_filtered_by_each_property_and_by_all(gateway: Gateway, api: FakeApiServer) -> None:
    keys = {"team-a": key_entry(KEY), "team-b": key_entry(OTHER_KEY, "others"), "team-c": key_entry(SECOND_KEY)}
    api.put(SECRETS, keys_secret(**keys))
    await until(lambda: gateway.dependencies.keys.find(SECOND_KEY) is not None)
    bodies: list[dict[str, Any]] = [
        {"name": "e1", "useCase": "polling", "labels": {"report": "weekly"}},
        {"name": "e2", "conversation": "c-1", "labels": {"report": "daily"}},
        {"name": "e3", "conversation": "c-1", "useCase": "polling"},
    ]
    for body in bodies:
        await gateway.post({"code": "1", **body}, "?wait=0")
    await gateway.post({"code": "1", "name": "e4"}, "?wait=0", key=SECOND_KEY)
    gateway.finish("e1")
    put(api, "by-hand", 1, **{"mcp-exec.dev/caller": "team-c"})
    await listing(gateway, "name", "e1", query="?phase=Succeeded")
    for query, names in {
        "": ["e4", "e3", "e2", "e1", "by-hand"],
        "?caller=team-a": ["e3", "e2", "e1"],
        "?caller=team-c": ["e4"],
        "?caller=claimed:team-c": ["by-hand"],
        "?caller=nobody": [],
        "?conversation=c-1": ["e3", "e2"],
        "?useCase=polling": ["e3", "e1"],
        "?useCase=polling&conversation=c-1": ["e3"],
        "?labelSelector=report": ["e2", "e1"],
        "?labelSelector=report%3Dweekly": ["e1"],
        "?labelSelector=report%21%3Dweekly,mcp-exec.dev/caller%20in%20(team-a)": ["e3", "e2"],
        "?phase=Pending&caller=team-a&limit=1": ["e3"],
    }.items():
        await listing(gateway, "name", *names, query=query)
    assert (await gateway.ask("GET", "/v1/executions", key=OTHER_KEY)).json["items"] == []


@pytest.mark.parametrize(
    ("query", "field", "rule"),
    [
        ("continue=x", "continue", "list again"),
        ("labelSelector=a%3E1", "labelSelector", "KEY in (A,B)"),
        ("useCase=fun", "useCase", "'filtering', 'workflow', 'polling' or 'other'"),
        ("caller=", "caller", "at least 1"),
        ("limit=501", "limit", "500"),
        ("user=a", "user", "unknown query parameter"),
    ],
)
async def test_a_query_that_is_wrong_is_refused_by_its_name(
    gateway: Gateway, query: str, field: str, rule: str
) -> None:
    answer = await gateway.ask("GET", f"/v1/executions?{query}")
    assert (answer.status, answer.json["errors"][0]["field"]) == (422, field)
    assert rule in answer.json["detail"]


async def test_a_list_costs_the_api_server_nothing(gateway: Gateway, api: FakeApiServer) -> None:
    put(api, "e1", 1)
    await listing(gateway, "name", "e1")
    asked = len(api.seen)
    for _ in range(3):
        await gateway.ask("GET", "/v1/executions")
    assert [seen for seen in api.seen[asked:] if "watch" not in seen.query] == []
