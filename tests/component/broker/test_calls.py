"""Tool calls from the sandbox to a real MCP server and back."""

import asyncio
import io
from collections.abc import Awaitable, Callable

import aiohttp
import pytest
from mcp import MCPError
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS
from tests.component.broker.conftest import CEX, World, grant
from tests.component.broker.servers import Toolbox, serving, toolbox
from tests.support.constants import DEADLINE
from tests.support.until import until

from mcp_exec_api.sandbox_pool import PoolTools
from mcp_exec_common.broker.grants import MAX_GRANT_SECONDS


async def test_a_structured_result_is_a_value(world: World, box: Toolbox) -> None:
    assert await world.call("box.add", a=2, b=3) == {"type": "result", "tool": "box.add", "value": 5}


async def test_text_that_is_json_is_parsed(world: World, box: Toolbox) -> None:
    assert (await world.call("box.echo", value={"rows": [1, None]}))["value"] == {"rows": [1, None]}


@pytest.mark.parametrize("spelling", ["mcp__box__add", "box.add", "box.Add"])
async def test_a_tool_is_found_by_each_spelling(world: World, box: Toolbox, spelling: str) -> None:
    assert (await world.call(spelling, a=1, b=1))["value"] == 2


async def test_a_tool_is_found_by_camel_case_with_words_in_capitals(world: World) -> None:
    box = toolbox()

    @box.server.tool()
    async def execute_sql(query: str) -> str:
        return query

    async with serving(box):
        world.add("box", url=box.url)
        await world.listed("box")
        for spelling in ("box.executeSql", "box.executeSQL", "mcp__box__executeSQL"):
            assert await world.call(spelling, query="1") == {"type": "result", "tool": "box.execute_sql", "value": "1"}


async def test_an_unknown_tool_is_named_with_what_was_meant(world: World, box: Toolbox) -> None:
    answer = await world.call("box.ad", a=1, b=1)
    assert (answer["reason"], answer["suggestions"]) == ("NoSuchTool", ["box.add"])


async def test_an_error_of_the_tool_has_its_words(world: World, box: Toolbox) -> None:
    answer = await world.call("box.fail")
    assert (answer["kind"], answer["tool"], answer["server"]) == ("ToolError", "box.fail", "box")
    assert "it was to be expected" in answer["message"]


async def test_an_error_about_arguments_lists_the_parameters_of_the_tool(world: World) -> None:
    box = toolbox()

    @box.server.tool()
    async def pick(number: int, unit: str = "m") -> int:
        if number == 0:
            raise MCPError(INVALID_PARAMS, "0 is no number")
        if number == 1:
            raise MCPError(INTERNAL_ERROR, "the disk is full")
        raise ToolError("the number is wrong")

    async with serving(box):
        world.add("box", url=box.url)
        await world.listed("box")
        refused, broken, failed = [await world.call("box.pick", number=number) for number in range(3)]
        assert (refused["kind"], refused["code"], failed["kind"]) == ("ToolProtocolError", -32602, "ToolError")
        assert refused["parameters"] == failed["parameters"] == ["number*", "unit"]
        assert "parameters" not in broken


async def test_wrong_arguments_never_travel(world: World, box: Toolbox) -> None:
    answer = await world.call("box.add", a=1, c=2)
    assert (answer["kind"], answer["reason"]) == ("ToolError", "InvalidArguments")
    assert answer["parameters"] == ["a*", "b*"]
    assert box.calls == []


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize(
    ("value", "why"),
    [("half \ud800", "surrogate"), ({"\udfff": 1}, "surrogate"), (float("nan"), "finite"), ([1e400], "finite")],
)
async def test_arguments_that_are_no_json_disturb_no_other_call(
    world: World, legacy: bool, value: object, why: str
) -> None:
    async with serving(toolbox(), legacy=legacy) as box:
        world.add("box", url=box.url)
        await world.listed("box")
        hanging = asyncio.create_task(world.lines("box.hang"))
        await asyncio.wait_for(box.entered.wait(), DEADLINE)
        answer = await world.call("box.echo", value=value)
        assert (answer["kind"], answer["reason"]) == ("ToolError", "InvalidArguments")
        assert why in answer["message"]
        box.release.set()
        assert (await hanging)[-1].get("value") == "released"


async def test_none_for_an_optional_parameter_is_left_out_on_the_way(world: World) -> None:
    box = toolbox()

    @box.server.tool()
    async def note(text: str, author: str = "nobody", tag: str | None = "none") -> list[str | None]:
        return [text, author, tag]

    async with serving(box):
        world.add("box", url=box.url)
        await world.listed("box")
        assert (await world.call("box.note", text="a", author=None, tag=None))["value"] == ["a", "nobody", None]


async def test_a_tool_that_is_not_allowed_is_denied(world: World, box: Toolbox) -> None:
    token = grant(tools=["box.echo"])
    assert (await world.call("box.add", token=token, a=1, b=1))["reason"] == "NotAllowed"
    pool = grant(pool_tools=PoolTools(deny=["box.*"]))
    assert (await world.call("box.add", token=pool, a=1, b=1))["reason"] == "NotAllowed"
    assert box.calls == []


