"""The audit log: records, queries, deletion, and writes that never block the event loop."""

import asyncio
import json
import logging
import sqlite3
from collections.abc import Iterator
from contextlib import AsyncExitStack, closing, contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from tests.support.pace import paced

from mcp_exec_api.wire.tools import ToolCallRecord
from mcp_exec_broker.core.calls.audit import audit_lines, build_record, compute_digest, write_to_stdout
from mcp_exec_broker.core.errors import CallOutcome
from mcp_exec_broker.features.records.audit.file import insert_calls
from mcp_exec_broker.features.records.audit.log import AuditLog
from mcp_exec_broker.features.records.audit.writer import AuditWriter
from mcp_exec_broker.features.records.tables import AUDIT

DEADLINE = paced(20)


def call(id: str, **fields: Any) -> ToolCallRecord:
    known: dict[str, Any] = {
        "namespace": "agents",
        "execution": "exec-1",
        "uid": "u-1",
        "pool": "default",
        "caller": "key:ci",
        "user": None,
        "server": "github",
        "tool": "create_issue",
        "digest": compute_digest({"a": 1}),
        "arguments": '{"a": 1}',
        "decision": "Allow",
        "reason": "the policy's default",
    }
    return build_record(id=id, **known | fields)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "audit" / "calls.db"


async def test_a_call_has_one_record_from_its_beginning_to_its_end(path: Path) -> None:
    async with AuditLog.open(path) as audit:
        await audit.begin_call(call("c-1"))
        begun = (await audit.find_records())["items"][0]
        assert (begun["outcome"], begun["endedAt"], begun["digest"]) == (None, None, compute_digest({"a": 1}))
        await audit.end_call(
            "c-1", CallOutcome.OK, milliseconds=1.5, bytes_in=10, bytes_out=20, approval="a-1", approved_by="jo"
        )
        found = await audit.find_records()
        assert found["next"] is None
        record = found["items"][0]
        assert record == begun | {
            "outcome": "ok",
            "endedAt": record["endedAt"],
            "durationMs": 1.5,
            "bytesIn": 10,
            "bytesOut": 20,
            "approval": "a-1",
            "approvedBy": "jo",
        }
        await audit.end_call("c-1", CallOutcome.ERROR, milliseconds=9)
        assert (await audit.find_records())["items"] == [record]


async def test_a_record_can_t_be_written_twice(path: Path) -> None:
    async with AuditLog.open(path) as audit:
        await audit.begin_call(call("c-1"))
        with pytest.raises(ValueError, match="c-1"):
            await audit.begin_call(call("c-1"))


async def test_records_are_found_by_what_they_say_newest_first_page_by_page(path: Path) -> None:
    async with AuditLog.open(path) as audit:
        for number in range(5):
            await audit.begin_call(call(f"c-{number}", execution=f"exec-{number % 2}", tool=f"t.{number}"))
            await audit.end_call(f"c-{number}", CallOutcome.OK if number else CallOutcome.DENIED, milliseconds=1)
        await audit.begin_call(call("other", namespace="else", server="files", caller="bob"))

        async def ids(**filters: Any) -> list[str]:
            return [item["id"] for item in (await audit.find_records(**filters))["items"]]

        assert await ids(namespace="agents") == ["c-4", "c-3", "c-2", "c-1", "c-0"]
        assert await ids(execution="exec-1", namespace="agents") == ["other", "c-3", "c-1"][1:]
        assert await ids(tool="github.t.3") == ["c-3"]
        assert await ids(tool="files") == ["other"]
        assert await ids(caller="bob") == ["other"]
        assert await ids(outcome="denied") == ["c-0"]
        at = (await audit.find_records(tool="github.t.2"))["items"][0]["at"]
        assert await ids(since=at, namespace="agents") == ["c-4", "c-3", "c-2"]
        assert await ids(until=at) == ["c-1", "c-0"]
        page = await audit.find_records(limit=4)
        assert [item["id"] for item in page["items"]] == ["other", "c-4", "c-3", "c-2"]
        assert await ids(limit=4, cursor=page["next"]) == ["c-1", "c-0"]


