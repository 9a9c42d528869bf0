"""Shares of namespaces in an SQLite file of records: nobody loses rows to a namespace that stores more."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from mcp_exec_broker.features.records.store import RecordStore

MIB = 1024 * 1024
VICTIM, ATTACKER = "victim", "attacker"


def build_feedback(namespace: str, number: int, *, characters: int = 900) -> dict[str, Any]:
    row = {"namespace": namespace, "caller": "chat", "id": f"r-{number}", "rating": 1, "at": 1}
    return row | {"comment": "x" * characters}


def build_call(number: int) -> dict[str, Any]:
    row = {"namespace": "agents", "server": "s", "tool": "t", "outcome": "ok", "calls": 1, "started_at": 1}
    return row | {"id": f"{number:05}", "reason": "x" * 128}


async def fill(store: RecordStore, namespace: str, count: int, **shape: Any) -> None:
    for start in range(0, count, 1000):
        rows = [build_feedback(namespace, number, **shape) for number in range(start, min(start + 1000, count))]
        assert (await store.add("feedback", rows)).stored == len(rows)


async def count_rows(store: RecordStore, table: str, namespace: str) -> int:
    count, cursor, is_last = 0, "", False
    while not is_last:
        page = await store.iterate(table, namespaces=[namespace], cursor=cursor)
        count, cursor, is_last = count + len(page.rows), page.cursor, page.is_last
    return count


async def read_sizes(store: RecordStore) -> dict[str, tuple[int, int]]:
    async with store.read() as connection:
        rows = await connection.exec_driver_sql("SELECT namespace, stored_rows, stored_bytes FROM record_sizes")
        return {row[0]: (row[1], row[2]) for row in rows}


async def test_rows_of_a_namespace_survive_twenty_times_as_many_of_another(tmp_path: Path) -> None:
    async with RecordStore.open(tmp_path / "records.sqlite", keep_bytes=8 * MIB) as store:
        await fill(store, VICTIM, 1000)
        await fill(store, ATTACKER, 20_000)
        assert await store.delete_oldest() > 10_000
        assert await count_rows(store, "feedback", VICTIM) == 1000
        assert 1000 < await count_rows(store, "feedback", ATTACKER) < 8000


async def test_a_full_file_makes_room_for_every_namespace(tmp_path: Path) -> None:
    async with RecordStore.open(tmp_path / "records.sqlite", keep_bytes=4 * MIB, spare_bytes=4 * MIB) as store:
        await fill(store, VICTIM, 500)
        await asyncio.gather(fill(store, ATTACKER, 10_000), fill(store, "other", 500))
        assert [await count_rows(store, "feedback", name) for name in (VICTIM, "other")] == [500, 500]
    assert (tmp_path / "records.sqlite").stat().st_size <= 8 * MIB


async def test_rows_with_long_texts_weigh_more_than_many_short_ones(tmp_path: Path) -> None:
    code = {"phase": "Succeeded", "created_at": 1, "namespace": ATTACKER, "code": "x" * 500_000}
    async with RecordStore.open(tmp_path / "records.sqlite", keep_bytes=4 * MIB) as store:
        await fill(store, VICTIM, 1000)
        await store.add("executions", [code | {"uid": f"u-{number}", "name": "run"} for number in range(20)])
        assert await store.delete_oldest() < 20
        assert await count_rows(store, "feedback", VICTIM) == 1000
        assert await count_rows(store, "executions", ATTACKER) > 0


async def test_the_oldest_rows_of_a_namespace_go_first(tmp_path: Path) -> None:
    async with RecordStore.open(tmp_path / "records.sqlite", keep_bytes=600_000) as store:
        for start in range(0, 3000, 500):
            await store.add("calls", [build_call(number) for number in range(start, start + 500)])
        deleted = await store.delete_oldest()
        rows = (await store.iterate("calls", namespaces=["agents"])).rows
    assert 1000 < deleted < 3000
    assert rows[0]["id"] == f"{deleted:05}"


async def test_a_file_that_keeps_less_than_it_needs_for_itself_ends_empty(tmp_path: Path) -> None:
    async with RecordStore.open(tmp_path / "records.sqlite", keep_bytes=1) as store:
        await fill(store, VICTIM, 10)
        assert await store.delete_oldest() == 10
        assert await store.delete_oldest() == 0


async def test_sizes_follow_rows_that_are_stored_twice_and_deleted(tmp_path: Path) -> None:
    async with RecordStore.open(tmp_path / "records.sqlite") as store:
        await fill(store, VICTIM, 10)
        once = await read_sizes(store)
        await fill(store, VICTIM, 10)
        assert await read_sizes(store) == once
        assert once[VICTIM][0] == 10
        await store.delete_older_than(1 << 62)
        assert await read_sizes(store) == {VICTIM: (0, 0)}


@pytest.mark.parametrize("text", ["x" * 1000, "ü" * 1000])
async def test_texts_weigh_their_bytes(tmp_path: Path, text: str) -> None:
    async with RecordStore.open(tmp_path / "records.sqlite") as store:
        await store.add("feedback", [build_feedback(VICTIM, 1) | {"comment": text}])
        [(_, size)] = (await read_sizes(store)).values()
    assert size - len(text.encode()) in range(300, 600)
