"""Records of finished executions: what they contain, and that none is deleted before it has one."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from tests.support.constants import SANDBOX_KEY
from tests.support.until import until

from mcp_exec_api.constants import DEFAULT_LANGUAGE, LABEL_CONVERSATION, LABEL_USE_CASE, Language
from mcp_exec_broker.features.records.tables import EXECUTIONS, check_row
from mcp_exec_common.broker.attestations import Attestor
from mcp_exec_common.broker.records import MAX_RECORDS_BYTES, AddedRecords, RecordsError
from mcp_exec_common.sandbox_keys import SandboxKeys
from mcp_exec_operator.cluster.kube.api import OperatorApi
from mcp_exec_operator.cluster.kube.observations import CallerProofs
from mcp_exec_operator.core.stored import StoredBudget, StoredExecution
from mcp_exec_operator.core.ttl import TTLController
from mcp_exec_operator.features.records import recorder as module
from mcp_exec_operator.features.records.recorder import CodePolicy, ExecutionRecorder, build_row
from mcp_exec_operator.metrics import Metrics

Object = dict[str, Any]
AT = "2026-01-01T00:00:00.000000Z"


def finished(name: str, **spec: Any) -> Object:
    labels = {LABEL_CONVERSATION: "conv-1", LABEL_USE_CASE: "filtering"}
    return {
        "metadata": {
            "namespace": "agents", "name": name, "uid": f"uid-{name}", "creationTimestamp": AT, "labels": labels,
        },
        "spec": {"code": "print(1)", "ttlSecondsAfterFinished": 0} | spec,
        "status": {
            "phase": "Failed",
            "reason": "UserError",
            "start": "Warm",
            "createdAt": AT,
            "startedAt": "2026-01-01T00:00:00.250000Z",
            "finishedAt": "2026-01-01T00:00:01.000000Z",
            "durations": {"queued": 3.4, "total": 1000.2},
            "usage": {"cpuSeconds": 0.05, "peakMemoryBytes": 1000, "sandboxSeconds": 0.9, "codeBytes": 8,
                "tokens": {"code": 3, "returned": 6, "kept": 1000, "method": "estimate-1"}},
            "output": {"stdout": "1\n", "stderr": "", "result": {"n": 1}},
            "toolCalls": {"total": 3, "failed": 1, "bytesKept": 4000},
        },
    }  # fmt: skip


def test_a_record_has_what_ran_for_whom_and_what_it_used() -> None:
    row = build_row(finished("a", user="jane"), caller="team-a", language=DEFAULT_LANGUAGE, code="Digest")
    assert check_row(EXECUTIONS, row) | row == check_row(EXECUTIONS, row)
    expected: Object = {
        "uid": "uid-a",
        "namespace": "agents",
        "caller": "team-a",
        "user": "jane",
        "conversation": "conv-1",
        "use_case": "filtering",
        "mode": "code",
        "pool": "default",
        "phase": "Failed",
        "reason": "UserError",
        "duration_ms": 1000,
        "queue_ms": 3,
        "warm": True,
        "cpu_seconds": 0.05,
        "tool_calls": 3,
        "failed_calls": 1,
        "code_bytes": 8,
        "code": None,
        "tokens_code": 3,
        "tokens_returned": 6,
        "tokens_kept": 1000,
        "tokens_method": "estimate-1",
    }
    assert {name: row[name] for name in expected} == expected
    assert cast(int, row["started_at"]) - cast(int, row["created_at"]) == 250_000
    assert str(row["code_digest"])[:7] == "sha256:"


@pytest.mark.parametrize(
    ("spec", "pool", "expected"),
    [
        ({}, "python", "python"),
        ({}, "typescript", "typescript"),
        ({"language": "typescript"}, "typescript", "typescript"),
        ({"language": "typescript"}, "python", "typescript"),  # refused, or the pool was created again
    ],
)
def test_a_record_has_the_language_of_the_code(spec: Object, pool: Language, expected: Language) -> None:
    row = build_row(finished("a", **spec), caller="", language=pool, code="Never")
    assert check_row(EXECUTIONS, row)["language"] == expected


def test_a_record_in_the_default_language_is_one_that_a_broker_without_languages_stores() -> None:
    assert "language" not in build_row(finished("a"), caller="", language=DEFAULT_LANGUAGE, code="Never")


@pytest.mark.parametrize(
    ("policy", "has_digest", "code"), [("Never", False, None), ("Digest", True, None), ("Full", True, "print(1)")]
)
def test_the_code_is_kept_by_the_policy(policy: CodePolicy, has_digest: bool, code: str | None) -> None:
    row = build_row(finished("a"), caller="", language=DEFAULT_LANGUAGE, code=policy)
    assert (row["code_digest"] is not None, row["code"]) == (has_digest, code)


def test_an_execution_without_a_sandbox_has_a_record() -> None:
    body = finished("a")
    body["status"] = {"phase": "Cancelled", "reason": "", "finishedAt": "nonsense"}
    row = build_row(body, caller="", language=DEFAULT_LANGUAGE, code="Full")
    check_row(EXECUTIONS, row)
    assert (row["finished_at"], row["warm"], row["caller"], row["reason"]) == (None, None, None, None)


def test_hostile_fields_are_stored_in_bounds() -> None:
    code = "\0\ud800" * 100_000
    row = build_row(finished("a", code=code, user="\0" * 900), caller="c" * 900, language=DEFAULT_LANGUAGE, code="Full")
    check_row(EXECUTIONS, row)


class Broker:
    """A broker's records in memory."""

    def __init__(self) -> None:
        self.rows: dict[str, Mapping[str, object]] = {}
        self.broken = False
        self.fault: Exception | None = None
        self.requests = 0

    async def add(self, rows: Mapping[str, Sequence[Mapping[str, object]]]) -> AddedRecords:
        self._check()
        self.requests += 1
        self.rows |= {str(row["uid"]): row for row in rows["executions"]}
        return AddedRecords(stored=len(rows["executions"]))

    async def find_executions(self, uids: Sequence[str]) -> set[str]:
        self._check()
        return self.rows.keys() & set(uids)

    def _check(self) -> None:
        if self.fault is not None:
            raise self.fault
        if self.broken:
            raise RecordsError("no broker replica is ready")


