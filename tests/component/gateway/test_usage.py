"""Usage: what models, sandboxes and tools used, by group, with money, and what the metrics count of reports."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.component.gateway.commands import call
from tests.component.gateway.conftest import KEY, Gateway, serving
from tests.component.gateway.test_records import USAGE
from tests.component.gateway.test_refusals import assert_problem
from tests.support.api_server import FakeApiServer
from tests.support.broker import FakeBroker, running_broker
from tests.unit.common.test_usage_report import PRICES, calls, executions, tokens

from mcp_exec_api.wire.usage import UsageReport
from mcp_exec_client import AsyncClient
from mcp_exec_common.prices import PriceTable
from mcp_exec_common.usage import MeasuredUsage

PAGE = (
    (Path(__file__).parents[3] / "docs" / "platform" / "usage.md").read_text().partition("## What sandboxes cost\n")[2]
)


@pytest.fixture
async def broker(api: FakeApiServer) -> AsyncIterator[FakeBroker]:
    async with running_broker(api) as made:
        made.rows = {}
        by_code, direct = calls(mode="code"), calls()
        made.usage = MeasuredUsage(tokens=[tokens()], executions=[executions()], calls=[by_code, direct]).to_api()
        yield made


@pytest.fixture
async def gateway(api: FakeApiServer, broker: FakeBroker) -> AsyncIterator[Gateway]:
    async with serving(api, broker_service="mcp-exec-broker", prices=PRICES) as made:
        yield made


async def test_usage_has_money_and_estimates_by_group(gateway: Gateway) -> None:
    report = UsageReport.model_validate((await gateway.ask("GET", "/v1/usage")).json)
    assert (report.by, report.currency, report.is_complete) == ("use-case", "EUR", True)
    [group] = report.groups
    assert (group.key, group.models[0].cost) == ("filtering", pytest.approx(4.503))
    assert [(each.mode, each.saved, each.lost) for each in group.estimates] == [("code", 960, 30), ("direct", 0, 60)]
    assert report.total is not None
    assert (report.total.models, report.total.cost) == (pytest.approx(4.503), pytest.approx(4.513))


async def test_the_broker_is_asked_for_the_callers_namespace_and_the_last_30_days(
    gateway: Gateway, broker: FakeBroker
) -> None:
    report = (await gateway.ask("GET", "/v1/usage?by=day")).json
    [query] = broker.usage_queries
    assert (query["namespace"], query["by"]) == ("agents", "day")
    assert int(query["until"]) - int(query["since"]) == timedelta(days=30) / timedelta(microseconds=1)
    assert datetime.fromisoformat(report["until"]) - datetime.fromisoformat(report["since"]) == timedelta(days=30)


async def test_a_time_can_be_chosen(gateway: Gateway, broker: FakeBroker) -> None:
    async with AsyncClient(gateway.url, api_key=KEY) as client:
        since = datetime(2026, 1, 1, tzinfo=UTC)
        report = await client.usage(by="model", since=since, until=since + timedelta(days=2))
    assert (report.since, report.until) == ("2026-01-01T00:00:00.000000Z", "2026-01-03T00:00:00.000000Z")
    assert broker.usage_queries[0]["since"] == "1767225600000000"


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("by=moon", "by"),
        ("since=yesterday", "since"),
        ("since=2026-01-02T00:00:00Z&until=2026-01-01T00:00:00Z", "since"),
        ("since=2020-01-01T00:00:00Z&until=2026-01-01T00:00:00Z", "since"),
        ("from=2026-01-01", "from"),
    ],
)
async def test_a_wrong_query_is_refused_by_its_field(gateway: Gateway, query: str, field: str) -> None:
    assert_problem(await gateway.ask("GET", f"/v1/usage?{query}"), 422, field)


async def test_an_installation_without_records_says_so(gateway: Gateway, broker: FakeBroker) -> None:
    broker.rows = None
    answer = await gateway.ask("GET", "/v1/usage")
    assert_problem(answer, 404)
    assert "broker.records.enabled" in answer.json["detail"]


async def test_fields_of_a_broker_of_a_later_release_are_ignored(gateway: Gateway, broker: FakeBroker) -> None:
    """During an upgrade, a gateway of the release before asks a broker of the next one."""
    rows = [{**row, "later": 1} for row in broker.usage["executions"]]
    broker.usage = {**broker.usage, "executions": rows, "later": {}}
    answer = await gateway.ask("GET", "/v1/usage")
    assert answer.status == 200, answer.text


async def test_a_broker_that_answers_nonsense_is_a_503(gateway: Gateway, broker: FakeBroker) -> None:
    broker.usage = {"tokens": "many"}
    answer = await gateway.ask("GET", "/v1/usage")
    assert_problem(answer, 503)
    assert "127.0.0.1" not in answer.text


async def read_counts(gateway: Gateway) -> dict[str, float]:
    """Return the counters of reported tokens by kind, and the money as `cost`."""
    found: dict[str, float] = {}
    for family in gateway.dependencies.metrics.registry.collect():
        for sample in family.samples:
            if sample.name in ("mcp_exec_model_tokens_total", "mcp_exec_model_cost_total"):
                found[sample.labels.get("kind", "cost")] = sample.value
    return found


async def test_reported_tokens_and_their_price_are_metrics(gateway: Gateway) -> None:
    report: dict[str, Any] = USAGE | {"model": "claude-sonnet-4-5", "inputTokens": 1_000_000, "useCase": "polling"}
    assert (await gateway.ask("POST", "/v1/conversations/c-1/usage", json=report)).status == 204
    counts = await read_counts(gateway)
    assert counts == {"input": 1e6, "output": 5.0, "cache_read": 0.0, "cache_write": 0.0, "cost": 3.000075}


async def test_a_report_that_is_sent_again_counts_once_in_the_metrics(gateway: Gateway) -> None:
    for _ in range(3):
        assert (await gateway.ask("POST", "/v1/conversations/c-1/usage", json=USAGE)).status == 204
    counts = await read_counts(gateway)
    assert (counts["input"], "cost" in counts) == (10.0, False)


@pytest.fixture
def connected(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCP_EXEC_GATEWAY", gateway.url)
    monkeypatch.setenv("MCP_EXEC_API_KEY", KEY)


@pytest.mark.usefixtures("connected")
async def test_the_command_line_shows_tables_of_models_sandboxes_and_calls(capsys: pytest.CaptureFixture[str]) -> None:
    models, sandboxes, used, total = (await call(capsys, "usage", "--since", "7d")).out.split("\n\n")
    titles, row = models.splitlines()
    assert "COST EUR" in titles
    assert row.split() == [
        "filtering",
        "code",
        "provider",
        "2",
        "1000000",
        "100000",
        "10000",
        "555000",
        "50.0%",
        "900.0",
        "4.5030",
    ]
    assert sandboxes.splitlines()[1].split() == ["filtering", "3", "1", "100.0", "4.0", "0.0100", "~960", "~30"]
    assert [line.split()[1:3] for line in used.splitlines()[1:]] == [["code", "2"], ["direct", "2"]]
    assert total == "cost in all: 4.5130 EUR: models 4.5030, sandboxes 0.0100 (time 0.0100)\n"


@pytest.mark.usefixtures("connected")
async def test_usage_shows_conversations_with_code_and_tools_that_are_called_together(
    gateway: Gateway, broker: FakeBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "conversations" not in (await gateway.ask("GET", "/v1/usage")).json
    broker.usage |= {
        "conversations": {"total": 40, "withCode": 12},
        "combinations": [{"tools": ["github.list", "slack.post"], "executions": 7}],
    }
    report = UsageReport.model_validate((await gateway.ask("GET", "/v1/usage?by=tool")).json)
    assert report.conversations is not None
    assert (report.conversations.total, report.conversations.with_code, report.conversations.code_share) == (
        40,
        12,
        0.3,
    )
    assert [(each.tools, each.executions) for each in report.combinations] == [(["github.list", "slack.post"], 7)]
    *_, combinations, conversations, total = (await call(capsys, "usage", "--by", "tool")).out.split("\n\n")
    assert combinations.splitlines()[1].split() == ["github.list", "+", "slack.post", "7"]
    assert conversations == "12 of 40 conversations used code (30.0%)"
    assert total.startswith("cost in all: ")


@pytest.mark.usefixtures("connected")
async def test_the_command_line_says_that_nothing_was_used(
    broker: FakeBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    broker.usage = {}
    ended = await call(capsys, "usage")
    assert (ended.out, "nothing was used" in ended.err) == ("", True)


@pytest.mark.usefixtures("connected")
async def test_the_command_line_refuses_a_time_that_it_cannot_read(capsys: pytest.CaptureFixture[str]) -> None:
    ended = await call(capsys, "usage", "--since", "last week")
    assert (ended.code, "allowed: 7d, 12h" in ended.err) == (2, True)


async def test_the_page_shows_what_sandboxes_cost_by_their_processor_time_and_memory(
    api: FakeApiServer, broker: FakeBroker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    values, example = PAGE.partition("    prices:\n")[2].partition("\n\n")[0], PAGE.split("```\n")[1]
    prices = PriceTable.model_validate(yaml.safe_load(values))
    usage = {"cpu_seconds": 1810.4, "gib_seconds": 1302.5, "pool_seconds": {"default": 9050.2}}
    rows = [
        executions(executions=4210, failed=12, sandbox_seconds=9050.2, tokens_saved=5_120_000, **usage),
        executions(
            key="training", executions=18, failed=2, sandbox_seconds=5400.0, cpu_seconds=3900.5, gib_seconds=40_210.0,
            unmeasured=1, pool_seconds={"gpu-a": 5400.0}, with_calls=0,
        ),
    ]  # fmt: skip
    broker.usage = MeasuredUsage(executions=rows).to_api()
    async with serving(api, broker_service="mcp-exec-broker", prices=prices) as gateway:
        monkeypatch.setenv("MCP_EXEC_GATEWAY", gateway.url)
        monkeypatch.setenv("MCP_EXEC_API_KEY", KEY)
        command, _, output = example.partition("\n")
        ended = await call(capsys, *command.split()[2:])
        answer = await gateway.ask("GET", "/v1/usage")
    assert ended.out == output
    assert "executions that lack processor time or memory, which the cost leaves out: 1" in ended.err
    report = UsageReport.model_validate(answer.json)
    assert report.total is not None
    assert report.total.sandboxes is not None
    costs = report.total.sandboxes.costs
    assert costs is not None
    assert costs.time == pytest.approx(5400 * 1.2 / 3600)
    assert costs.processor == pytest.approx((1810.4 + 3900.5) * 0.03 / 3600, abs=1e-6)
    assert costs.memory == pytest.approx((1302.5 + 40_210) * 0.004 / 3600, abs=1e-6)
