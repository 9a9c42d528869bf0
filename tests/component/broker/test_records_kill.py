"""Records after brokers and their database are killed: what was acknowledged is there, and nothing is there twice."""

import asyncio
import signal
import sqlite3
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.component.broker.conftest import SIGNER, TS, grant
from tests.component.broker.servers import serving, toolbox
from tests.component.broker.test_process import MODULE, broker
from tests.component.broker.test_records import EXECUTION
from tests.support.api_server import FakeApiServer
from tests.support.postgres import Postgres, find_programs
from tests.support.processes import SECONDS, Process, started
from tests.support.until import until

from mcp_exec_common.broker.client import BrokerClient
from mcp_exec_common.broker.records import RecordsClient, RecordsError

Object = dict[str, Any]
ROUNDS = 3
WRITERS = 3


@asynccontextmanager
async def calling(api: FakeApiServer, env: dict[str, str]) -> AsyncIterator[Process]:
    """Run a broker until it is ready."""
    async with started(*MODULE, env=env) as process:
        await process.says("ready")
        yield process


async def call_tool(session: aiohttp.ClientSession, env: dict[str, str], id: str) -> None:
    body = {"id": id, "tool": "box.echo", "arguments": {"value": id}}
    headers = {"Authorization": f"Bearer {grant()}"}
    url = f"http://127.0.0.1:{env['MCP_EXEC_PORT']}/v1/calls"
    async with session.post(url, json=body, headers=headers) as response:
        assert response.status == 200, await response.text()


def select(file: Path, query: str) -> list[Any]:
    with closing(sqlite3.connect(file, timeout=SECONDS)) as connection:
        return [row[0] for row in connection.execute(query)]


async def test_a_broker_that_is_killed_between_copying_a_call_and_noting_it_records_the_call_once(
    api: FakeApiServer, tmp_path: Path
) -> None:
    records, audit = tmp_path / "records.sqlite", tmp_path / "audit.sqlite"
    env = broker(tmp_path, api, MCP_EXEC_RECORDS_FILE=str(records))
    async with serving(toolbox()) as box, aiohttp.ClientSession() as session, asyncio.timeout(3 * SECONDS):
        api.put(TS, {"metadata": {"name": "box", "generation": 1}, "spec": {"url": box.url}})
        async with calling(api, env) as process:
            await until(lambda: (api.collections[TS]["box"].get("status") or {}).get("available"))
            await until(lambda: records.exists())
            with closing(sqlite3.connect(audit, timeout=SECONDS, isolation_level=None)) as lock:
                calls = await lock_before_noting(lock, session, env)
                await until(lambda: select(records, "SELECT COUNT(*) FROM calls") == [calls])
                process.tell(signal.SIGKILL)
                await process.ended()
        assert select(audit, "SELECT copied FROM calls ORDER BY number")[-1] == 0
        async with calling(api, env):
            await until(lambda: set(select(audit, "SELECT copied FROM calls")) == {1})
        assert select(records, "SELECT COUNT(*) FROM calls") == [calls]


async def lock_before_noting(lock: sqlite3.Connection, session: aiohttp.ClientSession, env: dict[str, str]) -> int:
    """Call a tool and lock the audit log while the broker can copy the call, and cannot note it.

    Returns the number of calls: one that was noted before the lock is followed by another one.
    """
    for number in range(1, 6):
        await call_tool(session, env, str(number))
        ended = "SELECT COUNT(*) FROM calls WHERE ended IS NOT NULL"
        await until(lambda ended=ended, number=number: lock.execute(ended).fetchone() == (number,))  # type: ignore[misc]
        lock.execute("BEGIN IMMEDIATE")
        if lock.execute("SELECT copied FROM calls ORDER BY number DESC").fetchone() == (0,):
            return number
        lock.execute("ROLLBACK")
    raise AssertionError("each call was noted at once")


async def test_two_brokers_on_one_postgresql_lose_no_acknowledged_row_through_chaos(
    api: FakeApiServer, tmp_path: Path
) -> None:
    if find_programs() is None:
        pytest.skip("needs PostgreSQL of Debian: install the package postgresql")
    environments = []
    async with Postgres.running() as postgres, aiohttp.ClientSession() as session, AsyncExitStack() as stack:
        for name in ("one", "two"):
            (folder := tmp_path / name).mkdir()
            url = folder / "url"
            url.write_text(postgres.url)
            environments.append(broker(folder, api, MCP_EXEC_RECORDS_DATABASE_FILE=str(url)))
        addresses = [f"127.0.0.1:{env['MCP_EXEC_CONTROL_PORT']}" for env in environments]
        clients = [
            RecordsClient(
                BrokerClient(session=session, signer=SIGNER, sender="operator", addresses=lambda each=order: each)
            )
            for order in (addresses, addresses[::-1])
        ]
        acknowledged: set[str] = set()
        is_over = asyncio.Event()

        async def write(number: int) -> None:
            """Send rows, each as often as it takes, and every second one once more through the other broker."""
            for count in range(100_000):
                if is_over.is_set():
                    return
                uid = f"u-{number}-{count}"
                while not await send(clients[number % 2], uid):
                    pass
                acknowledged.add(uid)
                if count % 2:
                    await send(clients[1 - number % 2], uid)

        async with asyncio.timeout(6 * SECONDS):
            processes = [await stack.enter_async_context(calling(api, env)) for env in environments]
            writers = [asyncio.create_task(write(number)) for number in range(WRITERS)]
            for round in range(ROUNDS):
                enough = len(acknowledged) + 20
                await until(lambda enough=enough: len(acknowledged) >= enough)  # type: ignore[misc]
                if round == 1:
                    await postgres.crash()
                    await postgres.start()
                else:
                    place = round // 2
                    processes[place].tell(signal.SIGKILL)
                    await processes[place].ended()
                    processes[place] = await stack.enter_async_context(calling(api, environments[place]))
            is_over.set()
            await asyncio.gather(*writers)
            found = await read_uids(clients[0])
    assert len(found) == len(set(found))
    assert acknowledged == set(found)


async def read_uids(client: RecordsClient) -> list[str]:
    """Return the uids of all executions that have a record."""
    found: list[str] = []
    cursor, is_last = "", False
    while not is_last:
        page = await client.read_rows("executions", namespace="agents", cursor=cursor)
        found += [row["uid"] for row in page.items]
        cursor, is_last = page.cursor, page.is_last
    return found


async def send(client: RecordsClient, uid: str) -> bool:
    """Send a row, and return whether it was acknowledged."""
    try:
        return (await client.add({"executions": [EXECUTION | {"uid": uid}]})).stored == 1
    except RecordsError:
        return False
