"""Records of calls after the process is killed."""

import asyncio
import json
import os
import signal
import sqlite3
import sys
from pathlib import Path
from typing import Any

from tests.support.pace import paced

from mcp_exec_broker.features.records.audit.log import AuditLog

DEADLINE = paced(20)

KILLED = """
import asyncio, sys
from pathlib import Path
from mcp_exec_broker.features.records.audit.log import AuditLog
from mcp_exec_broker.core.calls.audit import build_record, write_to_stdout
from mcp_exec_broker.core.errors import CallOutcome

async def main():
    write_to_stdout()
    async with AuditLog.open(Path(sys.argv[1])) as audit:
        for number in range(1_000_000):
            fields = dict.fromkeys(("namespace", "execution", "uid", "pool", "server", "tool", "digest", "arguments", "decision", "reason"), "x")
            await audit.begin_call(build_record(id=f"c-{number}", **fields))
            if number % 10:
                await audit.end_call(f"c-{number}", CallOutcome.OK, milliseconds=1)

asyncio.run(main())
"""  # noqa: E501


async def test_a_broker_that_is_killed_leaves_no_call_without_a_record(tmp_path: Path) -> None:
    path = tmp_path / "audit" / "calls.db"
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path)}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", KILLED, str(path), stdout=asyncio.subprocess.PIPE, env=env
    )
    assert process.stdout is not None
    told: list[dict[str, Any]] = []
    async with asyncio.timeout(DEADLINE):
        while len(told) < 500:
            told.append(json.loads(await process.stdout.readline()))
    process.send_signal(signal.SIGKILL)
    rest, _ = await process.communicate()
    told += [json.loads(line) for line in rest.splitlines() if line.endswith(b"}")]
    begun = {line["id"] for line in told if line["event"] == "tool call started"}
    ended = {line["id"] for line in told if line["event"] == "tool call ended"}

    async with AuditLog.open(path) as audit:
        records: dict[str, Any] = {}
        page: dict[str, Any] = {"next": ""}
        while page["next"] is not None:
            page = await audit.find_records(limit=1000, cursor=page["next"])
            records |= {item["id"]: item for item in page["items"]}
    assert begun <= records.keys()
    assert {id for id in ended if records[id]["outcome"] != "ok"} == set()
    unfinished = {id for id, item in records.items() if item["outcome"] == "unfinished"}
    assert {id for id in begun if int(id[2:]) % 10 == 0} <= unfinished
    assert all(item["endedAt"] for item in records.values())
    with sqlite3.connect(path) as file:
        assert file.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    file.close()
