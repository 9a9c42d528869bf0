"""The chat service of examples/chat_app as a process, between a loopback model and a gateway in this process."""

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from aiohttp import web
from tests.support.agent_gateway import AgentGateway, tool
from tests.support.model_servers import messages_api
from tests.support.model_servers.messages_api import MessagesApi
from tests.support.pace import paced

ROOT = Path(__file__).parents[3]
_ADDRESS = re.compile(rb"running on (http://\S+)")

Serving = Callable[..., AbstractAsyncContextManager[str]]


@asynccontextmanager
async def serve_gateway(gateway: "AgentGateway | Chat") -> AsyncIterator[str]:
    """Serve a scripted gateway at a port of loopback."""

    async def handle(request: web.Request) -> web.StreamResponse:
        sent = httpx.Request(request.method, str(request.url), content=await request.read())
        answer = await gateway.handle(sent)
        response = web.StreamResponse(status=answer.status_code, headers={"Content-Type": "application/json"})
        await response.prepare(request)
        assert isinstance(answer.stream, httpx.AsyncByteStream)
        async for part in answer.stream:
            await response.write(part)
        return response

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    try:
        yield f"http://{host}:{port}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def serve_chat(*options: str, **environment: str) -> AsyncIterator[str]:
    """Run the chat service and return its address."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ANTHROPIC_", "MCP_EXEC_"))}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "chat_app", "--port", "0", *options),
        cwd=ROOT / "examples",
        env={**kept, **environment},
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    try:
        async with asyncio.timeout(paced(60)):
            while not (found := _ADDRESS.search(line := await process.stderr.readline())):
                assert line, "the chat service ended"
        yield found[1].decode()
    finally:
        process.terminate()
        await asyncio.wait_for(process.communicate(), 20)


@dataclass
class Chat:
    """A chat service between a model and the gateway of the test."""

    model: MessagesApi
    gateway: AgentGateway
    url: str = ""

    async def handle(self, request: httpx.Request) -> httpx.Response:
        return await self.gateway.handle(request)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def chat() -> AsyncIterator[Chat]:
    """A service for all tests of a module, because its start takes seconds. Each test has conversations of its own."""
    with MessagesApi().serving() as model:
        chat = Chat(model, AgentGateway())
        variables = {"ANTHROPIC_API_KEY": messages_api.KEY, "ANTHROPIC_BASE_URL": model.url, "MCP_EXEC_API_KEY": "k"}
        async with serve_gateway(chat) as gateway, serve_chat(MCP_EXEC_GATEWAY=gateway, **variables) as chat.url:
            yield chat


@pytest.fixture
def gateway() -> AgentGateway:
    return AgentGateway(tools=[tool("shop", "list_orders", "list orders", status="string")])


@pytest.fixture
def model(chat: Chat) -> MessagesApi:
    return chat.model.rewrite()


@pytest.fixture
def chat_url(chat: Chat, gateway: AgentGateway, model: MessagesApi) -> str:
    """Address of the chat service, whose model and gateway are those of the test."""
    chat.gateway = gateway
    return chat.url
