"""Records of a running broker: written and read by the client of gateway and operator."""

import asyncio
import io
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest
from tests.component.broker.conftest import SIGNER, World, running
from tests.component.broker.servers import serving, toolbox
from tests.support.api_server import FakeApiServer
from tests.support.constants import DEADLINE
from tests.support.postgres import Postgres, find_programs

from mcp_exec_broker.features.records.queries import measure_usage
from mcp_exec_broker.features.records.store import RecordStore
from mcp_exec_common.broker.client import BrokerClient
from mcp_exec_common.broker.records import MAX_RECORDS, RecordsClient, RecordsError, RecordsOff
from mcp_exec_common.usage import MeasuredUsage

Object = dict[str, Any]

EXECUTION: Object = {"uid": "u-1", "namespace": "agents", "name": "run-1", "phase": "Succeeded", "created_at": 1}

OUTCOME: Object = {
    "namespace": "agents",
    "id": "o-1",
    "rollout": "code-mode",
    "rollout_uid": "r-1",
    "unit": "unit-1",
    "arm": "code",
    "success": False,
    "tokens": 9,
    "at": 1,
}
EXPOSURES: list[Object] = [
    {"namespace": "agents", "rollout": "code-mode", "rollout_uid": "r-1", "unit": unit, "arm": arm, "at": 1}
    for unit, arm in (("unit-1", "code"), ("unit-2", "direct"), ("unit-3", "direct"))
]


def build_client(*worlds: World) -> RecordsClient:
    addresses = [urlsplit(world.control).netloc for world in worlds]
    return RecordsClient(
        BrokerClient(session=worlds[0].session, signer=SIGNER, sender="operator", addresses=lambda: addresses)
    )


@pytest.fixture
async def world(api: FakeApiServer, tmp_path: Path) -> AsyncIterator[World]:
    async with running(api, tmp_path, records_file=tmp_path / "records.sqlite") as made:
        yield made


@pytest.fixture
async def postgres() -> AsyncIterator[Postgres]:
    if find_programs() is None:
        pytest.skip("needs PostgreSQL of Debian: install the package postgresql")
    async with Postgres.running() as server:
        yield server


@pytest.fixture
def records(world: World) -> RecordsClient:
    return build_client(world)


async def test_a_row_is_stored_once_however_often_it_is_sent(records: RecordsClient) -> None:
    for _ in range(3):
        assert (await records.add({"executions": [EXECUTION]})).stored == 1
    page = await records.read_rows("executions", namespace="agents")
    assert [row["uid"] for row in page.items] == ["u-1"]
    assert (await records.read_rows("executions", namespace="agents", cursor=page.cursor)).items == []
    assert await records.find_executions(["u-1", "u-2", "\0"]) == {"u-1"}


async def test_pages_of_recorded_code_have_a_bounded_size(records: RecordsClient) -> None:
    code = {"code": "x" * 1024 * 1024}
    for number in range(8):
        await records.add({"executions": [EXECUTION | code | {"uid": f"u-{number}"}]})
    seen, cursor, is_last = [], "", False
    while not is_last:
        page = await records.read_rows("executions", namespace="agents", cursor=cursor)
        assert len(page.items) <= 5
        seen += [row["uid"] for row in page.items]
        cursor, is_last = page.cursor, page.is_last
    assert seen == [f"u-{number}" for number in range(8)]


async def test_a_wrong_row_is_named_and_the_others_are_stored(records: RecordsClient) -> None:
    added = await records.add({"executions": [EXECUTION, EXECUTION | {"uid": "u-2", "phase": 7}]})
    assert (added.stored, added.refused) == (1, ["executions.phase: must be a text"])


async def test_a_tool_call_is_recorded_after_its_end(world: World, records: RecordsClient) -> None:
    async with serving(toolbox()) as box:
        world.add("box", url=box.url)
        await world.listed("box")
        await world.call("box.add", a=2, b=3)

    rows: list[Object] = []
    async with asyncio.timeout(DEADLINE):
        while not rows:
            rows = (await records.read_rows("calls", namespace="agents")).items
    [row] = rows
    assert (row["execution_uid"], row["server"], row["tool"], row["outcome"]) == ("uid-1", "box", "add", "ok")


async def test_a_call_is_recorded_that_ended_while_the_broker_stopped(api: FakeApiServer, tmp_path: Path) -> None:
    options = {"records_file": tmp_path / "records.sqlite"}
    async with serving(toolbox()) as box:
        async with running(api, tmp_path, **options) as world:
            world.add("box", url=box.url)
            await world.listed("box")
            for number in range(5):
                await world.call("box.add", a=number, b=1)
        async with running(api, tmp_path, **options) as world:
            page = await build_client(world).read_rows("calls", namespace="agents")
    assert len(page.items) == 5