async def test_an_unknown_server_is_named_with_what_was_meant(world: World, box: Toolbox) -> None:
    answer = await world.call("boxx.add", a=1, b=1)
    assert (answer["reason"], answer["suggestions"]) == ("NoSuchServer", ["box"])


async def test_the_budget_of_calls_is_kept(world: World, box: Toolbox) -> None:
    token = grant(tool_calls=2)
    for _ in range(2):
        assert (await world.call("box.add", token=token, a=1, b=1))["type"] == "result"
    assert (await world.call("box.add", token=token, a=1, b=1))["reason"] == "BudgetExceeded"


async def test_a_large_result_is_an_error(world: World, box: Toolbox) -> None:
    world.add("box", url=box.url, limits={"resultBytes": 1024})
    await until(lambda: world.status("box").get("observedGeneration") == 2)
    for size in (2000, 200_000):
        assert (await world.call("box.big", size=size))["reason"] == "ResultTooLarge"
    assert (await world.call("box.add", a=1, b=1))["value"] == 2


@pytest.mark.parametrize("legacy", [False, True])
async def test_a_call_that_takes_too_long_is_cancelled_at_the_server(world: World, legacy: bool) -> None:
    async with serving(toolbox(), legacy=legacy) as box:
        world.add("box", url=box.url)
        await world.listed("box")
        answer = await world.call("box.hang", within=0.3)
        assert (answer["kind"], "may have done it" in answer["message"]) == ("ToolTimeout", True)
        await asyncio.wait_for(box.cancelled.wait(), DEADLINE)


async def test_a_call_that_never_had_its_turn_was_not_made(world: World, box: Toolbox) -> None:
    world.add("box", url=box.url, limits={"concurrency": 1})
    await until(lambda: world.status("box").get("observedGeneration") == 2)
    hanging = asyncio.create_task(world.lines("box.hang"))
    await asyncio.wait_for(box.entered.wait(), DEADLINE)
    answer = await world.call("box.add", within=0.1, a=1, b=1)
    assert (answer["kind"], answer["server"]) == ("ToolTimeout", "box")
    assert "not made: after 0.1 s it still waited for a place among the calls of box (1 at once)" in answer["message"]
    box.release.set()
    assert (await hanging)[-1]["value"] == "released"
    assert box.calls == []


async def test_a_call_behind_others_of_its_execution_was_not_made(world: World, box: Toolbox) -> None:
    hanging = [asyncio.create_task(world.lines("box.hang")) for _ in range(10)]
    quotas = world.broker.pipeline.quotas
    await until(lambda: (quota := quotas.find("uid-1")) and quota.limiter.active == 10)
    answer = await world.call("box.add", within=0.1, a=1, b=1)
    assert "not made: after 0.1 s it still waited for a place among the calls of the execution" in answer["message"]
    box.release.set()
    await asyncio.gather(*hanging)
    assert box.calls == []


async def test_a_sandbox_that_goes_away_cancels_its_call(world: World, box: Toolbox) -> None:
    call = asyncio.create_task(world.lines("box.hang"))
    await asyncio.wait_for(box.entered.wait(), DEADLINE)
    call.cancel()
    await asyncio.wait_for(box.cancelled.wait(), DEADLINE)
    _, found = await world.ask("GET", "/v1/executions/uid-1")
    assert found["toolCalls"]["failed"] == 1


async def test_an_execution_that_is_closed_loses_its_calls_and_makes_no_more(world: World, box: Toolbox) -> None:
    call = asyncio.create_task(world.lines("box.hang"))
    await asyncio.wait_for(box.entered.wait(), DEADLINE)
    status, found = await world.ask("DELETE", "/v1/executions/uid-1")
    assert (status, found["toolCalls"]["total"]) == (200, 1)
    assert (await call)[-1]["reason"] == "ExecutionEnded"
    await asyncio.wait_for(box.cancelled.wait(), DEADLINE)
    assert (await world.call("box.add", a=1, b=1))["reason"] == "ExecutionEnded"


@pytest.mark.parametrize("seconds", ["", "-1", "1.5", "x", str(MAX_GRANT_SECONDS + 1), "9" * 500])
async def test_an_end_with_a_bad_time_of_its_grant_is_refused_and_ends_nothing(
    world: World, box: Toolbox, seconds: str
) -> None:
    status, _ = await world.ask("DELETE", f"/v1/executions/uid-1?grantSeconds={seconds}")
    assert status == 400
    assert "reason" not in await world.call("box.add", a=1, b=1)
    assert box.calls == ["add"]


async def test_many_calls_share_one_session(world: World) -> None:
    async with serving(toolbox(), legacy=True) as box:
        world.add("box", url=box.url)
        await world.listed("box")
        answers = await asyncio.gather(*(world.call("box.add", a=n, b=1) for n in range(20)))
        assert [answer["value"] for answer in answers] == [n + 1 for n in range(20)]
        assert len(set(box.header("mcp-session-id"))) == 1