class Cluster:
    """Executions of an API server; `log` has what was read and deleted."""

    def __init__(self) -> None:
        self.executions: dict[str, Object] = {}
        self.log: list[str] = []

    async def get(self, _kind: str, _namespace: str, name: str) -> Object | None:
        self.log.append(f"read {name}")
        return self.executions.get(name)

    async def delete(self, _kind: str, _namespace: str, name: str, *, uid: str, what: str) -> None:
        assert (uid, what) == (f"uid-{name}", "execution-delete")
        self.log.append(f"deleted {name}")
        self.executions.pop(name, None)


@asynccontextmanager
async def operating(
    cluster: Cluster, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[TTLController, ExecutionRecorder]]:
    """Run recorder and TTL controller of one operator."""
    monkeypatch.setattr(module, "_GATHER_SECONDS", 0.0)
    monkeypatch.setattr(module, "_RETRY_SECONDS", 0.001)
    recorder = ExecutionRecorder(
        receiver=broker,
        api=cast(OperatorApi, cluster),
        callers=CallerProofs(attestor=Attestor(keys=SandboxKeys(SANDBOX_KEY))),
        find_language=lambda pool: DEFAULT_LANGUAGE,
        code="Digest",
        metrics=Metrics(),
    )
    ttl = TTLController(api=cast(OperatorApi, cluster), recorder=recorder)
    tasks = [asyncio.create_task(ttl.run()), asyncio.create_task(recorder.run())]
    try:
        yield ttl, recorder
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def count(recorder: ExecutionRecorder, outcome: str) -> float:
    found = recorder.metrics.registry.get_sample_value("mcp_exec_records_total", {"outcome": outcome})
    return found or 0.0


def add(cluster: Cluster, name: str, **spec: Any) -> Object:
    cluster.executions[name] = finished(name, **spec)
    return cluster.executions[name]


async def test_an_execution_is_deleted_after_its_record_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, broker = Cluster(), Broker()
    async with operating(cluster, broker, monkeypatch) as (ttl, _):
        ttl.observe(add(cluster, "a"))
        await until(lambda: not cluster.executions)
    assert (cluster.log, [*broker.rows]) == (["read a", "deleted a"], ["uid-a"])


