"""Records: a namespace's own, page by page."""

from collections.abc import AsyncIterator

import pytest
from tests.component.gateway.conftest import OTHER_KEY, SANDBOX_KEY, Gateway, serving
from tests.component.gateway.test_refusals import assert_problem
from tests.component.gateway.test_tools import SLICES
from tests.support.api_server import FakeApiServer
from tests.support.broker import FakeBroker


@pytest.fixture
async def broker(api: FakeApiServer) -> AsyncIterator[FakeBroker]:
    async with FakeBroker(key=SANDBOX_KEY).running() as made:
        api.put(SLICES, made.slice())
        made.rows = {"calls": [{"id": str(number), "namespace": "agents"} for number in range(5)]}
        made.rows["calls"].append({"id": "theirs", "namespace": "others"})
        yield made


@pytest.fixture
async def gateway(api: FakeApiServer, broker: FakeBroker) -> AsyncIterator[Gateway]:
    async with serving(api, broker_service="mcp-exec-broker") as made:
        yield made


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