@pytest.mark.parametrize(
    ("filters", "wrong"),
    [({"outcome": "good"}, "good"), ({"since": "yesterday"}, "since"),
     ({"since": "0001-01-01T00:00:00+14:00"}, "since"), ({"until": "x"}, "until"),
     ({"cursor": "-1"}, "cursor")],
)  # fmt: skip
async def test_a_filter_that_is_no_good_is_refused(path: Path, filters: dict[str, str], wrong: str) -> None:
    async with AuditLog.open(path) as audit:
        with pytest.raises(ValueError, match=wrong):
            await audit.find_records(**filters)


async def test_each_record_is_two_lines_of_json(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "mcp_exec.audit")
    async with AuditLog.open(path) as audit:
        await audit.begin_call(call("c-1", tool="half \ud800"))
        await audit.end_call("c-1", CallOutcome.ERROR, milliseconds=1, error="x" * 5000)
    first, second = (json.loads(record.message) for record in caplog.records if record.name == "mcp_exec.audit")
    assert (first["event"], first["id"], first["uid"], first["tool"]) == ("tool call started", "c-1", "u-1", "half ?")
    assert (second["event"], second["outcome"], len(second["error"])) == ("tool call ended", "error", 500)


async def test_the_file_of_an_earlier_version_is_brought_up_to_date(path: Path) -> None:
    async with AuditLog.open(path) as audit:
        await audit.begin_call(call("c-1"))
    with sqlite3.connect(path) as file:
        for name in ("calls_inserted", "calls_ended", "calls_deleted"):
            file.execute(f"DROP TRIGGER {name}")
        file.execute("ALTER TABLE calls DROP COLUMN calls")
    file.close()
    async with AuditLog.open(path) as audit:
        (found,) = (await audit.find_records())["items"]
        assert (found["id"], found["calls"]) == ("c-1", 1)


FILE_OF_2025 = """
CREATE TABLE calls (
  number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, at TEXT NOT NULL, namespace TEXT NOT NULL,
  execution TEXT NOT NULL, uid TEXT NOT NULL, pool TEXT NOT NULL, caller TEXT, user TEXT, server TEXT NOT NULL,
  tool TEXT NOT NULL, digest TEXT NOT NULL, arguments TEXT NOT NULL, decision TEXT NOT NULL, reason TEXT NOT NULL,
  approval TEXT, approved_by TEXT, ended TEXT, outcome TEXT, error TEXT NOT NULL DEFAULT '', milliseconds REAL,
  bytes_in INTEGER NOT NULL DEFAULT 0, bytes_out INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX calls_execution ON calls (namespace, execution, number);
CREATE INDEX calls_open ON calls (number) WHERE ended IS NULL;
INSERT INTO calls (id, at, namespace, execution, uid, pool, server, tool, digest, arguments, decision, reason, ended,
  outcome, milliseconds) VALUES
  ('ended', '2026-01-02T03:04:05.000000Z', 'agents', 'exec', 'u', 'default', 'box', 'add', '', '{}', 'Allow', '',
   '2026-01-02T03:04:06.000000Z', 'ok', 1.5),
  ('open', '2026-01-02T03:04:05.000000Z', 'agents', 'exec', 'u', 'default', 'box', 'add', '', '{}', 'Allow', '',
   NULL, NULL, NULL);
"""


async def test_a_process_without_the_lock_has_time_to_end_its_calls(path: Path) -> None:
    async with AuditLog.open(path) as audit:
        for id in ("ends", "is lost"):
            await audit.begin_call(call(id))
    path.with_name(f"{path.name}.lock").unlink()
    async with AuditLog.open(path, grace_seconds=DEADLINE) as audit:
        assert (await audit.find_records(outcome="unfinished"))["items"] == []
        await audit.end_call("ends", CallOutcome.OK)
    async with AuditLog.open(path, grace_seconds=DEADLINE) as audit:
        assert [item["id"] for item in (await audit.find_records(outcome="unfinished"))["items"]] == ["is lost"]