async def test_a_call_that_needs_an_approval_waits_for_it(world: World, box: Toolbox) -> None:
    world.api.put(CEX, {"metadata": {"name": "exec-1", "uid": "uid-1"}, "spec": {"code": "1"}})
    call = asyncio.create_task(world.lines("box.destroy", name="all"))
    await until(lambda: world.broker.control.approvals.list_approvals("uid-1"))
    _, found = await world.ask("GET", "/v1/executions/uid-1")
    approval = found["approvals"][0]
    assert (approval["state"], approval["tool"]) == ("Pending", "box.destroy")
    assert box.calls == []
    world.api.merge(CEX, "exec-1", {"spec": {"approvals": [{"id": approval["id"], "decision": "Approve", "by": "me"}]}})
    notice, answer = await call
    assert (notice["type"], notice["id"]) == ("approval", approval["id"])
    assert answer["value"] == "gone"
    assert box.calls == ["destroy all"]


async def refused(world: World, approval: str) -> None:
    decision = {"id": approval, "decision": "Deny", "by": "me", "comment": "no"}
    world.api.merge(CEX, "exec-1", {"spec": {"approvals": [decision]}})


async def expired(world: World, approval: str) -> None:
    """Let the policy's one second pass."""


async def withdrawn(world: World, approval: str) -> None:
    await world.ask("DELETE", "/v1/executions/uid-1")


async def approved(world: World, approval: str) -> None:
    decision = {"id": approval, "decision": "Approve", "by": "me"}
    world.api.merge(CEX, "exec-1", {"spec": {"approvals": [decision]}})


@pytest.mark.parametrize(
    ("settle", "outcome", "by"),
    [
        (refused, "denied", None),
        (expired, "denied", None),
        (withdrawn, "cancelled", None),
        (approved, "ok", "claimed:me"),
    ],
)
async def test_the_audit_names_the_approval_whatever_became_of_it(
    world: World, settle: Callable[[World, str], Awaitable[None]], outcome: str, by: str | None
) -> None:
    world.api.put(CEX, {"metadata": {"name": "exec-1", "uid": "uid-1"}, "spec": {"code": "1"}})
    async with serving(toolbox()) as box:
        world.add("box", url=box.url, policy={"approvalTimeoutSeconds": 1 if settle is expired else 60})
        await world.listed("box")
        call = asyncio.create_task(world.lines("box.destroy", name="all"))
        await until(lambda: world.broker.control.approvals.list_approvals("uid-1"))
        approval = world.broker.control.approvals.list_approvals("uid-1")[0].id
        await settle(world, approval)
        await call
        _, found = await world.ask("GET", "/v1/audit")
        (record,) = found["items"]
        assert (record["outcome"], record["approval"], record["approvedBy"]) == (outcome, approval, by)
        assert (record["decision"], record["bytesIn"] > 0) == ("Approve", True)


async def test_each_call_is_in_the_audit(world: World, box: Toolbox) -> None:
    await world.call("box.add", a=1, b=1)
    await world.call("box.fail")
    await world.call("nowhere.add")
    _, found = await world.ask("GET", "/v1/audit?namespace=agents&execution=exec-1")
    assert [(item["tool"], item["outcome"]) for item in found["items"]] == [
        ("nowhere.add", "error"),
        ("fail", "error"),
        ("add", "ok"),
    ]


@pytest.mark.parametrize(
    ("token", "body", "status"),
    [
        ("nonsense", b"{}", 401),
        ("", b"{}", 401),
        (grant(expires=1), b"{}", 401),
        (grant(namespace="other"), b"{}", 401),
        (None, b"not json", 400),
        (None, b"[]", 400),
        (None, b'{"id": "1"}', 400),
        (None, b'{"id": "1", "tool": "a.b", "more": 1}', 400),
        (None, b'{"id": "1", "tool": "a.b", "arguments": []}', 400),
        (None, b'{"id": "1", "tool": "a.b", "timeoutSeconds": 0}', 400),
        (None, b'{"id": "1", "tool": "' + b"x" * 18 * 1024 * 1024 + b'"}', 413),
    ],
)
async def test_what_is_no_call_is_refused(world: World, token: str | None, body: bytes, status: int) -> None:
    headers = {"Authorization": f"Bearer {grant() if token is None else token}"}
    async with world.session.post(f"{world.url}/v1/calls", data=io.BytesIO(body), headers=headers) as response:
        assert response.status == status
        assert "Traceback" not in await response.text()


async def test_nothing_but_calls_is_on_the_port_of_the_sandboxes(world: World) -> None:
    for path in ("/v1/executions/uid-1", "/metrics", "/v1/audit", "/"):
        async with world.session.get(world.url + path) as response:
            assert response.status == 404
    async with aiohttp.ClientSession() as session, session.get(f"{world.url}/v1/calls") as response:
        assert response.status == 405


async def test_the_control_port_requires_a_service_token(world: World) -> None:
    for path in ("/v1/executions/uid-1", "/v1/namespaces/agents/catalog", "/v1/audit"):
        status, _ = await world.ask("GET", path, service_token=grant())
        assert status == 401
