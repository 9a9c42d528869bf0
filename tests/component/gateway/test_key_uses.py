"""Uses of API keys in the records: one row a key and hour, whatever comes of the requests."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
from tests.component.gateway.commands import call
from tests.component.gateway.conftest import KEY, OTHER_KEY, SECRETS, Gateway, Object, key_entry, keys_secret
from tests.component.gateway.test_auth import allow
from tests.support.api_server import FakeApiServer
from tests.support.broker import FakeBroker, running_broker
from tests.support.until import until

from mcp_exec_broker.features.records.tables import KEY_USES, check_row
from mcp_exec_client.cli.main import main
from mcp_exec_gateway.features.records.key_uses import KeyUses

MOMENT = datetime(2026, 3, 1, 12, 34, 56, tzinfo=UTC)
NOON = 1772366400000000
HOUR = 3_600_000_000


@pytest.fixture
async def broker(api: FakeApiServer) -> AsyncIterator[FakeBroker]:
    async with running_broker(api) as made:
        made.rows = {}
        yield made


@pytest.fixture
def gateway(gateway_with_broker: Gateway) -> Gateway:
    uses = gateway_with_broker.dependencies.get(KeyUses)
    uses.clock, uses.gather_seconds, uses.retry_seconds = lambda: MOMENT, 0.01, 0.01
    return gateway_with_broker


def list_uses(broker: FakeBroker) -> list[Object]:
    return (broker.rows or {}).get("key_uses", [])


async def test_a_key_that_is_used_often_has_one_record_an_hour(gateway: Gateway, broker: FakeBroker) -> None:
    for path in ("/v1/executions", "/v1/executions", "/v1/executions/none", "/v1/executions?namespace=others"):
        await gateway.ask("GET", path)
    await until(lambda: list_uses(broker))
    gateway.dependencies.get(KeyUses).clock = lambda: MOMENT + timedelta(minutes=26)
    await gateway.ask("GET", "/v1/executions")
    await gateway.ask("GET", "/v1/executions", key=OTHER_KEY)
    found = await until(lambda: len(list_uses(broker)) == 3 and list_uses(broker))
    assert [(row["namespace"], row["caller"], row["at"]) for row in found] == [
        ("agents", "team-a", NOON),
        ("agents", "team-a", NOON + HOUR),
        ("others", "team-b", NOON + HOUR),
    ]
    for row in found:
        check_row(KEY_USES, row)


async def test_only_valid_keys_have_uses(gateway: Gateway, broker: FakeBroker, api: FakeApiServer) -> None:
    await gateway.ask("GET", "/v1/executions", key="mcpx_" + "u" * 43)
    assert (await gateway.ask("GET", "/v1/executions", key=allow(api, "list"))).status == 200
    await gateway.ask("GET", "/v1/executions")
    found = await until(lambda: list_uses(broker))
    assert [row["caller"] for row in found] == ["team-a"]


async def test_a_use_is_recorded_when_the_broker_is_back(gateway: Gateway, broker: FakeBroker) -> None:
    broker.broken = True
    await gateway.ask("GET", "/v1/executions")
    await until(lambda: broker.paths.count("/v1/records") > 1)
    broker.broken = False
    assert await until(lambda: list_uses(broker))


async def test_uses_that_wait_are_sent_at_the_end(gateway: Gateway, broker: FakeBroker) -> None:
    uses = KeyUses(client=gateway.dependencies.get(KeyUses).client, clock=lambda: MOMENT)
    key = gateway.dependencies.keys.find(KEY)
    assert key is not None
    task = asyncio.create_task(uses.run())
    await asyncio.sleep(0)
    uses.observe(key)
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task], timeout=5)
    assert len(list_uses(broker)) == 1


async def test_the_last_use_of_each_key_is_listed_for_who_may_list_executions(
    gateway: Gateway, broker: FakeBroker, api: FakeApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    api.put(SECRETS, keys_secret(**{"team-a": key_entry(KEY), "bob": key_entry(OTHER_KEY, own=True)}))
    await until(lambda: (found := gateway.dependencies.keys.find(OTHER_KEY)) is not None and found.name == "bob")
    assert broker.rows is not None
    for caller, namespace, hours in (("team-a", "agents", 1), ("team-a", "agents", 0), ("bob", "agents", 2)):
        row = {"namespace": namespace, "caller": caller, "at": NOON + hours * HOUR}
        broker.rows.setdefault("key_uses", []).append(row)
    everyone = await gateway.ask("GET", "/v1/key-uses")
    uses = [{"name": "bob", "lastUsedAt": "2026-03-01T14:00:00.000000Z"}]
    assert everyone.json == {"items": [*uses, {"name": "team-a", "lastUsedAt": "2026-03-01T13:00:00.000000Z"}]}
    assert (await gateway.ask("GET", "/v1/key-uses", key=OTHER_KEY)).json == {"items": uses}
    connection = ("--gateway", gateway.url, "--api-key", KEY)
    listed = await call(capsys, "keys", "uses", *connection, entry=main)
    assert [line.split() for line in listed.lines] == [
        ["NAME", "LAST", "USED"],
        ["bob", "2026-03-01T14:00Z"],
        ["team-a", "2026-03-01T13:00Z"],
    ]
    broker.rows = None
    off = await call(capsys, "keys", "uses", *connection, entry=main)
    assert (off.code != 0, "broker.records.enabled" in off.last) == (True, True)