async def test_no_record_of_the_first_release_is_lost_and_all_are_copied_to_the_records(path: Path) -> None:
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as file:
        file.executescript(FILE_OF_2025)
    async with AuditLog.open(path, keep_days=10_000) as audit:
        await audit.begin_call(call("new"))
        found = {item["id"]: item for item in (await audit.find_records())["items"]}
        assert {id: item["outcome"] for id, item in found.items()} == {"ended": "ok", "open": "unfinished", "new": None}
        assert (found["ended"]["durationMs"], found["ended"]["calls"], found["ended"]["source"]) == (1.5, 1, "code")
        assert [row["id"] for row in await audit.read_uncopied(10)] == ["ended", "open"]


async def test_calls_of_the_process_before_end_themselves_or_after_it(path: Path) -> None:
    """In a rollout, it may write for minutes after the next one has opened the file."""

    async def outcomes(audit: AuditLog) -> dict[str, str | None]:
        return {item["id"]: item["outcome"] for item in (await audit.find_records())["items"]}

    async with AsyncExitStack() as stack:
        before = await stack.enter_async_context(AuditLog.open(path))
        for id in ("ends", "is lost"):
            await before.begin_call(call(id))
        async with AuditLog.open(path, cleanup_seconds=0.01) as audit:
            for id in ("goes on", "is over"):
                await audit.begin_call(call(id))
            await audit.end_call("is over", CallOutcome.OK)
            assert await audit.end_unfinished() == 0
            await before.begin_call(call("comes late"))
            await before.end_call("ends", CallOutcome.OK)
            in_progress = dict.fromkeys(("is lost", "goes on", "comes late"))
            assert await outcomes(audit) == {"ends": "ok", "is over": "ok", **in_progress}
            await stack.aclose()
            async with asyncio.timeout(DEADLINE):
                while len((await audit.find_records(outcome="unfinished"))["items"]) < 2:
                    pass
            await audit.begin_call(call("is new"))
            ended = {"ends": "ok", "is over": "ok", "is lost": "unfinished", "comes late": "unfinished"}
            assert await outcomes(audit) == {**ended, "goes on": None, "is new": None}


def test_the_file_has_the_fields_of_a_record() -> None:
    assert {*AUDIT.columns.keys()} - {"number", "copied"} == ToolCallRecord.model_fields.keys()


async def test_old_records_are_forgotten_but_not_of_calls_under_way(path: Path) -> None:
    async with AuditLog.open(path, keep_days=0) as audit:
        for number in range(500):
            await audit.begin_call(call(f"c-{number}"))
            if number != 3:
                await audit.end_call(f"c-{number}", CallOutcome.OK, milliseconds=1)
        assert await audit.delete_old_records() == 499
        assert [item["id"] for item in (await audit.find_records())["items"]] == ["c-3"]


async def test_the_oldest_records_are_forgotten_where_they_are_too_many_bytes(path: Path) -> None:
    async with AuditLog.open(path, keep_bytes=300_000) as audit:
        for number in range(2000):
            await audit.begin_call(call(f"c-{number}", arguments="x" * 300))
            await audit.end_call(f"c-{number}", CallOutcome.OK, milliseconds=1)
        assert await audit.delete_old_records() > 500
        left = (await audit.find_records(limit=1000))["items"]
        assert left[0]["id"] == "c-1999"
        assert 0 < len(left) < 1000
        assert await audit.delete_old_records() == 0


async def test_what_old_calls_under_way_hide_is_forgotten_when_they_end(path: Path) -> None:
    async with AuditLog.open(path, keep_days=0) as audit:
        for number in range(300):
            await audit.begin_call(call(f"open-{number}"))
        await audit.begin_call(call("c-1"))
        await audit.end_call("c-1", CallOutcome.OK, milliseconds=1)
        await audit.delete_old_records()
        for number in range(300):
            await audit.end_call(f"open-{number}", CallOutcome.OK, milliseconds=1)
        await audit.delete_old_records()
        assert (await audit.find_records())["items"] == []


def test_the_digest_is_of_the_value_and_not_of_its_text() -> None:
    assert compute_digest({"a": 1, "b": [1]}) == compute_digest({"b": [1], "a": 1})
    assert compute_digest({"a": 1}) != compute_digest({"a": 2})
    assert compute_digest("\ud800").startswith("sha256:")