async def test_what_is_deleted_before_its_ttl_has_a_record_too(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, broker = Cluster(), Broker()
    broker.broken = True
    async with operating(cluster, broker, monkeypatch) as (ttl, recorder):
        ttl.max_seconds, ttl.budget = 1e9, StoredBudget(max_stored=4, max_stored_bytes=10**9)
        early: list[StoredExecution] = []
        ttl.deleted_early.connect(early.extend)
        for number in range(8):
            ttl.observe(add(cluster, f"e{number}", ttlSecondsAfterFinished=10**9))
        await until(lambda: count(recorder, "failed") > 2 and not ttl.budget.is_over)
        assert len(cluster.executions) == 8, "none is deleted without a record"
        broker.broken = False
        await until(lambda: len(cluster.executions) == 2)
        await until(lambda: len(early) == 6)
    deleted = {line.removeprefix("deleted ") for line in cluster.log if line.startswith("deleted")}
    assert {f"uid-{name}" for name in deleted} <= set(broker.rows)


async def test_an_execution_whose_record_cannot_be_built_does_not_hold_up_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster, broker = Cluster(), Broker()
    async with operating(cluster, broker, monkeypatch) as (ttl, recorder):
        add(cluster, "bad")["status"]["durations"] = {"total": "long"}
        for name in ("bad", "good"):
            ttl.observe(cluster.executions.get(name) or add(cluster, name))
        await until(lambda: not cluster.executions)
        assert (count(recorder, "refused"), set(broker.rows)) == (1.0, {"uid-good"})


async def test_an_error_that_nobody_expected_is_repeated_like_others(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, broker = Cluster(), Broker()
    broker.fault = KeyError("a fault")
    async with operating(cluster, broker, monkeypatch) as (ttl, recorder):
        ttl.observe(add(cluster, "a"))
        await until(lambda: count(recorder, "failed") >= 2)
        broker.fault = None
        await until(lambda: not cluster.executions)
    assert set(broker.rows) == {"uid-a"}


async def test_executions_are_kept_while_the_broker_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, broker = Cluster(), Broker()
    broker.broken = True
    async with operating(cluster, broker, monkeypatch) as (ttl, recorder):
        for name in ("a", "b"):
            ttl.observe(add(cluster, name))
        await until(lambda: count(recorder, "failed") >= 3)
        assert set(cluster.executions) == {"a", "b"}
        broker.broken = False
        await until(lambda: not cluster.executions)
    assert set(broker.rows) == {"uid-a", "uid-b"}


async def test_an_operator_that_was_killed_after_storing_stores_nothing_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, broker = Cluster(), Broker()
    broker.rows["uid-a"] = {"uid": "uid-a"}
    async with operating(cluster, broker, monkeypatch) as (ttl, _):
        ttl.observe(add(cluster, "a"))
        await until(lambda: not cluster.executions)
    assert (cluster.log, broker.requests) == (["deleted a"], 0)


async def test_an_execution_that_somebody_deletes_first_holds_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, broker = Cluster(), Broker()
    async with operating(cluster, broker, monkeypatch) as (ttl, recorder):
        ttl.observe(finished("gone"))
        ttl.observe(add(cluster, "a"))
        await until(lambda: not cluster.executions)
        assert count(recorder, "missed") == 1
    assert [*broker.rows] == ["uid-a"]


async def test_an_execution_that_is_kept_longer_is_recorded_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, broker = Cluster(), Broker()
    async with operating(cluster, broker, monkeypatch) as (ttl, recorder):
        body = add(cluster, "a", ttlSecondsAfterFinished=10**9)
        body["status"]["finishedAt"] = "2999-01-01T00:00:00.000000Z"
        ttl.observe(body)
        await until(lambda: broker.rows)
        assert "a" in cluster.executions
        ttl.discard("uid-a", "agents")
        assert not recorder.is_recorded("uid-a")


async def test_large_records_travel_in_requests_of_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, broker = Cluster(), Broker()
    async with operating(cluster, broker, monkeypatch) as (ttl, recorder):
        recorder.code = "Full"
        executions = 2 + MAX_RECORDS_BYTES // 250_000
        for number in range(executions):
            ttl.observe(add(cluster, str(number), code="x" * 250_000))
        await until(lambda: not cluster.executions)
    assert (len(broker.rows), broker.requests >= 2) == (executions, True)
