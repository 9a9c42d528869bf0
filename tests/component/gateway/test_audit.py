"""Audit records: of the caller's namespace only, of all replicas as one list, complete on every page."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.component.gateway.conftest import OTHER_KEY, Gateway, serving
from tests.component.gateway.test_refusals import assert_problem
from tests.support.api_server import FakeApiServer
from tests.support.broker import SLICES, FakeBroker, running_brokers
from tests.support.until import until


def record(second: int, *, namespace: str = "agents", **more: Any) -> dict[str, Any]:
    at = f"2026-11-21T20:00:{second:02d}.000000Z"
    return {"id": f"{namespace}-{second}", "at": at, "namespace": namespace, "execution": "exec-1", **more}


@pytest.fixture
async def brokers(api: FakeApiServer) -> AsyncIterator[list[FakeBroker]]:
    async with running_brokers(api, "127.0.0.1", "127.0.0.2", "127.0.0.3") as made:
        yield made


@pytest.fixture
async def gateway(api: FakeApiServer, brokers: list[FakeBroker]) -> AsyncIterator[Gateway]:
    async with serving(api, broker_service="mcp-exec-broker") as made:
        yield made


async def pages(gateway: Gateway, query: str) -> list[list[int]]:
    """Return the seconds of the records of each page, to the last page."""
    found: list[list[int]] = []
    cursor = ""
    while True:
        answer = (await gateway.ask("GET", f"/v1/audit?{query}{cursor}")).json
        found.append([int(item["at"][17:19]) for item in answer["items"]])
        if answer["next"] is None:
            return found
        assert len(found) < 40
        cursor = f"&cursor={answer['next']}"


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 30])
async def test_pages_of_all_replicas_make_one_list_newest_first(
    gateway: Gateway, brokers: list[FakeBroker], limit: int
) -> None:
    brokers[0].records = [record(second) for second in (29, 28, 27, 26, 20, 3)]
    brokers[1].records = [record(second) for second in (25, 24, 19, 18, 17, 16, 15, 2, 1)]
    seen = [second for page in await pages(gateway, f"limit={limit}") for second in page]
    assert seen == [29, 28, 27, 26, 25, 24, 20, 19, 18, 17, 16, 15, 3, 2, 1]


async def test_calls_that_are_made_while_somebody_reads_shift_nothing(
    gateway: Gateway, brokers: list[FakeBroker]
) -> None:
    brokers[0].records = [record(5), record(4), record(3), record(2)]
    first = (await gateway.ask("GET", "/v1/audit?limit=2")).json
    brokers[0].records.insert(0, {**record(6), "at": "2999-01-01T00:00:00.000000Z"})
    second = (await gateway.ask("GET", f"/v1/audit?limit=2&cursor={first['next']}")).json
    assert [item["id"] for item in first["items"] + second["items"]] == [f"agents-{n}" for n in (5, 4, 3, 2)]


async def test_filters_travel_and_the_namespace_is_always_the_callers(
    gateway: Gateway, brokers: list[FakeBroker]
) -> None:
    brokers[0].records = [record(2, tool="a.b", outcome="ok"), record(1, namespace="others")]
    query = "execution=exec-1&tool=a.b&outcome=ok&since=2026-11-21T20:00:00Z&until=2026-11-21T20:01:00Z"
    assert await pages(gateway, query) == [[2]]
    asked = brokers[0].asked[-1][1]
    assert (asked["since"], asked["until"]) == ("2026-11-21T20:00:00.000000Z", "2026-11-21T20:01:00.000000Z")
    theirs = await gateway.ask("GET", "/v1/audit", key=OTHER_KEY)
    assert [item["id"] for item in theirs.json["items"]] == ["others-1"]
    assert (await gateway.ask("GET", "/v1/audit?namespace=others")).status == 403
    brokers[0].honest = False
    assert_problem(await gateway.ask("GET", "/v1/audit"), 503)


async def test_a_replica_that_is_silent_makes_no_list_that_looks_whole(
    gateway: Gateway, brokers: list[FakeBroker], api: FakeApiServer
) -> None:
    brokers[1].broken = True
    assert "complete" in assert_problem(await gateway.ask("GET", "/v1/audit"), 503).detail
    for name in list(api.collections[SLICES]):
        api.remove(SLICES, name)
    made = gateway.dependencies.broker
    assert made is not None
    await until(lambda: not made.addresses())
    assert_problem(await gateway.ask("GET", "/v1/audit"), 503)


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b'{"items": {}}',
        b'{"items": [1]}',
        b'{"items": [{"namespace": "agents"}]}',
        b'{"items": [{"namespace": "agents", "at": 7}]}',
        b'{"items": [], "next": 7}',
        b'{"items": [], "next": "%s"}' % (b"x" * 513),
        b'{"items": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
)
async def test_a_malformed_answer_fails_that_replica_by_its_address(
    gateway: Gateway, brokers: list[FakeBroker], caplog: pytest.LogCaptureFixture, body: bytes
) -> None:
    brokers[0].records = [record(2)]
    brokers[1].raw = body
    assert "complete" in assert_problem(await gateway.ask("GET", "/v1/audit"), 503).detail
    warnings = [entry.getMessage() for entry in caplog.records if entry.levelname == "WARNING"]
    assert len(warnings) == 1
    assert f"127.0.0.2:{brokers[1].port}" in warnings[0]
    brokers[1].raw = None
    assert await pages(gateway, "limit=5") == [[2]]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("limit=501", "limit"),
        ("since=yesterday", "since"),
        ("since=0001-01-01T00:00:00%2B14:00", "since"),
        ("until=2026-11-21T20:00:00", "until"),
        ("cursor=x", "cursor"),
        ("cursor=e30=", "cursor"),
        ("who=me", "who"),
        ("outcome=nonsense", "outcome"),
    ],
)
async def test_what_is_wrong_with_a_question_is_named(gateway: Gateway, query: str, field: str) -> None:
    assert_problem(await gateway.ask("GET", f"/v1/audit?{query}"), 422, field)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("since=yesterday", "write a time with its zone, for example 2026-11-22T06:00:00Z"),
        ("since=2026-11-22T06:00:00", "write a time with its zone, for example 2026-11-22T06:00:00Z"),
        ("sinc=2026-11-22T06:00:00Z", "unknown query parameter; did you mean since? Allowed: cursor, execution, "),
        ("colour=red", "unknown query parameter; allowed: cursor, execution, limit, namespace, outcome, since, "),
    ],
)
async def test_a_refused_parameter_says_what_is_allowed(gateway: Gateway, query: str, words: str) -> None:
    answer = await gateway.ask("GET", f"/v1/audit?{query}")
    assert answer.status == 422
    assert words in answer.json["errors"][0]["message"]
