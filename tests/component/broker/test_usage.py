"""Sums of usage by group, from the records of a running broker on SQLite and on PostgreSQL."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.component.broker.conftest import World, running
from tests.component.broker.test_records import build_client
from tests.support.api_server import FakeApiServer
from tests.support.postgres import Postgres, find_programs

from mcp_exec_api.wire.usage import UsageGrouping
from mcp_exec_common.broker.records import RecordsClient, RecordsError
from mcp_exec_common.usage import MeasuredConversations, MeasuredUsage

Object = dict[str, Any]
DAY = 24 * 3600 * 1_000_000
NUMBERS = itertools.count()

EXECUTION: Object = {
    "uid": "u-1",
    "namespace": "agents",
    "name": "run-1",
    "phase": "Succeeded",
    "caller": "team-a",
    "use_case": "filtering",
    "created_at": DAY,
    "sandbox_seconds": 1.5,
    "cpu_seconds": 0.25,
    "tool_calls": 2,
    "tokens_code": 40,
    "tokens_returned": 10,
    "tokens_kept": 1000,
}
CALL: Object = {
    "id": "c-1",
    "execution_uid": "u-1",
    "namespace": "agents",
    "caller": "team-a",
    "mode": "code",
    "server": "sheets",
    "tool": "read",
    "outcome": "ok",
    "calls": 2,
    "started_at": DAY,
    "argument_bytes": 80,
    "result_bytes": 4000,
}
REPORT: Object = {
    "namespace": "agents",
    "caller": "team-a",
    "id": "task-1",
    "use_case": "filtering",
    "mode": "code",
    "rollout": "code-mode",
    "arm": "code",
    "model": "claude-1",
    "turns": 2,
    "input_tokens": 100,
    "output_tokens": 20,
    "cache_read_tokens": 7,
    "cache_write_tokens": 3,
    "counted": "provider",
    "success": True,
    "latency_ms": 500,
    "at": DAY,
}
ROWS: dict[str, list[Object]] = {
    "executions": [
        EXECUTION,
        EXECUTION | {"uid": "u-2", "phase": "Failed", "tokens_kept": 10, "sandbox_seconds": None},
        EXECUTION | {"uid": "u-3", "tool_calls": None, "tokens_kept": None, "use_case": None, "caller": "team-b"},
        EXECUTION | {"uid": "u-4", "namespace": "others"},
        EXECUTION | {"uid": "u-5", "created_at": 9 * DAY},
    ],
    "calls": [
        CALL,
        CALL | {"id": "c-2", "execution_uid": None, "mode": "direct", "outcome": "denied", "calls": 1, "tool": "list"},
        CALL | {"id": "c-3", "namespace": "others"},
    ],
    "model_usage": [
        REPORT,
        REPORT | {"id": "task-2", "mode": "direct", "arm": "direct", "input_tokens": 900, "success": False},
        REPORT | {"id": "task-3", "at": 2 * DAY, "model": "claude-2", "success": None, "latency_ms": None},
        REPORT | {"id": "task-4", "namespace": "others"},
    ],
}


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def server(request: pytest.FixtureRequest) -> Iterator[Postgres | None]:
    """A server for all tests, which have a database each; None stands for SQLite."""
    if request.param == "sqlite":
        yield None
        return
    if find_programs() is None:
        pytest.skip("needs PostgreSQL of Debian: install the package postgresql")
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        stack = AsyncExitStack()
        yield runner.run(stack.enter_async_context(Postgres.running()))
        runner.run(stack.aclose())


@pytest.fixture
async def records(server: Postgres | None, api: FakeApiServer, tmp_path: Path) -> AsyncIterator[RecordsClient]:
    settings = {"records_file": tmp_path / "records.sqlite"}
    if server is not None:
        settings = {"records_database_file": tmp_path / "url"}
        (tmp_path / "url").write_text(await server.create_database(f"usage_{next(NUMBERS)}"))
    async with running(api, tmp_path, **settings) as world:
        yield await fill(world)


async def fill(world: World) -> RecordsClient:
    client = build_client(world)
    for table, rows in ROWS.items():
        assert (await client.add({table: rows})).refused == []
    return client


async def measure(records: RecordsClient, by: UsageGrouping, *, until: int = 8 * DAY) -> MeasuredUsage:
    return await records.measure_usage(namespace="agents", by=by, since=DAY, until=until)


async def test_usage_is_summed_by_group_from_the_namespaces_rows_of_the_time(records: RecordsClient) -> None:
    found = await measure(records, "use-case")
    assert found.is_complete
    filtering, none = sorted(found.executions, key=lambda row: -len(row.key))
    counts = (filtering.executions, filtering.failed, filtering.sandbox_seconds, filtering.cpu_seconds)
    assert counts == (2, 1, 1.5, 0.5)
    tokens = (filtering.with_calls, filtering.calls, filtering.tokens_code, filtering.tokens_returned)
    assert tokens == (2, 4, 80, 20)
    assert (filtering.tokens_kept, filtering.tokens_saved, filtering.tokens_lost) == (1010, 960, 30)
    assert (none.key, none.executions, none.with_calls, none.tokens_code) == ("", 1, 0, 0)

    # calls of code have the use case of their execution
    assert {(row.key, row.mode, row.calls, row.failed) for row in found.calls} == {
        ("filtering", "code", 2, 0),
        ("", "direct", 1, 1),
    }
    reports = {(row.mode, row.model): row for row in found.tokens}
    assert {key: row.input_tokens for key, row in reports.items()} == {
        ("code", "claude-1"): 100,
        ("code", "claude-2"): 100,
        ("direct", "claude-1"): 900,
    }
    one = reports["direct", "claude-1"]
    assert (one.reports, one.turns, one.cache_read_tokens, one.cache_write_tokens) == (1, 2, 7, 3)
    assert (one.succeeded, one.failed, one.timed, one.latency_ms, one.definition_tokens) == (0, 1, 1, 500, 0)
    unknown = reports["code", "claude-2"]
    assert (unknown.succeeded, unknown.failed, unknown.timed, unknown.latency_ms) == (0, 0, 0, 0)


async def test_memory_counts_for_the_time_of_the_sandbox_and_only_if_it_was_measured(records: RecordsClient) -> None:
    half = 2**29
    rows = [
        EXECUTION | {"uid": "m-1", "use_case": "measured", "sandbox_seconds": 8.0, "peak_memory_bytes": half},
        EXECUTION | {"uid": "m-2", "use_case": "measured", "sandbox_seconds": 2.0, "peak_memory_bytes": 4 * half},
        EXECUTION | {"uid": "m-3", "use_case": "measured"},
        EXECUTION | {"uid": "m-4", "use_case": "killed", "cpu_seconds": None, "peak_memory_bytes": half},
        EXECUTION | {"uid": "m-5", "use_case": "no sandbox", "cpu_seconds": None, "sandbox_seconds": None},
    ]
    assert (await records.add({"executions": rows})).refused == []
    found = {row.key: (row.gib_seconds, row.unmeasured) for row in (await measure(records, "use-case")).executions}
    expected = {"measured": (8.0, 1), "killed": (None, 1), "no sandbox": (None, 0)}
    assert {key: found[key] for key in expected} == expected


async def test_seconds_of_sandboxes_are_told_by_pool(records: RecordsClient) -> None:
    rows = [EXECUTION | {"uid": f"p-{pool}", "pool": pool, "sandbox_seconds": 8.0} for pool in ("gpu", "default")]
    assert (await records.add({"executions": [*rows, rows[0] | {"uid": "p-3"}]})).refused == []
    found = {row.key: row.pool_seconds for row in (await measure(records, "use-case")).executions}
    assert found == {"filtering": {"gpu": 16.0, "default": 8.0}, "": {}}


@pytest.mark.parametrize(
    ("by", "tokens", "executions", "calls"),
    [
        ("caller", {"team-a"}, {"team-a", "team-b"}, {"team-a"}),
        ("tool", set(), set(), {"sheets.read", "sheets.list"}),
        ("arm", {"code-mode/code", "code-mode/direct"}, {""}, {""}),
        ("day", {"1970-01-02", "1970-01-03"}, {"1970-01-02"}, {"1970-01-02"}),
        ("model", {"claude-1", "claude-2"}, set(), set()),
    ],
)
async def test_usage_is_grouped_by(
    records: RecordsClient, by: UsageGrouping, tokens: set[str], executions: set[str], calls: set[str]
) -> None:
    found = await measure(records, by)
    rows = (found.tokens, found.executions, found.calls)
    assert [{row.key for row in each} for each in rows] == [tokens, executions, calls]  # type: ignore[attr-defined]


async def test_conversations_are_counted_with_and_without_code(records: RecordsClient) -> None:
    assert (await measure(records, "day")).conversations == MeasuredConversations(total=0, with_code=0)
    named = [
        ("executions", EXECUTION | {"uid": "u-6", "conversation": "by-code"}),
        ("executions", EXECUTION | {"uid": "u-7", "conversation": "by-code"}),
        ("executions", EXECUTION | {"uid": "u-8", "conversation": "elsewhere", "namespace": "others"}),
        ("executions", EXECUTION | {"uid": "u-9", "conversation": "later", "created_at": 9 * DAY}),
        ("calls", CALL | {"id": "c-6", "conversation": "direct", "mode": "direct", "execution_uid": None}),
        ("calls", CALL | {"id": "c-7", "conversation": "by-code", "mode": "direct", "execution_uid": None}),
        ("model_usage", REPORT | {"id": "task-6", "conversation": "no-tools"}),
        ("model_usage", REPORT | {"id": "task-7", "conversation": "by-code"}),
    ]
    for table, row in named:
        assert (await records.add({table: [row]})).refused == []
    for by in ("day", "tool", "model"):
        assert (await measure(records, by)).conversations == MeasuredConversations(total=3, with_code=1)


async def test_tools_that_executions_call_together_are_counted(
    records: RecordsClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    called = [("u-1", "list"), ("u-2", "read"), ("u-2", "list"), ("u-2", "list"), ("u-3", "write"), ("u-3", "read")]
    rows = [CALL | {"id": f"t-{n}", "execution_uid": uid, "tool": tool} for n, (uid, tool) in enumerate(called)]
    assert (await records.add({"calls": rows})).refused == []
    found = await measure(records, "tool")
    counts = [(each.tools, each.executions) for each in found.combinations]
    assert counts == [(["sheets.list", "sheets.read"], 2), (["sheets.read", "sheets.write"], 1)]
    assert found.is_complete
    assert (await measure(records, "day")).combinations == []
    monkeypatch.setattr("mcp_exec_broker.features.records.habits.MAX_CALLED", 3)
    assert not (await measure(records, "tool")).is_complete


async def test_rows_at_the_end_of_the_time_are_left_out(records: RecordsClient) -> None:
    found = await measure(records, "day", until=2 * DAY)
    assert {row.key for row in found.tokens} == {"1970-01-02"}


async def test_an_answer_has_the_largest_groups_and_says_that_there_are_more(
    records: RecordsClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcp_exec_broker.features.records.queries.MAX_USAGE_ROWS", 1)
    found = await measure(records, "use-case")
    assert (found.is_complete, [row.mode for row in found.tokens]) == (False, ["direct"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"by": "moon"}, "by: must be one of use-case, caller"),
        ({"since": -1}, "since: must be microseconds"),
        ({"until": 10**18}, "until: must be microseconds"),
        ({"namespace": "secret"}, "namespace: this broker does not serve"),
    ],
)
async def test_a_wrong_request_is_refused(records: RecordsClient, changes: Object, message: str) -> None:
    asked: Object = {"namespace": "agents", "by": "day", "since": 0, "until": DAY} | changes
    with pytest.raises(RecordsError, match=message):
        await records.measure_usage(**asked)


async def test_large_numbers_of_some_rows_break_no_sums(records: RecordsClient) -> None:
    large = [
        REPORT | {"id": f"large-{number}", "input_tokens": 2**53, "turns": 2**53, "use_case": None}
        for number in range(1100)
    ]
    for start in range(0, len(large), 100):
        await records.add({"model_usage": large[start : start + 100]})
    measured = await measure(records, "caller")
    (tokens,) = [group for group in measured.tokens if group.reports > 1000]
    assert tokens.input_tokens >= 1100 * 2**53


async def test_a_row_that_is_sent_again_is_not_new(records: RecordsClient) -> None:
    new = REPORT | {"id": "task-9"}
    assert (await records.add({"model_usage": [new]})).created == {"model_usage": 1}
    assert (await records.add({"model_usage": [new]})).created == {"model_usage": 0}
