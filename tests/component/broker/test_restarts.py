"""A broker that restarts: budgets, ends and tokens of executions keep their meaning."""

from pathlib import Path

from tests.component.broker.conftest import World, grant, running
from tests.component.broker.servers import serving, toolbox
from tests.support.api_server import FakeApiServer

ADDRESS = "jane@example.com"


async def test_a_budget_does_not_start_again(api: FakeApiServer, tmp_path: Path) -> None:
    token = grant(tool_calls=3)
    async with serving(toolbox()) as box:
        reasons = []
        for _ in range(3):
            async with running(api, tmp_path) as world:
                world.add("box", url=box.url)
                await world.listed("box")
                answers = [await world.call("box.add", token=token, a=1, b=2) for _ in range(2)]
                reasons.append([answer.get("reason") for answer in answers])
                status, calls = await world.ask("GET", "/v1/executions/uid-1")
        assert reasons == [[None, None], [None, "BudgetExceeded"], ["BudgetExceeded", "BudgetExceeded"]]
        assert (status, calls["toolCalls"]["total"], calls["toolCalls"]["failed"]) == (200, 6, 3)
        assert calls["toolCalls"]["byTool"] == {"other": 4, "box.add": 2}
        assert box.calls == ["add"] * 3


async def test_a_closed_execution_stays_closed(api: FakeApiServer, tmp_path: Path) -> None:
    used, unused = grant(), grant(execution="uid-2")
    async with serving(toolbox()) as box:
        async with running(api, tmp_path) as world:
            world.add("box", url=box.url)
            await world.listed("box")
            await world.call("box.add", token=used, a=1, b=2)
            for uid in ("uid-1", "uid-2"):
                assert (await world.ask("DELETE", f"/v1/executions/{uid}"))[0] == 200
        async with running(api, tmp_path) as world:
            await world.listed("box")
            for token in (used, unused):
                assert (await world.call("box.add", token=token, a=1, b=2))["reason"] == "ExecutionEnded"
        assert box.calls == ["add"]


async def test_a_token_of_an_earlier_process_means_nobody(api: FakeApiServer, tmp_path: Path) -> None:
    async with serving(toolbox()) as box:
        async with running(api, tmp_path) as world:
            world.add("box", url=box.url, scan={"personalInResults": "Tokenize"})
            await world.listed("box")
            token = (await world.call("box.echo", value=[ADDRESS]))["value"][0]
        async with running(api, tmp_path) as world:
            await world.listed("box")
            other = (await world.call("box.echo", value=["other@example.com"]))["value"][0]
            assert other.startswith("[EMAIL_1_")
            assert other != token
            made = len(box.calls)
            for value in (token, f"to {token}", {token: 1}, [[token]]):
                answer = await world.call("box.echo", value=value)
                assert (answer["kind"], answer["reason"]) == ("ToolDenied", "UnknownToken")
                assert token in answer["message"]
            assert len(box.calls) == made


async def test_a_token_of_another_execution_or_a_guessed_one_is_refused(world: World) -> None:
    async with serving(toolbox()) as box:
        world.add("box", url=box.url, scan={"personalInResults": "Tokenize"})
        await world.listed("box")
        token = (await world.call("box.echo", value=[ADDRESS]))["value"][0]
        answer = await world.call("box.echo", token=grant(execution="uid-2", name="exec-2"), value=token)
        assert answer["reason"] == "UnknownToken"
        assert (await world.call("box.echo", value="[EMAIL_1_aaaaaaaa]"))["reason"] == "UnknownToken"
        assert (await world.call("box.echo", value="[EMAIL_1] and [NOTE_1_aaaaaaaa]"))["type"] == "result"
