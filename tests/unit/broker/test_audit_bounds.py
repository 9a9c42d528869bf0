"""Bounds of the audit log: its size, each namespace's share, what executions have used, and the end of its writer."""

import asyncio
import sqlite3
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.support.pace import paced

from mcp_exec_api.wire.tools import ToolCallRecord
from mcp_exec_broker.core.access.quotas import CLOCK_SECONDS, KEEP_SECONDS, ExecutionUsage
from mcp_exec_broker.core.calls.audit import build_record
from mcp_exec_broker.core.errors import CallOutcome
from mcp_exec_broker.features.records.audit import writer as audit_writer
from mcp_exec_broker.features.records.audit.log import AuditLog

DEADLINE = paced(20)
MOMENT = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "audit" / "calls.db"


def call(
    id: str, *, namespace: str = "agents", uid: str = "u-1", arguments: str = "{}", **fields: Any
) -> ToolCallRecord:
    return build_record(
        id=id,
        namespace=namespace,
        execution="exec",
        uid=uid,
        pool="default",
        caller=None,
        user=None,
        server="box",
        tool="add",
        digest="",
        arguments=arguments,
        decision="Allow",
        reason="",
        **fields,
    )


async def write(audit: AuditLog, id: str, *, namespace: str = "agents", size: int = 300) -> None:
    await audit.begin_call(call(id, namespace=namespace, arguments="x" * size))
    await audit.end_call(id, CallOutcome.OK, milliseconds=1)


async def count(audit: AuditLog, namespace: str) -> int:
    return len((await audit.find_records(namespace=namespace, limit=1000))["items"])


async def fill(audit: AuditLog) -> str:
    """Begin calls until one is refused, and return why."""
    for number in range(5000):
        try:
            await audit.begin_call(call(f"c-{number}", arguments="x" * 500))
        except sqlite3.OperationalError as error:
            return str(error)
    raise AssertionError("the log is without bound")


def measure(path: Path) -> int:
    return path.stat().st_size


async def test_a_flood_of_one_namespace_displaces_no_record_of_another(path: Path) -> None:
    async with AuditLog.open(path, keep_bytes=500_000) as audit:
        for number in range(50):
            await write(audit, f"quiet-{number}", namespace="quiet")
        for number in range(1500):
            await write(audit, f"loud-{number}", namespace="loud")
        assert await audit.delete_old_records() > 500
        assert await count(audit, "quiet") == 50
        assert 0 < await count(audit, "loud") < 1000


async def test_sizes_of_namespaces_are_right_in_a_file_of_an_earlier_version(path: Path) -> None:
    async with AuditLog.open(path) as audit:
        await write(audit, "one", size=300)
        await write(audit, "two", namespace="other", size=100)
    with sqlite3.connect(path) as file:
        before = file.execute("SELECT * FROM sizes ORDER BY namespace").fetchall()
        for name in ("calls_inserted", "calls_ended", "calls_deleted"):
            file.execute(f"DROP TRIGGER {name}")
        file.execute("DROP TABLE sizes")
    file.close()
    async with AuditLog.open(path, keep_days=0) as audit:
        with sqlite3.connect(path) as file:
            assert file.execute("SELECT * FROM sizes ORDER BY namespace").fetchall() == before
        await audit.delete_old_records()
        with sqlite3.connect(path) as file:
            assert file.execute("SELECT sum(bytes) FROM sizes").fetchone() == (0,)
        file.close()


async def test_a_full_log_refuses_records_until_old_ones_are_deleted(path: Path) -> None:
    async with AuditLog.open(path, keep_bytes=200_000, spare_bytes=100_000, cleanup_seconds=1000) as audit:
        assert "full" in await fill(audit)
        for item in (await audit.find_records(limit=1000))["items"]:
            await audit.end_call(item["id"], CallOutcome.OK)
        assert await audit.delete_old_records() > 0
        await audit.begin_call(call("again"))
        assert measure(path) <= 300_000


async def test_the_write_ahead_log_is_emptied_while_records_are_written(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_writer, "_MAX_LOG_BYTES", 100_000)
    async with AuditLog.open(path, cleanup_seconds=1000) as audit:
        for number in range(300):
            await write(audit, f"c-{number}")
        assert measure(path.with_name(path.name + "-wal")) < 200_000
        assert await count(audit, "agents") == 300


async def test_many_records_are_deleted_before_the_next_interval(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_writer, "_MANY_ROWS", 100)
    async with AuditLog.open(path, keep_bytes=200_000, cleanup_seconds=1000) as audit:
        async with asyncio.timeout(DEADLINE):
            written = 0
            while await count(audit, "agents") == written < 900:
                await write(audit, f"c-{written}", size=1000)
                written += 1
        assert written < 900


async def test_what_an_execution_has_used_outlives_its_records(path: Path) -> None:
    async with AuditLog.open(path, keep_days=0) as audit:
        for number in range(3):
            await audit.begin_call(call(f"c-{number}", bytes_out=10))
        await audit.end_call("c-0", CallOutcome.OK, bytes_in=100, bytes_out=10)
        await audit.end_call("c-1", CallOutcome.DENIED, bytes_in=7, bytes_out=10)
        await audit.record_denials(call("d", outcome=CallOutcome.DENIED, calls=40, at=MOMENT, ended_at=MOMENT))
        await audit.begin_call(call("e", uid="u-2"))
        await audit.close_execution("u-2")
        await audit.close_execution("u-3", grant_seconds=40)
        await audit.record_denials(
            call("f", uid="u-3", outcome=CallOutcome.DENIED, calls=1, at=MOMENT, ended_at=MOMENT)
        )
        await audit.delete_old_records()
    async with AuditLog.open(path) as audit:
        found = {usage.uid: usage for usage in await audit.load_usage()}
        assert found["u-1"] == ExecutionUsage(
            uid="u-1",
            calls=43,
            failed=42,
            denied=41,
            bytes_in=107,
            bytes_out=30,
            keep_seconds=found["u-1"].keep_seconds,
        )
        assert (found["u-2"].calls, found["u-2"].is_closed, found["u-3"].is_closed) == (1, True, True)
        assert 40 < found["u-3"].keep_seconds <= 40 + CLOCK_SECONDS < found["u-1"].keep_seconds <= KEEP_SECONDS


async def test_what_an_execution_has_used_is_forgotten_when_no_grant_is_valid(path: Path) -> None:
    async with AuditLog.open(path) as audit:
        await write(audit, "c-1")
        with sqlite3.connect(path) as file:
            file.execute("UPDATE usage SET expires = expires - 100000")
        file.close()
        await audit.delete_old_records()
        assert await audit.load_usage() == []


async def test_a_writer_that_has_ended_fails_what_waits_and_what_comes(path: Path) -> None:
    def die(file: sqlite3.Connection) -> None:
        raise SystemExit

    log = audit_writer.AuditWriter(path, max_bytes=2**30)
    path.parent.mkdir()
    await log.open()
    assert log.failure == ""
    jobs = [log.submit(die), log.submit(lambda file: None)]
    async with asyncio.timeout(DEADLINE):
        with pytest.raises(sqlite3.OperationalError, match="has ended: SystemExit"):
            await jobs[1]
        with pytest.raises(sqlite3.OperationalError, match="has ended: SystemExit"):
            await log.submit(lambda file: None)
    assert "SystemExit" in log.failure
    await log.close()
