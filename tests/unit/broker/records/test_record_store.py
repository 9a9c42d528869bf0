"""Tests of the store of records, on SQLite."""

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from mcp_exec_broker.features.records.store import InvalidRecordCursor, RecordStore, RecordsUnavailable
from mcp_exec_broker.features.records.tables import RECORD_TABLES, RowRefused, check_row

FUTURE = 1 << 62


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[RecordStore]:
    async with RecordStore.open(tmp_path / "records.sqlite") as store:
        yield store


def build_execution(uid: str = "u1", **changes: Any) -> dict[str, Any]:
    return {"uid": uid, "namespace": "apps", "name": uid, "phase": "Succeeded", "created_at": 1, **changes}


def build_usage(**changes: Any) -> dict[str, Any]:
    tokens = dict.fromkeys(("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens"), 1)
    row = {"namespace": "apps", "caller": "chat", "id": "r1", "model": "m", "turns": 1, "counted": "provider", "at": 1}
    return {**row, **tokens, **changes}


async def read_all(store: RecordStore, table: str) -> list[dict[str, Any]]:
    return (await store.iterate(table, namespaces=["apps", "other"])).rows


async def test_ids_of_clients_belong_to_their_namespace_and_caller(store: RecordStore) -> None:
    rows = [build_usage(), build_usage(caller="batch"), build_usage(namespace="other")]
    await store.add("model_usage", rows)
    assert len(await read_all(store, "model_usage")) == 3


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "a\0b"},
        {"name": "\ud800"},
        {"created_at": 1 << 63},
        {"created_at": True},
        {"cpu_seconds": float("nan")},
        {"cpu_seconds": float("inf")},
        {"cpu_seconds": 10**400},
        {"phase": None},
        {"reason": "x" * 129},
        {"language": "x" * 33},
        {"language": None},
        {"stored_at": 1},
        {"color": "red"},
        {"warm": 1},
    ],
)
async def test_a_row_that_no_database_can_store_is_refused_alone(store: RecordStore, changes: dict[str, Any]) -> None:
    result = await store.add("executions", [build_execution("u1", **changes), build_execution("u2")])
    assert result.stored == 1
    assert len(result.refused) == 1
    assert [row["uid"] for row in await read_all(store, "executions")] == ["u2"]


async def test_a_row_that_the_database_refuses_does_not_take_its_batch_along(store: RecordStore) -> None:
    async with store.engine.begin() as connection:
        await connection.exec_driver_sql(
            "CREATE TRIGGER refuse BEFORE INSERT ON executions WHEN NEW.uid = 'u1' "
            "BEGIN SELECT RAISE(ABORT, 'no u1'); END"
        )
    result = await store.add("executions", [build_execution(uid) for uid in ("u0", "u1", "u2")])
    assert (result.stored, len(result.refused)) == (2, 1)
    assert "no u1" in result.refused[0]


async def test_a_batch_that_meets_a_failing_database_is_not_stored_in_part(store: RecordStore, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "records.sqlite") as other:
        other.execute("ALTER TABLE executions RENAME TO hidden")
    other.close()
    with pytest.raises(RecordsUnavailable):
        await store.add("executions", [build_execution()])
    with sqlite3.connect(tmp_path / "records.sqlite") as other:
        other.execute("ALTER TABLE hidden RENAME TO executions")
    other.close()
    assert (await store.add("executions", [build_execution()])).stored == 1


async def test_stored_executions_are_found_by_their_uids(store: RecordStore) -> None:
    await store.add("executions", [build_execution("u1"), build_execution("u2")])
    assert await store.find_executions(["u2", "u3"]) == {"u2"}


@pytest.mark.parametrize("cursor", ["?", "bnVsbA==", "WzFd", "WyJhIiwgImIiXQ==", "x" * 5000, "é"])
async def test_a_foreign_cursor_is_refused(store: RecordStore, cursor: str) -> None:
    with pytest.raises(InvalidRecordCursor):
        await store.iterate("executions", namespaces=["apps"], cursor=cursor)


async def test_pages_of_one_caller_have_its_rows_alone(store: RecordStore) -> None:
    await store.add("executions", [build_execution(f"u{number}", caller="ab"[number % 2]) for number in range(6)])
    first = await store.iterate("executions", namespaces=["apps"], caller="b", limit=2)
    rest = await store.iterate("executions", namespaces=["apps"], caller="b", cursor=first.cursor, limit=2)
    assert [row["uid"] for row in (*first.rows, *rest.rows)] == ["u1", "u3", "u5"]
    assert (first.is_last, rest.is_last) == (False, True)


async def test_old_rows_are_deleted_in_chunks(store: RecordStore) -> None:
    await store.add("executions", [build_execution(f"u{number}") for number in range(1000)])
    await store.add("executions", [build_execution("u1000")])
    await store.add("model_usage", [build_usage()])
    assert await store.delete_older_than(0) == 0
    assert await store.delete_older_than(FUTURE) == 1002
    assert await read_all(store, "executions") == []


async def test_a_store_of_a_newer_release_is_not_written(store: RecordStore) -> None:
    async with store.engine.begin() as connection:
        await connection.exec_driver_sql("UPDATE records_schema SET version = 99")
    with pytest.raises(RecordsUnavailable, match="99"):
        await store.migrate()


async def test_a_full_batch_has_a_bound(store: RecordStore) -> None:
    with pytest.raises(ValueError, match="at most"):
        await store.add("executions", [build_execution()] * 1001)


async def test_messages_do_not_contain_values(store: RecordStore) -> None:
    error = OperationalError("INSERT", {"code": "secret"}, sqlite3.OperationalError("disk full"))
    with pytest.raises(RecordsUnavailable) as raised:
        async with store.read():
            raise error
    assert "secret" not in str(raised.value)


async def test_a_database_of_another_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="only postgresql"):
        async with RecordStore.open("mysql://host/db"):
            pass


def test_every_table_has_a_namespace_and_a_time_of_storage() -> None:
    for table in RECORD_TABLES.values():
        assert {"namespace", "stored_at"} <= set(table.columns.keys())
        with pytest.raises(RowRefused):
            check_row(table, {})