async def test_an_installation_without_records_says_how_to_switch_them_on(api: FakeApiServer, tmp_path: Path) -> None:
    async with running(api, tmp_path) as world:
        with pytest.raises(RecordsOff, match="set broker"):
            await build_client(world).add({"executions": [EXECUTION]})


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"[", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "must be a JSON object"),
        (b'{"rows": []}', "unknown tables: rows; known: executions"),
        (b'{"executions": {}}', "executions: must be a list of objects"),
        (json.dumps({"calls": [{}] * (MAX_RECORDS + 1)}).encode(), "1001 rows; at most 1000"),
        (b'{"calls": [' + b" " * 9_000_000 + b"]}", "the body has more than"),
    ],
)
async def test_a_wrong_request_is_refused(world: World, body: bytes, message: str) -> None:
    headers = {"Authorization": f"Bearer {SIGNER.sign_service_token('gateway')}"}
    async with world.session.post(f"{world.control}/v1/records", data=io.BytesIO(body), headers=headers) as response:
        assert (response.status, message in await response.text()) == (400, True)


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (lambda records: records.read_rows("secrets", namespace="agents"), "table: must be one of"),
        (lambda records: records.read_rows("calls", namespace="other"), "does not serve 'other'"),
        (lambda records: records.read_rows("calls", namespace="agents", limit=0), "limit: must be an integer"),
        (lambda records: records.read_rows("calls", namespace="agents", cursor="x"), "cursor: is not one"),
    ],
)
async def test_a_wrong_page_is_refused(records: RecordsClient, read: Callable[..., Any], message: str) -> None:
    with pytest.raises(RecordsError, match=message):
        await read(records)


async def test_records_need_a_service_token(world: World) -> None:
    async with world.session.get(f"{world.control}/v1/records/calls") as response:
        assert response.status == 401


async def check_measures(records: RecordsClient) -> None:
    arm, exposed = (await records.measure_rollout(namespace="agents", uid="r-1")).arms
    assert (arm.exposed, exposed.name, exposed.exposed, exposed.outcomes) == (1, "direct", 2, 0)
    assert arm.tokens is not None
    assert (arm.name, arm.failures, arm.tokens.value, arm.tokens.low) == ("code", 1, 9.0, None)
    assert (await records.measure_rollout(namespace="agents", uid="r-1", window_seconds=60)).arms == []
    with pytest.raises(RecordsError, match="window: must be seconds"):
        await records.measure_rollout(namespace="agents", uid="r-1", window_seconds=-1)


async def test_outcomes_of_a_rollout_are_measured_by_arm(records: RecordsClient) -> None:
    await records.add({"outcomes": [OUTCOME], "exposures": EXPOSURES})
    await check_measures(records)


async def test_two_brokers_share_the_records_of_a_postgresql_database(
    api: FakeApiServer, tmp_path: Path, postgres: Postgres
) -> None:
    url = tmp_path / "url"
    url.write_text(postgres.url)
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
    async with (
        running(api, folders[0], records_database_file=url) as first,
        running(api, folders[1], records_database_file=url) as second,
    ):
        for world in (first, second):
            assert (await build_client(world).add({"executions": [EXECUTION]})).stored == 1
        page = await build_client(second).read_rows("executions", namespace="agents")
        assert ([row["uid"] for row in page.items], page.is_last) == (["u-1"], True)
        await build_client(first).add({"outcomes": [OUTCOME], "exposures": EXPOSURES})
        await check_measures(build_client(second))


async def test_an_hour_in_which_several_gateways_saw_a_key_is_one_row(records: RecordsClient) -> None:
    uses = [{"namespace": "agents", "caller": "team-a", "at": hour} for hour in (0, 3_600_000_000)]
    for _ in range(2):
        await records.add({"key_uses": uses})
    page = await records.read_rows("key_uses", namespace="agents", caller="team-a")
    assert [row["at"] for row in page.items] == [0, 3_600_000_000]
    assert (await records.read_rows("key_uses", namespace="agents", caller="team-b")).items == []
    assert await records.find_last_uses(namespace="agents") == {"team-a": 3_600_000_000}
    assert await records.find_last_uses(namespace="agents", caller="team-b") == {}
    with pytest.raises(RecordsError, match="does not serve"):
        await records.find_last_uses(namespace="elsewhere")


@pytest.fixture(params=["sqlite", "postgresql"])
async def database(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Object]:
    """Return the settings of a database."""
    if request.param == "sqlite":
        yield {"records_file": tmp_path / "records.sqlite"}
        return
    if find_programs() is None:
        pytest.skip("needs PostgreSQL of Debian: install the package postgresql")
    async with Postgres.running() as server:
        url = tmp_path / "url"
        url.write_text(server.url)
        yield {"records_database_file": url}


