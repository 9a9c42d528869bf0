"""Turns of a conversation, under the real SDKs of both APIs."""

import asyncio
import json
import threading
from decimal import Decimal
from typing import Any

import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI
from tests.component.agent.conftest import MakeAgent
from tests.support.agent_gateway import AgentGateway, Run
from tests.support.model_servers import chat_api, messages_api
from tests.support.model_servers.chat_api import ChatApi
from tests.support.model_servers.messages_api import MessagesApi
from tests.support.model_servers.script import Turn, refused, says, uses
from tests.support.model_servers.server import ModelServer

from mcp_exec_client.agent import (
    Agent,
    AgentAnswer,
    AgentError,
    AgentEvent,
    AgentLimits,
    LimitReached,
    ModelError,
    RunEvent,
    TextDelta,
    TextDropped,
    TokenPrice,
    Waiting,
)
from mcp_exec_client.agent.providers.anthropic_messages import AnthropicProvider
from mcp_exec_client.agent.providers.openai import OpenAIProvider
from mcp_exec_client.events import TextEvent

PRICE = TokenPrice(input=Decimal(3), output=Decimal(15), cache_read=Decimal("0.3"), cache_write=Decimal("3.75"))


def last_text(model: ModelServer) -> str:
    return json.dumps(model.requests[-1][model.conversation][-1])


async def test_a_task_is_done_by_code_and_everything_is_streamed(
    model: ModelServer, gateway: AgentGateway, make_agent: MakeAgent
) -> None:
    gateway.runs = [Run(stdout="42\n")]
    model.rewrite([says("Let me compute."), uses("execute_code", code="print(6 * 7)")], [says("It is 42.")])
    agent = make_agent(user="u-1", context={"secret": "s3cr3t"})
    events = [event async for event in agent.stream("What is 6 * 7?")]
    answer = events[-1]
    assert isinstance(answer, AgentAnswer)
    assert answer.text == str(answer) == "It is 42."
    text = "".join(event.text for event in events if isinstance(event, TextDelta))
    assert text == "Let me compute.It is 42."
    output = [event.event for event in events if isinstance(event, RunEvent)]
    assert [event.text for event in output if isinstance(event, TextEvent)] == ["42\n"]
    assert [step.kind for step in answer.trace.steps] == ["mode", "code", "execute", "results", "answer"]
    assert "42" in last_text(model)
    (created,) = gateway.executions
    assert (created["user"], created["context"], created["conversation"]) == (
        "u-1",
        {"secret": "s3cr3t"},
        agent.conversation,
    )
    for request in model.requests:
        assert "s3cr3t" not in json.dumps(request)
        assert "u-1" not in json.dumps(request)
        assert "`secret` (text)" in json.dumps(request)


async def test_a_conversation_has_a_history_until_it_is_cleared(model: ModelServer, make_agent: MakeAgent) -> None:
    model.rewrite([says("Hello Ada.")], [says("Ada.")], [says("I don't know.")])
    agent = make_agent()
    await agent.run("I am Ada.")
    await agent.run("Who am I?")
    assert "I am Ada." in json.dumps(model.requests[1])
    agent.history.clear()
    await agent.run("Who am I?")
    assert "Ada" not in json.dumps(model.requests[2])
    assert (agent.usage.tasks, agent.usage.turns) == (3, 3)


async def test_a_long_history_becomes_the_texts_of_the_newest_tasks(
    model: ModelServer, gateway: AgentGateway, make_agent: MakeAgent
) -> None:
    gateway.runs = [Run(stdout="1")] * 3
    turns = [[uses("execute_code", code="print(1)")], [says("yes")]]
    model.rewrite(*turns * 3)
    agent = make_agent(limits=AgentLimits(history_tokens=35))
    for task in ("first task", "second task", "third task"):
        await agent.run(task)
    sent = model.requests[4][model.conversation]
    assert ("first task" in str(sent), "second task" in str(sent), "third task" in str(sent)) == (False, True, True)
    assert ("print(1)" in str(sent), "thinking" in str(sent)) == (False, False)


async def test_a_task_that_fails_leaves_nothing_in_the_history(model: ModelServer, make_agent: MakeAgent) -> None:
    model.rewrite(Turn(blocks=[says("Half of")], stop="max_tokens" if isinstance(model, MessagesApi) else "length"))
    agent = make_agent()
    with pytest.raises(AgentError, match="stopped without an answer: max_tokens"):
        await agent.run("Write a book.")
    assert agent.history.messages == []
    assert agent.usage.tasks == 1
    assert agent.trace is not None
    assert not agent.trace.succeeded


