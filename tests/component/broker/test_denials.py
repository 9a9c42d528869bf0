"""Executions that repeat denied calls."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from tests.component.broker.conftest import World, grant, running
from tests.component.broker.servers import Toolbox
from tests.support.api_server import FakeApiServer

from mcp_exec_broker.core.calls import denials

Object = dict[str, Any]
MAX_OWN_RECORDS = 10


@pytest.fixture(autouse=True)
def few_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(denials, "MAX_OWN_RECORDS", MAX_OWN_RECORDS)


async def records(world: World, **filters: str) -> list[Object]:
    query = "&".join(f"{name}={value}" for name, value in {"limit": "1000", **filters}.items())
    _, found = await world.ask("GET", f"/v1/audit?{query}")
    return list(found["items"])


async def test_calls_beyond_the_budget_are_counted_in_one_record_when_they_are_too_many(
    world: World, box: Toolbox
) -> None:
    token = grant(tool_calls=2)
    for _ in range(2 + MAX_OWN_RECORDS + 30):
        answer = await world.call("box.add", token=token, a=1, b=1)
    assert (answer["kind"], answer["reason"]) == ("ToolDenied", "BudgetExceeded")
    assert len([record for record in await records(world) if record["tool"]]) == 2 + MAX_OWN_RECORDS
    _, ended = await world.ask("DELETE", "/v1/executions/uid-1")
    assert ended["toolCalls"]["total"] == 2 + MAX_OWN_RECORDS + 30
    summaries = [record for record in await records(world) if not record["tool"]]  # one, and one more every 10 s
    others = [record for record in await records(world) if record["tool"]]
    assert sum(record["calls"] for record in summaries) == 30
    last = summaries[0]
    assert (last["outcome"], last["decision"], last["reason"]) == ("denied", "Deny", "BudgetExceeded")
    assert (last["execution"], last["uid"]) == ("exec-1", "uid-1")
    assert others[0]["at"] < last["at"] < last["endedAt"]
    assert {each["calls"] for each in others} == {1}
    assert len(others) == 2 + MAX_OWN_RECORDS


async def test_each_reason_has_a_record_and_each_execution_its_own(world: World, box: Toolbox) -> None:
    first, second = grant(tools=["box.add"], tool_calls=1000), grant(execution="uid-2", name="exec-2", tools=[])
    for _ in range(MAX_OWN_RECORDS + 5):
        assert (await world.call("box.echo", token=first, value=1))["reason"] == "NotAllowed"
    assert (await world.call("box.add", token=first, a=1, b=1))["value"] == 2
    assert (await world.call("box.add", token=second, a=1, b=1))["reason"] == "NotAllowed"
    await world.ask("DELETE", "/v1/executions/uid-1")
    for _ in range(3):
        assert (await world.call("box.add", token=first, a=1, b=1))["reason"] == "ExecutionEnded"
    await world.ask("DELETE", "/v1/executions/uid-1")
    many = [each for each in await records(world) if not each["tool"]]
    assert [(each["reason"], each["outcome"], each["calls"]) for each in many] == [
        ("ExecutionEnded", "cancelled", 3),
        ("NotAllowed", "denied", 5),
    ]
    assert [each["calls"] for each in await records(world, execution="exec-2")] == [1]


async def test_what_was_counted_is_written_when_the_broker_ends(api: FakeApiServer, tmp_path: Path) -> None:
    async with running(api, tmp_path) as world:
        for _ in range(MAX_OWN_RECORDS + 7):
            await world.call("nowhere.add", token=grant(tool_calls=0))
    async with running(api, tmp_path) as world:
        assert sum(each["calls"] for each in await records(world, outcome="denied")) == MAX_OWN_RECORDS + 7


async def test_what_can_t_be_written_stays_counted(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*arguments: object, **fields: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    for _ in range(MAX_OWN_RECORDS + 7):
        await world.call("nowhere.add", token=grant(tool_calls=0))
    with monkeypatch.context() as patch:
        patch.setattr(world.broker.denials.audit, "record_denials", fail)
        assert (await world.ask("DELETE", "/v1/executions/uid-1"))[0] == 200
    assert "cannot write denied calls to the audit log" in caplog.text
    await world.broker.denials.write_counts()
    assert (await records(world))[0]["calls"] == 7