async def test_a_database_of_an_earlier_release_gets_the_columns_that_it_lacks(
    api: FakeApiServer, tmp_path: Path, database: Object
) -> None:
    async with running(api, tmp_path, **database) as world:
        await build_client(world).add({"executions": [EXECUTION]})
    await drop_languages(database)
    async with running(api, tmp_path, **database) as world:
        records = build_client(world)
        later = [EXECUTION | {"uid": "u-2", "language": "typescript"}, EXECUTION | {"uid": "u-3"}]
        assert (await records.add({"executions": later})).refused == []
        rows = (await records.read_rows("executions", namespace="agents")).items
    found = {row["uid"]: row["language"] for row in rows}
    assert found == {"u-1": "python", "u-2": "typescript", "u-3": "python"}


async def drop_languages(database: Object) -> None:
    """Drop the column `language`, which the first release did not have."""
    path = database.get("records_file") or database["records_database_file"].read_text()
    async with RecordStore.open(path) as store, store.engine.begin() as connection:
        if store.is_sqlite:
            for change in ("added", "removed"):
                await connection.exec_driver_sql(f"DROP TRIGGER executions_{change}")
        await connection.exec_driver_sql("ALTER TABLE executions DROP COLUMN language")


async def add_feedback(records: RecordsClient, namespace: str, count: int) -> None:
    row = {"namespace": namespace, "caller": "chat", "rating": 1, "comment": "x" * 900, "at": 1}
    for start in range(0, count, MAX_RECORDS):
        rows = [row | {"id": f"r-{number}"} for number in range(start, start + MAX_RECORDS)]
        assert (await records.add({"feedback": rows})).stored == MAX_RECORDS


async def count_feedback(records: RecordsClient, namespace: str) -> int:
    count, cursor, is_last = 0, "", False
    while not is_last:
        page = await records.read_rows("feedback", namespace=namespace, cursor=cursor)
        count, cursor, is_last = count + len(page.items), page.cursor, page.is_last
    return count


async def test_records_of_a_namespace_survive_a_flood_of_another(
    api: FakeApiServer, tmp_path: Path, database: Object
) -> None:
    options: Object = {"namespaces": ("agents", "others"), "records_keep_bytes": 8 * 1024 * 1024, **database}
    async with running(api, tmp_path, **options) as world:
        await add_feedback(build_client(world), "agents", 1000)
        await add_feedback(build_client(world), "others", 20_000)
    async with running(api, tmp_path, **options) as world, asyncio.timeout(DEADLINE):
        records = build_client(world)
        if "records_file" in database:  # a broker deletes when it starts; a database of PostgreSQL has no such limit
            while await count_feedback(records, "others") > 8000:
                pass
        assert await count_feedback(records, "agents") == 1000


async def test_requests_of_a_namespace_leave_places_for_others(
    api: FakeApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, release = asyncio.Event(), asyncio.Event()

    async def measure_slowly(store: RecordStore, *, namespace: str, **asked: Any) -> MeasuredUsage:
        if namespace == "agents":
            entered.set()
            await release.wait()
        return await measure_usage(store, namespace=namespace, **asked)

    monkeypatch.setattr("mcp_exec_broker.features.records.api.measure_usage", measure_slowly)
    options: Object = {"namespaces": ("agents", "others"), "records_file": tmp_path / "records.sqlite"}
    asked: Object = {"by": "day", "since": 0, "until": 1}
    async with running(api, tmp_path, **options) as world:
        records = build_client(world)
        busy = [asyncio.create_task(records.measure_usage(namespace="agents", **asked)) for _ in range(12)]
        async with asyncio.timeout(DEADLINE):
            await entered.wait()
            assert (await records.measure_usage(namespace="others", **asked)).is_complete
            assert (await records.add({"executions": [EXECUTION]})).stored == 1
            release.set()
            await asyncio.gather(*busy, return_exceptions=True)


async def test_a_broker_starts_without_its_database_and_stores_when_it_is_back(
    api: FakeApiServer, tmp_path: Path, postgres: Postgres
) -> None:
    url = tmp_path / "url"
    url.write_text(postgres.url)
    await postgres.crash()
    async with running(api, tmp_path, records_database_file=url) as world:
        records = build_client(world)
        with pytest.raises(RecordsError, match="database"):
            await records.add({"executions": [EXECUTION]})
        await postgres.start()
        assert (await records.add({"executions": [EXECUTION]})).stored == 1
        await postgres.crash()
        with pytest.raises(RecordsError, match="database"):
            await records.find_executions(["u-1"])
        await postgres.start()
        assert await records.find_executions(["u-1"]) == {"u-1"}


async def test_a_client_asks_the_next_replica_if_one_is_gone(world: World) -> None:
    addresses = ["127.0.0.1:1", urlsplit(world.control).netloc]
    async with aiohttp.ClientSession() as session:
        client = RecordsClient(
            BrokerClient(session=session, signer=SIGNER, sender="gateway", addresses=lambda: addresses)
        )
        assert (await client.add({"executions": [EXECUTION]})).stored == 1
