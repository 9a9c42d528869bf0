"""Records: a namespace's own, page by page, and what applications report."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.component.gateway.commands import call
from tests.component.gateway.conftest import KEY, OTHER_KEY, Gateway
from tests.component.gateway.test_refusals import assert_problem
from tests.component.gateway.test_rollouts import assign, put
from tests.support.api_server import FakeApiServer
from tests.support.broker import FakeBroker, running_broker
from tests.support.until import until

from mcp_exec_api.wire.records import NewUsageReport
from mcp_exec_api.wire.rollouts import RolloutReport
from mcp_exec_broker.features.records.tables import EXPOSURES, FEEDBACK, MODEL_USAGE, OUTCOMES, check_row
from mcp_exec_client import AsyncClient


@pytest.fixture
async def broker(api: FakeApiServer) -> AsyncIterator[FakeBroker]:
    async with running_broker(api) as made:
        made.rows = {"calls": [{"id": str(number), "namespace": "agents"} for number in range(5)]}
        made.rows["calls"].append({"id": "theirs", "namespace": "others"})
        yield made


@pytest.fixture
def gateway(gateway_with_broker: Gateway) -> Gateway:
    return gateway_with_broker


async def test_pages_make_one_list_of_the_callers_namespace(gateway: Gateway) -> None:
    seen, cursor = [], ""
    for _ in range(4):
        page = (await gateway.ask("GET", f"/v1/records/calls?limit=2{cursor}")).json
        seen += [item["id"] for item in page["items"]]
        if page["next"] is None:
            break
        cursor = f"&cursor={page['next']}"
    assert seen == ["0", "1", "2", "3", "4"]
    theirs = await gateway.ask("GET", "/v1/records/calls", key=OTHER_KEY)
    assert [item["id"] for item in theirs.json["items"]] == ["theirs"]
    assert (await gateway.ask("GET", "/v1/records/calls?namespace=others")).status == 403


async def test_records_of_another_namespace_are_never_shown(gateway: Gateway, broker: FakeBroker) -> None:
    broker.honest = False
    assert_problem(await gateway.ask("GET", "/v1/records/calls"), 503)


async def test_an_installation_without_records_says_so(gateway: Gateway, broker: FakeBroker) -> None:
    broker.rows = None
    answer = await gateway.ask("GET", "/v1/records/calls")
    assert_problem(answer, 404)
    assert "broker.records.enabled" in answer.json["detail"]


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("secrets", "table"),
        ("calls?limit=0", "limit"),
        ("calls?limit=1001", "limit"),
        ("calls?cursor=x", "cursor"),
        ("calls?since=1", "since"),
    ],
)
async def test_a_wrong_request_is_refused(gateway: Gateway, path: str, field: str) -> None:
    assert_problem(await gateway.ask("GET", f"/v1/records/{path}"), 422, field)


USAGE: dict[str, Any] = {
    "id": "task-1",
    "model": "m",
    "mode": "code",
    "turns": 2,
    "inputTokens": 10,
    "outputTokens": 5,
    "counted": "provider",
}


async def test_the_usage_that_a_client_reports_is_recorded(gateway: Gateway, broker: FakeBroker) -> None:
    assert broker.rows is not None
    async with AsyncClient(gateway.url, api_key=KEY) as client:
        usage = NewUsageReport(**USAGE, success=True, latency_ms=900, user="jane", use_case="workflow")
        await client.conversations.report_usage("conv-1", usage)
        await client.conversations.report_feedback("conv-1", 4, id="r-1", comment="good")
    [row] = broker.rows["model_usage"]
    assert check_row(MODEL_USAGE, row)
    shown = ("namespace", "conversation", "id", "user", "use_case", "input_tokens", "success", "arm")
    assert [row.get(name) for name in shown] == ["agents", "conv-1", "task-1", "jane", "workflow", 10, True, None]
    [rating] = broker.rows["feedback"]
    assert check_row(FEEDBACK, rating)
    assert (rating["caller"], rating["rating"], rating["comment"]) == (row["caller"], 4, "good")


async def test_the_arm_of_a_report_follows_from_its_unit(gateway: Gateway, broker: FakeBroker) -> None:
    await put(gateway)
    assert broker.rows is not None
    for kind, more in (("usage", USAGE), ("feedback", {"id": "r-1", "rating": 1})):
        body = more | {"rollout": "code-mode", "unit": "unit-1"}
        assert (await gateway.ask("POST", f"/v1/conversations/c-1/{kind}", json=body)).status == 204
    assigned = await assign(gateway, "unit-1")
    for table in ("model_usage", "feedback"):
        [row] = broker.rows[table]
        assert (row["rollout"], row["arm"]) == ("code-mode", assigned["arm"])
    usage, rating = broker.rows["outcomes"]
    assert [check_row(OUTCOMES, row)["arm"] for row in (usage, rating)] == [assigned["arm"]] * 2
    assert (usage["tokens"], rating["rating"], usage["id"] != rating["id"]) == (15, 1, True)


async def test_reports_with_long_ids_that_differ_at_their_end_are_two_outcomes(
    gateway: Gateway, broker: FakeBroker
) -> None:
    await put(gateway)
    assert broker.rows is not None
    for end in ("a", "b"):
        body = USAGE | {"id": "x" * 63 + end, "rollout": "code-mode", "unit": "unit-1"}
        assert (await gateway.ask("POST", "/v1/conversations/c-1/usage", json=body)).status == 204
    assert len({row["id"] for row in broker.rows["outcomes"]}) == 2


async def test_what_a_unit_outside_the_rollout_reports_counts_for_no_arm(gateway: Gateway, broker: FakeBroker) -> None:
    await put(gateway, stage="team")
    assert broker.rows is not None
    body = USAGE | {"rollout": "code-mode", "unit": "unit-1"}
    assert (await gateway.ask("POST", "/v1/conversations/c-1/usage", json=body)).status == 204
    outcome = {"id": "task-1", "unit": "unit-1", "success": False}
    assert (await gateway.ask("POST", "/v1/rollouts/code-mode/outcomes", json=outcome)).status == 204
    [row] = broker.rows["model_usage"]
    assert (row["arm"], "outcomes" in broker.rows) == (None, False)


async def test_an_outcome_counts_once_for_the_arm_of_its_unit(gateway: Gateway, broker: FakeBroker) -> None:
    await put(gateway)
    assert broker.rows is not None
    outcome = {"id": "task-1", "unit": "unit-1", "success": False, "latencyMs": 12, "cost": 0.25}
    for _ in range(2):
        assert (await gateway.ask("POST", "/v1/rollouts/code-mode/outcomes", json=outcome)).status == 204
    first, again = broker.rows["outcomes"]
    assert (first["id"], first["arm"]) == (again["id"], (await assign(gateway, "unit-1"))["arm"])
    assert (first["rollout_uid"], first["success"], first["cost"]) == ("uid-1", False, 0.25)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"arm": "code"}, "arm"),
        ({"cost": -1}, "cost"),
        ({"cost": "1"}, "cost"),
        ({"unit": ""}, "unit"),
        ({"rating": 0}, "rating"),
        ({"tokens": "9"}, "tokens"),
        ({"success": 1}, "success"),
    ],
)
async def test_a_wrong_outcome_is_refused_by_its_field(gateway: Gateway, changes: dict[str, Any], field: str) -> None:
    await put(gateway)
    body = {"id": "task-1", "unit": "unit-1", "success": True} | changes
    assert_problem(await gateway.ask("POST", "/v1/rollouts/code-mode/outcomes", json=body), 422, field)


async def test_an_outcome_that_says_nothing_is_refused(gateway: Gateway) -> None:
    await put(gateway)
    body = {"id": "task-1", "unit": "unit-1"}
    answer = await gateway.ask("POST", "/v1/rollouts/code-mode/outcomes", json=body)
    assert (answer.status, "one of success" in answer.text) == (422, True)


async def test_the_report_of_a_rollout_has_intervals_by_arm(gateway: Gateway, broker: FakeBroker) -> None:
    await put(gateway)
    broker.measured = {"arms": [{"name": "code", "outcomes": 3, "rating": {"value": 4.5, "low": 4.0, "samples": 3}}]}
    report = (await gateway.ask("GET", "/v1/rollouts/code-mode/report")).json
    RolloutReport.model_validate(report)
    assert (report["control"], report["arms"][0]["rating"]["low"]) == ("direct", 4.0)
    broker.rows = None
    assert_problem(await gateway.ask("GET", "/v1/rollouts/code-mode/report"), 404)


@pytest.mark.parametrize(
    ("kind", "changes", "field"),
    [
        ("usage", {"arm": "code"}, "arm"),
        ("usage", {"inputTokens": -1}, "inputTokens"),
        ("usage", {"inputTokens": "3"}, "inputTokens"),
        ("usage", {"inputTokens": 10**9 + 1}, "inputTokens"),
        ("usage", {"turns": True}, "turns"),
        ("usage", {"turns": 2**53}, "turns"),
        ("usage", {"success": "yes"}, "success"),
        ("feedback", {"rating": "4"}, "rating"),
        ("usage", {"inputTokens": 2**70}, "inputTokens"),
        ("usage", {"mode": "magic"}, "mode"),
        ("usage", {"id": "x" * 65}, "id"),
        ("usage", {"useCase": "else"}, "useCase"),
        ("feedback", {"rating": 6}, "rating"),
        ("feedback", {"comment": "x" * 1001}, "comment"),
    ],
)
async def test_a_wrong_report_is_refused_by_its_field(
    gateway: Gateway, kind: str, changes: dict[str, Any], field: str
) -> None:
    body = (USAGE if kind == "usage" else {"id": "r-1", "rating": 1}) | changes
    assert_problem(await gateway.ask("POST", f"/v1/conversations/c-1/{kind}", json=body), 422, field)


async def test_a_report_names_unit_and_rollout_or_none(gateway: Gateway) -> None:
    answer = await gateway.ask("POST", "/v1/conversations/c-1/usage", json=USAGE | {"unit": "u"})
    assert (answer.status, "set both or none" in answer.text) == (422, True)
    unknown = USAGE | {"unit": "u", "rollout": "none"}
    assert (await gateway.ask("POST", "/v1/conversations/c-1/usage", json=unknown)).status == 404
    assert (await gateway.ask("POST", "/v1/conversations/-/usage", json=USAGE)).status == 422


async def test_the_command_line_compares_the_arms(
    gateway: Gateway, broker: FakeBroker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(gateway)
    rate = {"value": 0.1, "low": 0.05, "high": 0.2, "samples": 30}
    late = {"value": 900.0, "low": 700.0, "samples": 30}
    broker.measured = {
        "arms": [{"name": "code", "exposed": 12, "units": 9, "outcomes": 30, "errorRate": rate, "p95LatencyMs": late}]
    }
    monkeypatch.setenv("MCP_EXEC_GATEWAY", gateway.url)
    monkeypatch.setenv("MCP_EXEC_API_KEY", KEY)
    ended = await call(capsys, "rollout", "report", "code-mode")
    titles, row = ended.out.splitlines()
    assert titles.split()[:4] == ["ARM", "EXPOSED", "UNITS", "OUTCOMES"]
    assert row.split()[:4] == ["code", "12", "9", "30"]
    assert "10 (5 to 20)" in row
    assert "900 (700 to ?)" in row


async def test_the_client_reports_outcomes(gateway: Gateway, broker: FakeBroker) -> None:
    await put(gateway)
    assert broker.rows is not None
    async with AsyncClient(gateway.url, api_key=KEY) as client:
        await client.conversations.report_outcome("code-mode", "unit-1", id="task-1", success=True, cost=0.5)
    [row] = broker.rows["outcomes"]
    assert (row["unit"], row["success"], row["cost"], row.get("rating")) == ("unit-1", True, 0.5, None)


async def test_units_that_ask_for_their_arm_are_recorded_once(gateway: Gateway, broker: FakeBroker) -> None:
    await put(gateway)
    assert broker.rows is not None
    for unit in ("unit-1", "unit-2", "unit-1"):
        await assign(gateway, unit)
    await until(lambda: len((broker.rows or {}).get("exposures", [])) == 2)
    await assign(gateway, "unit-1")
    await assign(gateway, "unit-3")
    await until(lambda: len((broker.rows or {}).get("exposures", [])) == 3)
    first, *_ = broker.rows["exposures"]
    shown = (first["namespace"], first["rollout"], first["rollout_uid"], first["unit"], first["stage"])
    assert shown == ("agents", "code-mode", "uid-1", "unit-1", "all")
    assert check_row(EXPOSURES, first)["arm"] == (await assign(gateway, "unit-1"))["arm"]


async def test_a_unit_outside_the_rollout_is_not_exposed(gateway: Gateway, broker: FakeBroker) -> None:
    await put(gateway, stage="team")
    await assign(gateway, "outside")
    await assign(gateway, "inside", user="ann")
    await until(lambda: "exposures" in (broker.rows or {}))
    assert [row["unit"] for row in (broker.rows or {})["exposures"]] == ["inside"]


async def test_arms_are_assigned_although_the_records_are_off(gateway: Gateway, broker: FakeBroker) -> None:
    await put(gateway)
    broker.rows = None
    assert (await assign(gateway, "unit-1"))["rollout"] == "code-mode"
