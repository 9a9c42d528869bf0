"""The chat service over HTTP: its own loop on Anthropic's SDK, by direct calls and by code."""

import asyncio
import json
from typing import Any

import httpx
import pytest
from tests.component.examples.conftest import serve_chat, serve_gateway
from tests.support.agent_gateway import AgentGateway, Run
from tests.support.model_servers.messages_api import MessagesApi
from tests.support.model_servers.script import refused, results_in, says, uses
from tests.support.pace import paced

pytestmark = pytest.mark.asyncio(loop_scope="module")

QUESTION = "Which five customers wait for pending orders of the highest value?"


async def ask(url: str, message: str, **fields: Any) -> list[tuple[str, dict[str, Any]]]:
    """Send a message and return the events of its answer."""
    async with (
        httpx.AsyncClient(timeout=paced(60)) as http,
        http.stream("POST", f"{url}/api/chat", json={"message": message, **fields}) as response,
    ):
        assert response.status_code == 200, await response.aread()
        assert response.headers["content-type"].startswith("text/event-stream")
        parts = (await response.aread()).decode().split("\n\n")
    events = [part.split("\n") for part in parts if part]
    return [(kind.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for kind, data in events]


def read_text(events: list[tuple[str, dict[str, Any]]]) -> str:
    return "".join(data["text"] for kind, data in events if kind == "text")


def read_steps(events: list[tuple[str, dict[str, Any]]]) -> list[str]:
    return [data["kind"] for kind, data in events if kind == "step"]


async def test_ten_tools_are_called_directly(chat_url: str, gateway: AgentGateway, model: MessagesApi) -> None:
    model.rewrite([says("Let me see. "), uses("get_order", order_id="O001")], [says("It is pending.")], [says("Yes.")])
    events = await ask(chat_url, "Where is order O001?")
    assert [kind for kind, _ in events if kind != "text"] == ["start", "tokens", "step", "step", "tokens", "done"]
    assert read_text(events) == "Let me see. It is pending."
    assert read_steps(events) == ["call", "results"]
    assert len(model.requests[0]["tools"]) == 10
    assert json.loads(results_in(model.requests[1])[0]["content"])["status"] == "pending"
    await ask(chat_url, "Sure?", conversation=events[0][1]["conversation"])
    assert [message["role"] for message in model.requests[2]["messages"]] == ["user", "assistant"] * 2 + ["user"]
    assert gateway.executions == gateway.calls == []


async def test_a_failed_direct_call_is_the_model_s_to_correct(chat_url: str, model: MessagesApi) -> None:
    model.rewrite(
        [uses("get_order", order_id="X"), uses("get_order", order_id=1), uses("get_order"), uses("drop")],
        [says("There is none.")],
    )
    events = await ask(chat_url, "Where is order X?")
    results = results_in(model.requests[1])
    assert [each["is_error"] for each in results] == [True] * 4
    assert results[0]["content"] == "there is no id 'X'; such as 'O000'"
    assert read_text(events) == "There is none."


async def test_the_same_loop_works_by_code(chat_url: str, gateway: AgentGateway, model: MessagesApi) -> None:
    gateway.runs = [Run(stdout="86 orders\n")]
    model.rewrite([uses("execute_code", code="print(len(orders), 'orders')")], [says("86.")])
    events = await ask(chat_url, "How many orders are pending?", use_code_execution=True)
    assert [tool["name"] for tool in model.requests[0]["tools"]] == ["search_tools", "execute_code"]
    assert read_text(events) == "86."
    assert read_steps(events) == ["code", "output", "execute", "results"]
    (execution,) = gateway.executions
    assert (execution["tools"], execution["user"]) == (["shop.*"], "demo")
    assert execution["conversation"] == events[0][1]["conversation"]


@pytest.mark.parametrize("by_code", [False, True])
async def test_an_error_of_the_model_ends_the_answer(chat_url: str, model: MessagesApi, by_code: bool) -> None:
    model.rewrite(refused(400))
    events = await ask(chat_url, "Hello?", use_code_execution=by_code)
    assert [kind for kind, _ in events] == ["start", "error"]
    assert "400" in events[1][1]["message"]


async def test_a_failed_answer_leaves_no_history(chat_url: str, model: MessagesApi) -> None:
    model.rewrite([uses("get_order", order_id="O001")], refused(400), [says("Again.")])
    events = await ask(chat_url, "First?")
    assert events[-1][0] == "error"
    await ask(chat_url, "Second?", conversation=events[0][1]["conversation"])
    assert model.requests[-1]["messages"] == [{"role": "user", "content": "Second?"}]


async def test_code_is_cancelled_if_the_page_is_gone(chat_url: str, gateway: AgentGateway, model: MessagesApi) -> None:
    gateway.runs = [Run(hangs=True)]
    model.rewrite([uses("execute_code", code="while True: pass")])
    asking = asyncio.create_task(ask(chat_url, "Wait.", use_code_execution=True))
    await asyncio.wait_for(gateway.started.wait(), 30)
    asking.cancel()
    await asyncio.wait([asking], timeout=paced(10))
    async with asyncio.timeout(paced(30)):
        await gateway.cancelled_once.wait()
    assert gateway.cancelled == ["e1"]


@pytest.mark.parametrize(
    ("body", "status", "detail"),
    [
        ({"message": ""}, 422, "message: String should have at least 1 character"),
        ({"message": "x" * 4001}, 422, "message: String should have at most 4000 characters"),
        ({"message": "x", "user": "root"}, 422, "user: Extra inputs are not permitted"),
        ({"message": "x" * 20_000}, 413, "the body has more than 16384 bytes"),
        ({"message": "x", "conversation": "c"}, 404, "the conversation is not known any more; begin a new one"),
    ],
)
async def test_hostile_messages_are_refused(chat_url: str, body: dict[str, Any], status: int, detail: str) -> None:
    async with httpx.AsyncClient() as http:
        response = await http.post(f"{chat_url}/api/chat", json=body)
    assert (response.status_code, response.json()["detail"]) == (status, detail)


async def test_a_form_of_another_site_is_refused(chat_url: str) -> None:
    async with httpx.AsyncClient() as http:
        response = await http.post(f"{chat_url}/api/chat", content=b"{}", headers={"Content-Type": "text/plain"})
    assert response.status_code == 415


async def test_the_scripted_model_gives_the_same_answer_by_both_ways(gateway: AgentGateway) -> None:
    async with (
        serve_gateway(gateway) as gateway_url,
        serve_chat("--offline", MCP_EXEC_GATEWAY=gateway_url, MCP_EXEC_API_KEY="k") as url,
    ):
        direct = await ask(url, QUESTION)
        gateway.runs = [Run(stdout=read_text(direct))]
        code = await ask(url, QUESTION, use_code_execution=True)
        other = await ask(url, "Who are you?")
    assert read_steps(direct) == ["call", "results"] * 6
    assert read_text(direct).split() == read_text(code).split()
    counts = [[data for kind, data in events if kind == "tokens"][-1] for events in (direct, code)]
    assert [each["counted"] for each in counts] == ["estimate", "estimate"]
    assert counts[0]["input"] > 2 * counts[1]["input"]
    assert read_text(other).startswith("Without a model, a script answers one question")


async def test_without_a_gateway_there_are_direct_calls_alone() -> None:
    async with serve_chat("--offline") as url:
        assert read_steps(await ask(url, QUESTION)) == ["call", "results"] * 6
        async with httpx.AsyncClient() as http:
            response = await http.post(f"{url}/api/chat", json={"message": QUESTION, "use_code_execution": True})
    assert response.status_code == 503
    assert "MCP_EXEC_GATEWAY" in response.json()["detail"]
