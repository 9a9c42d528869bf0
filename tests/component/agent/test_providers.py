"""Providers behind the one interface: platforms of the same models, and models that stand in for others."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from decimal import Decimal
from typing import Any

import pytest
from anthropic import AsyncAnthropic, AsyncAnthropicVertex
from openai import AsyncOpenAI
from tests.support.agent_gateway import AgentGateway, Run
from tests.support.model_servers import chat_api, messages_api
from tests.support.model_servers.chat_api import ChatApi
from tests.support.model_servers.messages_api import MessagesApi
from tests.support.model_servers.script import Request, Turn, refused, says, uses
from tests.support.model_servers.vendors import OllamaWithoutTools

from mcp_exec_client.agent import Agent, ModelError, OfflineProvider, TokenPrice
from mcp_exec_client.agent.providers.anthropic_messages import AnthropicProvider
from mcp_exec_client.agent.providers.fallback import FallbackProvider
from mcp_exec_client.agent.providers.openai import OpenAIProvider
from mcp_exec_client.model_choice import ModelChoice

TOKENS = {"input_tokens": 1_000_000, "output_tokens": 1}


class AzureApi(ChatApi):
    """The chat API as Azure OpenAI has it: the deployment in the path, a header of its own for the key."""

    path = "/openai/deployments/gpt-a/chat/completions"

    def find_problem(self, request: Request, headers: dict[str, str]) -> str:
        return super().find_problem(request, {"authorization": f"Bearer {headers.get('api-key')}"})


class VertexApi(MessagesApi):
    """The Messages API as Vertex AI has it: project, region and model in the path, the version in the body."""

    path = "/projects/p/locations/global/publishers/anthropic/models/claude-a:streamRawPredict"

    def find_problem(self, request: Request, headers: dict[str, str]) -> str:
        version = str(request.get("anthropic_version", ""))
        return super().find_problem(request, {**headers, "anthropic-version": version})

    def build(self, number: int, request: Request, turn: Any) -> Any:
        return super().build(number, {**request, "model": "claude-a"}, turn)


class BedrockApi(MessagesApi):
    """The Messages API as Amazon Bedrock has it, up to the answer, whose stream has a form of its own."""

    path = "/model/claude-a/invoke-with-response-stream"

    def find_problem(self, request: Request, headers: dict[str, str]) -> str:
        version = str(request.get("anthropic_version", ""))
        return super().find_problem(request, {**headers, "anthropic-version": version})


async def run(gateway: AgentGateway, environment: dict[str, str]) -> str:
    async with AsyncExitStack() as stack:
        provider = await ModelChoice.read(environment).open(stack, environment)
        client = await stack.enter_async_context(gateway.client())
        return (await Agent(client, provider).run("task")).text


async def test_a_deployment_of_azure_answers(gateway: AgentGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    with AzureApi([uses("execute_code", code="print(1)")], [says("1")]).serving() as api:
        gateway.runs = [Run(stdout="1")]
        environment = {
            "AZURE_OPENAI_API_KEY": chat_api.KEY,
            "AZURE_OPENAI_ENDPOINT": api.url,
            "AZURE_OPENAI_DEPLOYMENT_NAME": "gpt-a",
        }
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        assert await run(gateway, environment) == "1"
    assert len(api.requests) == 2


async def test_a_resource_of_foundry_answers(gateway: AgentGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    with MessagesApi([uses("execute_code", code="print(1)")], [says("1")]).serving() as api:
        gateway.runs = [Run(stdout="1")]
        environment = {"ANTHROPIC_FOUNDRY_API_KEY": messages_api.KEY, "ANTHROPIC_FOUNDRY_BASE_URL": api.url}
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        assert await run(gateway, environment) == "1"
    assert len(api.requests) == 2


async def test_a_model_of_vertex_answers(gateway: AgentGateway) -> None:
    with VertexApi([uses("execute_code", code="print(1)")], [says("1")]).serving() as api:
        gateway.runs = [Run(stdout="1")]
        sdk = AsyncAnthropicVertex(region="global", project_id="p", access_token=messages_api.KEY, base_url=api.url)
        async with sdk, gateway.client() as client:
            assert (await Agent(client, AnthropicProvider("claude-a", sdk=sdk)).run("task")).text == "1"
    assert len(api.requests) == 2


async def test_a_model_of_bedrock_is_asked_at_its_region_with_its_key(
    gateway: AgentGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    with BedrockApi(refused(403)).serving() as api:
        environment = {"AWS_BEARER_TOKEN_BEDROCK": messages_api.KEY, "AWS_REGION": "eu-west-1", "LLM_MODEL": "claude-a"}
        for name, value in {**environment, "ANTHROPIC_BEDROCK_BASE_URL": api.url}.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(ModelError, match=r"the model's API at \S+ refused the request: .*403"):
            await run(gateway, environment)
    assert api.attempts == 1


@pytest.fixture
async def claude(messages: MessagesApi) -> AsyncIterator[AnthropicProvider]:
    async with AsyncAnthropic(api_key=messages_api.KEY, base_url=messages.url) as sdk:
        yield AnthropicProvider(sdk=sdk)


async def test_a_model_that_fails_for_good_is_replaced_and_the_trace_says_so(
    messages: MessagesApi, chat: ChatApi, gateway: AgentGateway, claude: AnthropicProvider
) -> None:
    gateway.runs = [Run(stdout="1")]
    messages.rewrite([uses("execute_code", code="print(1)")], refused(400))
    chat.rewrite([says("It is 1.")], [says("Still 1.")])
    async with AsyncOpenAI(api_key=chat_api.KEY, base_url=f"{chat.url}/v1") as sdk, gateway.client() as client:
        agent = Agent(client, FallbackProvider([claude, OpenAIProvider("gpt-loopback", sdk=sdk)]))
        trace = (await agent.run("task")).trace
        assert (await agent.run("again")).text == "Still 1."
    steps = [step.text for step in trace.steps if step.kind == "model"]
    assert (steps, trace.model) == ([f"gpt-loopback answers: {claude.model} failed"], "gpt-loopback")
    assert "print(1)" in str(chat.requests[0]["messages"])
    assert messages.attempts == 2


async def test_the_next_model_reads_what_the_failed_one_did_as_text(
    messages: MessagesApi, chat: ChatApi, gateway: AgentGateway, claude: AnthropicProvider
) -> None:
    gateway.runs = [Run(stdout="41"), Run(stdout="42")]
    chat.rewrite([says("Hello.")], [uses("execute_code", code="print(41)")], refused(400))
    messages.rewrite([uses("execute_code", code="print(42)")], [says("It is 42.")], [says("Still 42.")])
    async with AsyncOpenAI(api_key=chat_api.KEY, base_url=f"{chat.url}/v1") as sdk, gateway.client() as client:
        agent = Agent(client, FallbackProvider([OpenAIProvider("gpt-loopback", sdk=sdk), claude]))
        await agent.run("hello")
        assert (await agent.run("task")).text == "It is 42."
        assert (await agent.run("again")).text == "Still 42."
    texts = [message["content"] for message in messages.requests[0]["messages"]]
    assert "print(41)" in texts[3]
    assert "41" in texts[4][0]["text"]
    assert messages.requests[2]["messages"][4]["content"] == texts[4][0]["text"]


async def test_a_model_without_tools_goes_on_by_fenced_code_and_repeats_nothing(
    messages: MessagesApi, gateway: AgentGateway, claude: AnthropicProvider
) -> None:
    gateway.runs = [Run(stdout="41"), Run(stdout="42"), Run(stdout="43")]
    messages.rewrite([says("Hello.")], [uses("execute_code", code="print(41)")], refused(400))
    fenced = [[says(f"```python\nprint({number})\n```")] for number in (42, 43)]
    with OllamaWithoutTools(fenced[0], [says("It is 42.")], fenced[1], [says("It is 43.")]).serving() as local:
        async with AsyncOpenAI(api_key="none", base_url=f"{local.url}/v1") as sdk, gateway.client() as client:
            agent = Agent(client, FallbackProvider([claude, OpenAIProvider("gemma", sdk=sdk)]))
            await agent.run("hello")
            trace = (await agent.run("task")).trace
            assert (await agent.run("again")).text == "It is 43."
    assert [each["code"] for each in gateway.executions] == ["print(41)", "print(42)", "print(43)"]
    texts = [message["content"] for message in local.requests[0]["messages"]]
    assert [text for text in texts if "print(41)" in text or "41" in text] == texts[4:]
    assert ("hello" in texts[1], "tools" in local.requests[0]) == (True, False)
    steps = [step.text for step in trace.steps if step.kind == "model"]
    assert steps[0] == "gemma cannot use tools: its code is taken from fenced blocks"
    assert len(local.paths) == 5


async def test_another_model_of_a_vendor_gets_no_thoughts_of_the_first_one(
    messages: MessagesApi, gateway: AgentGateway
) -> None:
    gateway.runs = [Run(stdout="1"), Run(stdout="2")]
    messages.rewrite(
        [says("Hello.")],
        [uses("execute_code", code="print(1)")],
        refused(404),
        [uses("execute_code", code="print(2)")],
        [says("It is 2.")],
    )
    async with AsyncAnthropic(api_key=messages_api.KEY, base_url=messages.url) as sdk, gateway.client() as client:
        agent = Agent(client, FallbackProvider([AnthropicProvider(name, sdk=sdk) for name in ("claude-a", "claude-b")]))
        await agent.run("hello")
        assert (await agent.run("task")).text == "It is 2."


def price(amount: int) -> TokenPrice:
    """Return a price of uncached input alone."""
    return TokenPrice(input=Decimal(amount), output=Decimal(0), cache_read=Decimal(0), cache_write=Decimal(0))


async def test_tokens_cost_what_the_model_that_answered_costs(messages: MessagesApi, gateway: AgentGateway) -> None:
    messages.rewrite(Turn(blocks=[says("1")], usage=TOKENS), refused(404), Turn(blocks=[says("2")], usage=TOKENS))
    prices = {"claude-a": price(3), "*-b": price(1)}
    async with AsyncAnthropic(api_key=messages_api.KEY, base_url=messages.url) as sdk, gateway.client() as client:
        models = [AnthropicProvider(name, sdk=sdk) for name in ("claude-a", "claude-b")]
        agent = Agent(client, FallbackProvider(models), prices=prices)
        costs = [(await agent.run("task")).trace.cost for _ in range(2)]
    assert costs == [Decimal(3), Decimal(1)]


async def test_the_scripted_model_does_the_tasks_it_knows_if_the_other_fails(
    messages: MessagesApi, gateway: AgentGateway, claude: AnthropicProvider
) -> None:
    gateway.runs = [Run(stdout="3")]
    messages.rewrite(refused(401))
    async with gateway.client() as client:
        answer = await Agent(client, FallbackProvider([claude, OfflineProvider()]), tools=["*.*"]).run("list issues")
    assert "Without a model, a script did this." in answer.text


async def test_the_last_model_s_failure_ends_the_task(
    messages: MessagesApi, gateway: AgentGateway, claude: AnthropicProvider
) -> None:
    messages.rewrite(refused(401))
    async with gateway.client() as client:
        with pytest.raises(ModelError, match="refused the request"):
            await Agent(client, FallbackProvider([claude])).run("task")
