"""Deletion of executions that have ended: object, artifacts and links go, by the operator's own deletion."""

import asyncio
from typing import Any

import pytest
from tests.component.gateway.commands import call
from tests.component.gateway.conftest import CEX, KEY, Answer, Gateway
from tests.component.gateway.test_artifacts import PNG, produce
from tests.component.gateway.test_refusals import assert_problem
from tests.support.api_server import FakeApiServer, Fault
from tests.support.broker import FakeBroker
from tests.support.until import until

from mcp_exec_client import AsyncClient
from mcp_exec_client.errors import Conflict, NotFound
from mcp_exec_common.broker.files import FilesReason


@pytest.fixture
def gateway(gateway_with_broker: Gateway) -> Gateway:
    return gateway_with_broker


def is_due(gateway: Gateway, name: str) -> bool:
    return bool(gateway.executions[name]["spec"].get("ttlSecondsAfterFinished") == 0)


async def operate(gateway: Gateway, name: str) -> None:
    """Delete an execution as the operator does, once its time to live is over."""
    await until(lambda: is_due(gateway, name))
    gateway.api.remove(CEX, name)


async def purge(gateway: Gateway, name: str, **options: Any) -> Answer:
    return await gateway.ask("DELETE", f"/v1/executions/{name}?purge=true", **options)


async def test_an_execution_is_deleted_with_its_artifacts_and_links(gateway: Gateway, broker: FakeBroker) -> None:
    kept = await produce(gateway, broker, ("kept.png", "image/png", PNG))
    name = await produce(gateway, broker, ("plot.png", "image/png", PNG), user="ann")
    links = [
        (await gateway.ask("GET", f"/v1/executions/{each}/artifacts")).json["items"][0]["url"] for each in (name, kept)
    ]
    answer, _ = await asyncio.gather(purge(gateway, name), operate(gateway, name))
    assert (answer.status, answer.text) == (204, "")
    assert_problem(await gateway.ask("GET", f"/v1/executions/{name}"), 404)
    assert_problem(await purge(gateway, name), 404)
    assert len(broker.files.artifacts) == 1
    statuses = []
    for link in links:
        async with gateway.session.get(link) as got:
            statuses.append(got.status)
    assert statuses == [404, 200]


async def test_what_runs_is_not_deleted(gateway: Gateway) -> None:
    name = (await gateway.post({"code": "1"}, "?wait=0")).json["name"]
    problem = assert_problem(await purge(gateway, name), 409)
    assert (problem.type, problem.execution) == ("urn:mcp-exec:problem:unfinished", name)
    assert "is Pending: cancel it" in problem.detail
    assert not is_due(gateway, name)
    assert not gateway.executions[name]["spec"].get("cancelRequested")


async def test_without_purge_what_has_ended_stays(gateway: Gateway, broker: FakeBroker) -> None:
    name = await produce(gateway, broker, ("plot.png", "image/png", PNG))
    for query in ("", "?purge=false"):
        assert (await gateway.ask("DELETE", f"/v1/executions/{name}{query}")).status == 200
    assert (is_due(gateway, name), len(broker.files.artifacts)) == (False, 1)


async def test_what_the_operator_has_not_deleted_yet_is_202(gateway: Gateway, broker: FakeBroker) -> None:
    name = await produce(gateway, broker)
    gateway.dependencies.index.shut_down()  # it does not wait for the operator any more
    answer = await purge(gateway, name)
    assert (answer.status, answer.json["name"]) == (202, name)
    assert is_due(gateway, name)


async def test_nothing_is_deleted_while_the_artifacts_cannot_be(gateway: Gateway, broker: FakeBroker) -> None:
    name = await produce(gateway, broker, ("plot.png", "image/png", PNG))
    broker.broken = True
    assert_problem(await purge(gateway, name), 503)
    assert not is_due(gateway, name)


async def test_an_installation_without_files_deletes_executions(gateway: Gateway, broker: FakeBroker) -> None:
    name = await produce(gateway, broker)
    broker.files.refusal = FilesReason.DISABLED
    answer, _ = await asyncio.gather(purge(gateway, name), operate(gateway, name))
    assert answer.status == 204


async def test_an_execution_that_changes_meanwhile_is_read_again(
    gateway: Gateway, broker: FakeBroker, api: FakeApiServer
) -> None:
    name = await produce(gateway, broker)
    api.faults.append(Fault("PATCH", f"/{name}", 409))
    answer, _ = await asyncio.gather(purge(gateway, name), operate(gateway, name))
    assert answer.status == 204


async def test_the_client_and_the_command_delete(
    gateway: Gateway, broker: FakeBroker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MCP_EXEC_GATEWAY", gateway.url)
    monkeypatch.setenv("MCP_EXEC_API_KEY", KEY)
    first, second = [await produce(gateway, broker) for _ in range(2)]
    running = (await gateway.post({"code": "1"}, "?wait=0")).json["name"]
    async with AsyncClient(gateway.url, api_key=KEY) as client:
        is_gone, _ = await asyncio.gather(client.delete(first), operate(gateway, first))
        assert is_gone
        with pytest.raises(NotFound):
            await client.delete(first)
        with pytest.raises(Conflict, match="cancel it"):
            await client.delete(running)
    ended, _ = await asyncio.gather(call(capsys, "delete", second), operate(gateway, second))
    assert (ended.code, ended.out) == (0, f"{second} is deleted\n")
    gateway.dependencies.index.shut_down()
    third = await produce(gateway, broker)
    assert (await call(capsys, "delete", third)).out == f"{third} will be deleted by the operator\n"
