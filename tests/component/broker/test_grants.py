"""Grants: who may use one, and which replica accepts it."""

from pathlib import Path
from time import time

from tests.component.broker.conftest import World, grant, running
from tests.component.broker.servers import Toolbox, serving, toolbox
from tests.support.api_server import FakeApiServer
from tests.support.clock import Clock

from mcp_exec_common.broker.grants import MAX_GRANT_SECONDS


async def refusal(world: World, **changes: object) -> str:
    """Send a call with a grant, and return the text of its refusal."""
    headers = {"Authorization": f"Bearer {grant(**changes)}"}
    body = {"id": "1", "tool": "box.add", "arguments": {"a": 1, "b": 2}}
    async with world.session.post(f"{world.url}/v1/calls", json=body, headers=headers) as response:
        assert response.status == 401
        return (await response.text()).strip()


async def test_a_grant_that_another_pod_has_copied_is_refused(world: World, box: Toolbox) -> None:
    assert await refusal(world, pod_address="10.0.0.7") == "the grant belongs to the sandbox at another address"
    assert await refusal(world, pod_address="") == "the grant belongs to the sandbox at another address"
    assert box.calls == []


async def test_an_address_may_be_spelled_as_a_mapped_one(world: World, box: Toolbox) -> None:
    assert (await world.call("box.add", token=grant(pod_address="::ffff:127.0.0.1"), a=1, b=2))["value"] == 3


async def test_a_network_that_translates_addresses_is_a_setting(api: FakeApiServer, tmp_path: Path) -> None:
    async with running(api, tmp_path, check_pod_address=False) as world, serving(toolbox()) as box:
        world.add("box", url=box.url)
        await world.listed("box")
        assert (await world.call("box.add", token=grant(pod_address="10.0.0.7"), a=1, b=2))["value"] == 3


async def test_a_grant_counts_at_one_replica_alone(api: FakeApiServer, tmp_path: Path) -> None:
    """Code that calls each replica in turn does not multiply its budget."""
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
    token = grant(replica="pod-1", tool_calls=2)
    async with (
        running(api, folders[0], replica="pod-1") as one,
        running(api, folders[1], replica="pod-2") as two,
        serving(toolbox()) as box,
    ):
        one.add("box", url=box.url)
        await one.listed("box")
        answers = [await one.call("box.add", token=token, a=1, b=2) for _ in range(3)]
        assert [answer.get("reason") for answer in answers] == [None, None, "BudgetExceeded"]
        refused = await refusal(two, replica="pod-1", tool_calls=2)
        assert refused == "the grant belongs to another replica of the broker"
        assert box.calls == ["add", "add"]


async def test_waits_for_approvals_prolong_a_grant_and_nothing_else_does(world: World, box: Toolbox) -> None:
    token = grant(expires=int(time()) + 60)
    assert (await world.call("box.add", token=token, a=1, b=2))["value"] == 3
    assert await refusal(world, expires=int(time()) - 100) == "the grant has expired"
    quota = world.broker.pipeline.quotas.find("uid-1")
    assert quota is not None
    clock = quota.waiting.clock = Clock()
    with quota.waiting.wait(600):
        clock.now += 200
    assert (await world.call("box.add", token=grant(expires=int(time()) - 100), a=1, b=2))["value"] == 3
    assert await refusal(world, expires=int(time()) - 210) == "the grant has expired"
    _, calls = await world.ask("GET", "/v1/executions/uid-1")
    assert [(wait["waitedSeconds"], wait["remainingSeconds"]) for wait in calls["waits"]] == [(200, 0)]


async def test_a_grant_that_outlives_its_account_is_refused(world: World, box: Toolbox) -> None:
    refused = await refusal(world, expires=int(time()) + MAX_GRANT_SECONDS + 100)
    assert refused == f"the grant is valid for more than {MAX_GRANT_SECONDS} s"