@pytest.mark.parametrize(
    ("stop", "reason"),
    [
        ("refusal", r"the model refused: \.\.\.; put the task in other words"),
        ("model_context_window_exceeded", "context_full"),
        ("other", "other"),
    ],
)
async def test_a_model_that_stops_otherwise_ends_the_task(
    messages: MessagesApi, make_agent: MakeAgent, stop: str, reason: str
) -> None:
    messages.rewrite(Turn(blocks=[says("...")], stop=stop))
    with pytest.raises(AgentError, match=reason):
        await make_agent().run("task")


async def test_code_of_an_answer_that_reached_its_limit_is_not_run(
    messages: MessagesApi, gateway: AgentGateway, make_agent: MakeAgent
) -> None:
    messages.rewrite(Turn(blocks=[uses("execute_code", code="delete(1")], stop="max_tokens"))
    with pytest.raises(AgentError, match="max_tokens"):
        await make_agent().run("task")
    assert gateway.executions == []


async def test_an_empty_answer_ends_the_task(model: ModelServer, make_agent: MakeAgent) -> None:
    model.rewrite([], [], [])
    with pytest.raises(AgentError, match="empty answer"):
        await make_agent().run("task")


async def test_a_paused_turn_is_continued_with_the_answer_so_far(messages: MessagesApi, make_agent: MakeAgent) -> None:
    messages.rewrite(Turn(blocks=[says("Still")], stop="pause_turn"), [says(" working: done.")])
    answer = await make_agent().run("task")
    assert answer.text == " working: done."
    assert [message["role"] for message in messages.requests[1]["messages"]] == ["user", "assistant"]


@pytest.mark.parametrize("status", [429, 500, 503, 529])
async def test_an_overloaded_api_is_asked_again_when_it_says_so(
    model: ModelServer, make_agent: MakeAgent, status: int
) -> None:
    model.rewrite(refused(status, retry_after_ms="1"), refused(status, retry_after_ms="1"), [says("Here.")])
    assert (await make_agent().run("task")).text == "Here."
    assert (model.attempts, len(model.requests)) == (3, 1)


async def test_an_api_that_stays_overloaded_ends_the_task(model: ModelServer, make_agent: MakeAgent) -> None:
    model.rewrite(*[refused(429, retry_after_ms="1")] * 3)
    with pytest.raises(ModelError, match=r"takes no more requests now: 429 .*, after 3 attempts; try again later"):
        await make_agent().run("task")


@pytest.mark.parametrize("status", [400, 401, 404])
async def test_a_request_that_is_refused_is_not_repeated(
    model: ModelServer, make_agent: MakeAgent, status: int
) -> None:
    model.rewrite(refused(status))
    with pytest.raises(ModelError, match=f"refused the request: {status} "):
        await make_agent().run("task")
    assert model.attempts == 1


@pytest.mark.parametrize("cut", ["reset", "clean", "error"])
async def test_a_request_whose_answer_is_cut_off_is_sent_again(
    model: ModelServer, make_agent: MakeAgent, gateway: AgentGateway, cut: Any
) -> None:
    gateway.runs = [Run()]
    model.rewrite(
        Turn(blocks=[says("The answer to everything is")], cut=cut),
        Turn(blocks=[uses("execute_code", code="print('half')")], cut=cut),
        [uses("execute_code", code="print('whole')")],
        [says("Done.")],
    )
    events = [event async for event in make_agent().stream("task")]
    assert len([event for event in events if isinstance(event, TextDropped)]) == 2
    assert [each["code"] for each in gateway.executions] == ["print('whole')"]
    assert str(events[-1]) == "Done."


async def test_an_answer_that_is_always_cut_off_ends_the_task(model: ModelServer, make_agent: MakeAgent) -> None:
    model.rewrite(*[Turn(blocks=[says("The answer is")], cut="reset")] * 3)
    with pytest.raises(ModelError, match="cut off"):
        await make_agent().run("task")
    assert model.attempts == 3


async def test_the_anthropic_provider_marks_what_the_cache_keeps(
    messages: MessagesApi, gateway: AgentGateway, make_agent: MakeAgent
) -> None:
    gateway.runs = [Run(stdout="1\n")]
    usage = {"cache_read_input_tokens": 700, "cache_creation_input_tokens": 50, "input_tokens": 10}
    messages.rewrite([uses("execute_code", code="1")], Turn(blocks=[says("one")], usage=usage))
    agent = make_agent(prices={"claude-*": PRICE})
    answer = await agent.run("task")
    for request in messages.requests:
        marked = [request["system"][-1], request["tools"][-1], request["messages"][-1]["content"][-1]]
        assert [each["cache_control"] for each in marked] == [{"type": "ephemeral"}] * 3
    first, second = messages.requests
    assert (first["system"], first["tools"]) == (second["system"], second["tools"])
    assert "cache_control" not in json.dumps(second["messages"][:-1])
    tokens = answer.trace.tokens
    assert (tokens.cache_read, tokens.cache_write, tokens.counted) == (700, 50, "provider")
    assert answer.trace.cost == PRICE.calculate(tokens) == agent.usage.cost
    assert answer.trace.definition_tokens > 0