async def test_the_lines_go_to_standard_output_alone(capsys: pytest.CaptureFixture[str], path: Path) -> None:
    before = audit_lines.handlers, audit_lines.level, audit_lines.propagate
    try:
        write_to_stdout()
        async with AuditLog.open(path) as audit:
            await audit.begin_call(call("c-1"))
    finally:
        audit_lines.handlers, audit_lines.propagate = before[0], before[2]
        audit_lines.setLevel(before[1])
    out, err = capsys.readouterr()
    assert json.loads(out)["id"] == "c-1"
    assert err == ""


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the write lock of the file, as a slow disk would."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


async def test_a_write_that_waits_blocks_neither_the_loop_nor_the_order(path: Path) -> None:
    async with AuditLog.open(path) as audit:
        with locked(path):
            begun = [audit.begin_call(call(f"c-{number}")) for number in range(300)]
            ended = audit.end_call("c-0", CallOutcome.OK, milliseconds=1)
            for _ in range(100):
                await asyncio.sleep(0)
            assert not any(future.done() for future in [*begun, ended])
        async with asyncio.timeout(DEADLINE):
            await asyncio.gather(*begun)
            found = (await audit.find_records(limit=1000))["items"]
        assert [record["id"] for record in reversed(found)] == [f"c-{number}" for number in range(300)]
        assert found[-1]["outcome"] == "ok"


async def test_one_bad_record_of_a_batch_fails_alone(path: Path) -> None:
    async with AuditLog.open(path) as audit:
        with locked(path):
            waiting = audit.begin_call(call("c-0"))
            batch = [audit.begin_call(call(id)) for id in ("c-1", "c-1", "c-2")]
        await waiting
        results = await asyncio.gather(*batch, return_exceptions=True)
        assert [type(result) for result in results] == [type(None), ValueError, type(None)]
        assert len((await audit.find_records())["items"]) == 3


async def test_a_batch_that_cannot_be_written_is_not_tried_again_row_by_row(path: Path) -> None:
    path.parent.mkdir()
    row = dict(call("")) | {"at": ""}
    writer, statements, proceed = AuditWriter(path, max_bytes=2**30), list[str](), Event()
    await writer.open()
    await writer.submit(
        lambda file: file.execute("PRAGMA busy_timeout = 0") and file.set_trace_callback(statements.append)
    )
    with locked(path):
        writer.submit(lambda file: proceed.wait(DEADLINE))
        batch = [
            writer.submit_row(insert_calls, row | {"id": f"c-{number}"}, on_written=lambda: None)
            for number in range(10)
        ]
        proceed.set()
        results = await asyncio.gather(*batch, return_exceptions=True)
    assert [str(result) for result in results] == ["database is locked"] * 10
    assert len([statement for statement in statements if statement.startswith("INSERT")]) <= 2
    await writer.close()


async def test_a_cancelled_call_leaves_its_record(path: Path) -> None:
    async with AuditLog.open(path) as audit:
        audit.begin_call(call("c-1")).cancel()
        assert [record["id"] for record in (await audit.find_records())["items"]] == ["c-1"]


async def test_closing_writes_what_waits(path: Path) -> None:
    async with AuditLog.open(path) as audit:
        for number in range(500):
            audit.begin_call(call(f"c-{number}"))
    with pytest.raises(sqlite3.OperationalError, match="closed"):
        await audit.begin_call(call("late"))
    async with AuditLog.open(path) as audit:
        assert len((await audit.find_records(limit=1000, outcome="unfinished"))["items"]) == 500


async def test_writes_are_bounded_in_number_and_closing_in_time(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path.parent.mkdir()
    writer = AuditWriter(path, max_bytes=2**30, max_pending=2)
    await writer.open()
    with locked(path):
        stuck = writer.submit(lambda file: file.execute("DELETE FROM calls"))
        refused: asyncio.Future[object] | None = None
        while refused is None:
            future = writer.submit(lambda file: None)
            refused = future if future.done() else None
        with pytest.raises(sqlite3.OperationalError, match="2 writes to the audit log wait already"):
            await refused
        await writer.close(timeout_seconds=0)
        assert "the audit log was not closed" in caplog.text
    async with asyncio.timeout(DEADLINE):
        await stuck
