"""An agent between a gateway in the process and loopback servers of models, under the real SDKs."""

from collections.abc import AsyncIterator, Iterator
from typing import Any, Protocol

import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI
from tests.support.agent_gateway import AgentGateway, tool
from tests.support.model_servers import chat_api, messages_api
from tests.support.model_servers.chat_api import ChatApi
from tests.support.model_servers.messages_api import MessagesApi
from tests.support.model_servers.responses_api import ResponsesApi
from tests.support.model_servers.server import ModelServer

from mcp_exec_client.agent import Agent
from mcp_exec_client.agent.providers.anthropic_messages import AnthropicProvider
from mcp_exec_client.agent.providers.openai import OpenAIProvider, OpenAIResponsesProvider


class MakeAgent(Protocol):
    """Returns an agent with these options."""

    def __call__(self, **options: Any) -> Agent: ...


@pytest.fixture(scope="session")
def messages_server() -> Iterator[MessagesApi]:
    with MessagesApi().serving() as server:
        yield server


@pytest.fixture(scope="session")
def chat_server() -> Iterator[ChatApi]:
    with ChatApi().serving() as server:
        yield server


@pytest.fixture(scope="session")
def responses_server() -> Iterator[ResponsesApi]:
    with ResponsesApi().serving() as server:
        yield server


@pytest.fixture(params=["anthropic", "openai", "openai-responses"])
def model(
    request: pytest.FixtureRequest,
    messages_server: MessagesApi,
    chat_server: ChatApi,
    responses_server: ResponsesApi,
) -> ModelServer:
    """Each API in turn."""
    servers = {"anthropic": messages_server, "openai": chat_server, "openai-responses": responses_server}
    server: ModelServer = servers[request.param]
    return server.rewrite()


@pytest.fixture
def messages(messages_server: MessagesApi) -> MessagesApi:
    return messages_server.rewrite()


@pytest.fixture
def chat(chat_server: ChatApi) -> ChatApi:
    return chat_server.rewrite()


@pytest.fixture
def gateway() -> AgentGateway:
    return AgentGateway(tools=[tool("github", "list_issues", "list issues", repo="string"), tool("time", "now")])


@pytest.fixture
async def make_agent(gateway: AgentGateway, request: pytest.FixtureRequest) -> AsyncIterator[MakeAgent]:
    """Make an agent whose model is the server of the test; it never really waits."""
    delays: list[float] = []
    client = gateway.client()

    async def sleep(seconds: float) -> None:
        delays.append(seconds)

    names = [name for name in ("model", "messages", "chat") if name in request.fixturenames]
    server = request.getfixturevalue(names[0]) if names else None
    provider: Any = None
    if isinstance(server, MessagesApi):
        provider = AnthropicProvider(sdk=AsyncAnthropic(api_key=messages_api.KEY, base_url=server.url))
    elif isinstance(server, ResponsesApi):
        sdk = AsyncOpenAI(api_key=chat_api.KEY, base_url=f"{server.url}/v1")
        provider = OpenAIResponsesProvider("gpt-loopback", sdk=sdk)
    elif isinstance(server, ChatApi):
        sdk = AsyncOpenAI(api_key=chat_api.KEY, base_url=f"{server.url}/v1")
        provider = OpenAIProvider("gpt-loopback", sdk=sdk)

    def make(**options: Any) -> Agent:
        given = {"tools": ["github.*", "time.*"], "sleep": sleep, **options}
        chosen = given.pop("provider", provider)
        return Agent(client, chosen, **given)

    yield make
    if provider is not None:
        await provider.aclose()
    await client.aclose()