async def test_tokens_are_counted_by_the_provider_before_a_request(
    messages: MessagesApi, make_agent: MakeAgent
) -> None:
    counted = await make_agent().count_tokens("How many?")
    assert (counted.input > 100, counted.counted, messages.attempts) == (True, "provider", 0)


async def test_tokens_that_no_provider_counts_are_marked_as_estimates(chat: ChatApi, make_agent: MakeAgent) -> None:
    usage = {"prompt_tokens": 100, "completion_tokens": 5, "total_tokens": 105}
    cached = usage | {"prompt_tokens_details": {"cached_tokens": 60}}
    chat.rewrite(Turn(blocks=[says("one")], usage=cached), [says("two")])  # type: ignore[arg-type]
    agent = make_agent()
    first = (await agent.run("task")).trace.tokens
    assert (first.input, first.cache_read, first.output, first.counted) == (40, 60, 5, "provider")
    second = (await agent.run("task")).trace.tokens
    assert (second.input > 100, second.counted, agent.usage.tokens.counted) == (True, "estimate", "estimate")
    assert (await agent.count_tokens("task")).counted == "estimate"
    assert chat.requests[0]["max_completion_tokens"] == 32_000
    assert chat.requests[0]["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize("given", ["[1]", "{not json", '"text"'])
async def test_arguments_that_are_no_object_are_the_model_s_to_correct(
    chat: ChatApi, make_agent: MakeAgent, given: str
) -> None:
    chat.rewrite([{"type": "tool_use", "id": "", "name": "execute_code", "input": given}], [says("I see.")])
    await make_agent().run("task")
    assert "Error: the arguments of execute_code are not valid JSON" in last_text(chat)


async def test_code_of_a_model_without_tools_is_taken_from_fenced_blocks(
    chat: ChatApi, gateway: AgentGateway, make_agent: MakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway.runs = [Run(stdout="7\n")]
    chat.rewrite([says("I run this:\n```python\nprint(7)\n```\n")], [says("Seven.")])
    agent = make_agent()
    provider = agent._provider  # noqa: SLF001
    assert isinstance(provider, OpenAIProvider)
    plain = OpenAIProvider("plain", sdk=provider._sdk, supports_tools=False)  # noqa: SLF001
    answer = await make_agent(provider=plain, mode="direct").run("task")
    assert (answer.text, answer.trace.mode) == ("Seven.", "code")
    assert [each["code"] for each in gateway.executions] == ["print(7)"]
    assert "Result of the code" in last_text(chat)
    assert "tools" not in chat.requests[0]


async def test_a_block_in_the_answer_of_a_model_with_tools_is_text(model: ModelServer, make_agent: MakeAgent) -> None:
    model.rewrite([says("Write this:\n```python\nprint(1)\n```")])
    assert "```python" in (await make_agent().run("How do I print 1?")).text


async def test_turns_are_limited(model: ModelServer, make_agent: MakeAgent) -> None:
    model.rewrite(*[[uses("search_tools", query="x")]] * 2)
    with pytest.raises(
        LimitReached, match=r"no answer within 2 turns; --max-turns, or AgentLimits\(turns=\.\.\.\), allows more"
    ) as reached:
        await make_agent(limits=AgentLimits(turns=2)).run("task")
    assert reached.value.limit == "turns"


async def test_tokens_and_money_are_limited(messages: MessagesApi, make_agent: MakeAgent) -> None:
    turn = Turn(blocks=[uses("search_tools", query="x")], usage={"input_tokens": 900, "output_tokens": 50})
    messages.rewrite(turn, turn)
    with pytest.raises(LimitReached, match="used 1900 of 1000 tokens; --max-tokens, or"):
        await make_agent(limits=AgentLimits(tokens=1000)).run("task")
    assert messages.requests[1]["max_tokens"] == 50
    messages.rewrite(turn)
    limits = AgentLimits(money=Decimal("0.001"))
    with pytest.raises(LimitReached, match=r"cost 0\.00345 of 0\.001; --max-money, or"):
        await make_agent(limits=limits, prices={"claude-*": PRICE}).run("task")
    with pytest.raises(AgentError, match="needs a price"):
        await make_agent(limits=limits).run("task")


async def test_time_is_limited_and_running_code_is_cancelled(
    messages: MessagesApi, gateway: AgentGateway, make_agent: MakeAgent
) -> None:
    gateway.runs = [Run(hangs=True)]
    messages.rewrite([uses("execute_code", code="while True: pass")])
    with pytest.raises(LimitReached, match=r"took 0\.3 seconds, .* in execute_code; --max-seconds, or"):
        await make_agent(limits=AgentLimits(seconds=0.3)).run("task")
    assert gateway.cancelled == ["e1"]


async def test_a_model_that_is_silent_is_named_when_the_time_is_over(
    model: ModelServer, make_agent: MakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    model.rewrite([says("Hello.")])
    await make_agent().run("The SDK is imported with this request.")
    released = threading.Event()
    monkeypatch.setattr(model, "reject", lambda path, request: released.wait(30) and None)
    events: list[AgentEvent] = []

    async def note(event: AgentEvent) -> None:
        events.append(event)

    monkeypatch.setattr("mcp_exec_client.agent.agent_task.SILENCE_SECONDS", 0.01)
    said = rf"took 0\.5 seconds, .* for an answer of the model's API at {model.url}\S*; --max-seconds, or"
    with pytest.raises(LimitReached, match=said):
        await make_agent(limits=AgentLimits(seconds=0.5)).run("task", on_event=note)
    released.set()
    waiting = [event.reason for event in events if isinstance(event, Waiting)]
    assert len(waiting) == 1
    assert model.url in waiting[0]


async def test_a_stream_that_is_closed_cancels_its_task(
    messages: MessagesApi, gateway: AgentGateway, make_agent: MakeAgent
) -> None:
    gateway.runs = [Run(hangs=True)]
    messages.rewrite([uses("execute_code", code="while True: pass")], [says("Again.")])
    agent = make_agent()
    stream = agent.stream("task")
    async for event in stream:
        if isinstance(event, RunEvent):
            break
    with pytest.raises(AgentError, match="has a task already"):
        await agent.run("another")
    await stream.aclose()
    assert gateway.cancelled == ["e1"]
    assert (await agent.run("another")).text == "Again."


async def test_a_task_that_is_cancelled_cancels_its_code(
    messages: MessagesApi, gateway: AgentGateway, make_agent: MakeAgent
) -> None:
    gateway.runs = [Run(hangs=True)]
    messages.rewrite([uses("execute_code", code="while True: pass")])
    task = asyncio.create_task(make_agent().run("task"))
    await gateway.started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_task_that_is_cancelled_while_its_code_is_submitted_cancels_the_execution(
    messages: MessagesApi, gateway: AgentGateway, make_agent: MakeAgent
) -> None:
    gateway.created, gateway.runs = asyncio.Event(), [Run(hangs=True)]
    messages.rewrite([uses("execute_code", code="while True: pass")])
    task = asyncio.create_task(make_agent().run("task"))
    await gateway.started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (len(gateway.executions), gateway.cancelled) == (1, ["e1"])


def test_limits_are_more_than_nothing() -> None:
    with pytest.raises(ValueError, match="turns is 0; it must be more than 0"):
        AgentLimits(turns=0)


async def test_thinking_and_effort_are_as_the_application_says(messages: MessagesApi, gateway: AgentGateway) -> None:
    messages.rewrite([says("Done.")])
    async with AsyncAnthropic(api_key=messages_api.KEY, base_url=messages.url) as sdk, gateway.client() as client:
        agent = Agent(client, AnthropicProvider(sdk=sdk, thinking="disabled", effort="low"))
        await agent.run("task")
        assert (await agent.count_tokens("task")).counted == "provider"
    sent = messages.requests[0]
    assert (sent["thinking"], sent["output_config"]) == ({"type": "disabled"}, {"effort": "low"})
    assert sent["max_tokens"] == 32_000


async def test_the_effort_of_a_chat_model_is_as_the_application_says(chat: ChatApi, gateway: AgentGateway) -> None:
    chat.rewrite([says("Done.")])
    async with AsyncOpenAI(api_key=chat_api.KEY, base_url=f"{chat.url}/v1") as sdk, gateway.client() as client:
        await Agent(client, OpenAIProvider("gpt-loopback", sdk=sdk, effort="high")).run("task")
    assert chat.requests[0]["reasoning_effort"] == "high"


async def test_a_model_that_was_retired_is_named_with_the_option_for_another(
    model: ModelServer, make_agent: MakeAgent
) -> None:
    model.rewrite(refused(404))
    agent = make_agent()
    with pytest.raises(ModelError, match=r"it is misspelt, was retired, or .*: check --model NAME") as caught:
        await agent.run("task")
    assert agent.trace is not None
    assert agent.trace.model in str(caught.value)
