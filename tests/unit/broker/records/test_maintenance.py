"""Tests of copying calls from the audit log to the records, and of deleting old records."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from mcp_exec_api.wire.tools import ToolCallRecord
from mcp_exec_broker.core.calls.audit import build_record
from mcp_exec_broker.core.errors import CallOutcome
from mcp_exec_broker.features.records.audit.log import AuditLog
from mcp_exec_broker.features.records.maintenance import RecordMaintenance, RecordMetrics
from mcp_exec_broker.features.records.store import RecordStore, RecordsUnavailable
from mcp_exec_broker.features.records.tables import CALLS, check_row

Object = dict[str, Any]


def call(**changes: Any) -> ToolCallRecord:
    fields: Object = dict.fromkeys(("execution", "pool", "digest", "arguments", "decision", "reason"), "x")
    fields |= {"id": "c-1", "namespace": "agents", "uid": "u-1", "caller": "team-a", "user": "jane"}
    return build_record(**(fields | {"server": "box", "tool": "add"} | changes))


@pytest.fixture
async def audit(tmp_path: Path) -> AsyncIterator[AuditLog]:
    async with AuditLog.open(tmp_path / "audit.sqlite") as log:
        yield log


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[RecordStore]:
    async with RecordStore.open(tmp_path / "records.sqlite") as opened:
        yield opened


def build_maintenance(store: RecordStore, audit: AuditLog) -> RecordMaintenance:
    return RecordMaintenance(store=store, calls=audit, keep_days=90, metrics=RecordMetrics())


@pytest.fixture
def maintenance(store: RecordStore, audit: AuditLog) -> RecordMaintenance:
    return build_maintenance(store, audit)


async def read_calls(store: RecordStore) -> list[Object]:
    return (await store.iterate("calls", namespaces=["agents"])).rows


async def test_an_ended_call_becomes_one_record(
    audit: AuditLog, store: RecordStore, maintenance: RecordMaintenance
) -> None:
    await audit.begin_call(call(bytes_out=20))
    await audit.end_call("c-1", CallOutcome.OK, milliseconds=12.4, bytes_in=100, bytes_out=20)
    assert [await maintenance.copy_calls(), await maintenance.copy_calls()] == [1, 0]
    [row] = await read_calls(store)
    shown = {"execution_uid", "caller", "user", "mode", "server", "tool", "outcome", "calls", "duration_ms"}
    assert {name: row[name] for name in shown} == {
        "execution_uid": "u-1",
        "caller": "team-a",
        "user": "jane",
        "mode": "code",
        "server": "box",
        "tool": "add",
        "outcome": "ok",
        "calls": 1,
        "duration_ms": 12,
    }
    assert (row["argument_bytes"], row["result_bytes"]) == (20, 100)
    assert abs(row["started_at"] - row["stored_at"]) < 60_000_000


async def test_a_call_in_progress_waits_for_its_end(
    audit: AuditLog, store: RecordStore, maintenance: RecordMaintenance
) -> None:
    await audit.begin_call(call())
    assert await maintenance.copy_calls() == 0
    await audit.end_call("c-1", CallOutcome.ERROR, error="no such row")
    assert await maintenance.copy_calls() == 1
    assert (await read_calls(store))[0]["reason"] == "no such row"


async def test_a_direct_call_has_no_execution(
    audit: AuditLog, store: RecordStore, maintenance: RecordMaintenance
) -> None:
    await audit.begin_call(call(source="direct", uid="", conversation="conv-1"))
    await audit.end_call("c-1", CallOutcome.OK)
    await maintenance.copy_calls()
    [row] = await read_calls(store)
    assert (row["execution_uid"], row["mode"], row["conversation"]) == (None, "direct", "conv-1")


async def test_denied_calls_are_counted_in_one_record(
    audit: AuditLog, store: RecordStore, maintenance: RecordMaintenance
) -> None:
    moment = datetime(2026, 1, 2, tzinfo=UTC)
    await audit.record_denials(call(outcome=CallOutcome.DENIED, calls=7, at=moment, ended_at=moment, error="no"))
    await maintenance.copy_calls()
    [row] = await read_calls(store)
    assert (row["calls"], row["outcome"]) == (7, "denied")


async def test_calls_wait_while_the_database_fails_and_none_is_lost(
    audit: AuditLog, store: RecordStore, maintenance: RecordMaintenance, monkeypatch: pytest.MonkeyPatch
) -> None:
    await audit.begin_call(call())
    await audit.end_call("c-1", CallOutcome.OK)

    async def fail(table: str, rows: object) -> None:
        raise RecordsUnavailable("disk full")

    with monkeypatch.context() as broken:
        broken.setattr(store, "add", fail)
        with pytest.raises(RecordsUnavailable):
            await maintenance.copy_calls()
    assert await maintenance.copy_calls() == 1
    assert len(await read_calls(store)) == 1


async def test_a_call_that_was_copied_but_not_marked_is_recorded_once(
    audit: AuditLog, store: RecordStore, maintenance: RecordMaintenance, monkeypatch: pytest.MonkeyPatch
) -> None:
    await audit.begin_call(call())
    await audit.end_call("c-1", CallOutcome.OK)

    async def forget(numbers: object) -> None:
        pass

    with monkeypatch.context() as killed:
        killed.setattr(audit, "mark_copied", forget)
        await maintenance.copy_calls()
    assert await maintenance.copy_calls() == 1
    assert len(await read_calls(store)) == 1


async def test_hostile_names_of_a_call_are_stored_in_bounds(
    audit: AuditLog, store: RecordStore, maintenance: RecordMaintenance
) -> None:
    await audit.begin_call(call(tool="t\0" * 1000, caller="c" * 5000))
    await audit.end_call("c-1", CallOutcome.ERROR, error="\0" * 500)
    assert await maintenance.copy_calls() == 1
    [row] = await read_calls(store)
    assert (len(row["tool"]), len(row["caller"]), len(row["reason"])) == (253, 253, 128)


def test_a_call_needs_what_its_record_needs() -> None:
    assert check_row(CALLS, {"id": "1", "namespace": "n", "server": "s", "tool": "t", "outcome": "ok", "calls": 1,
                             "started_at": 1})["reason"] is None  # fmt: skip
