"""The examples of the page about the Python client, and a client that loses its connections, on a real cluster."""

import asyncio

import httpx
import pytest

from mcp_exec_client import AsyncClient
from mcp_exec_client.events import TextEvent
from tests.e2e.support import Cluster
from tests.support.pages import programs


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)


def test_the_examples_of_the_page_print_what_it_shows(url: str, api_key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCP_EXEC_GATEWAY", url)
    monkeypatch.setenv("MCP_EXEC_API_KEY", api_key)
    for program in programs("../README.md") + programs("services/python-client.md"):
        # the key of the installation may not decide on approvals, and nothing waits for one here
        assert program.run() == list(program.shown), f"the example in line {program.line}"


class LosesEverySecondResponse(httpx.AsyncHTTPTransport):
    """Loses responses after the gateway has handled the request."""

    def __init__(self) -> None:
        super().__init__()
        self.requests = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await super().handle_async_request(request)
        self.requests += 1
        if self.requests % 2:
            await response.aclose()
            raise httpx.ReadError("connection reset")
        return response


def test_a_run_whose_responses_are_lost_runs_once_and_its_stream_is_complete(
    installed: Cluster, url: str, api_key: str
) -> None:
    async def run() -> tuple[str, list[str]]:
        async with httpx.AsyncClient(transport=LosesEverySecondResponse()) as http:
            client = AsyncClient(url, api_key=api_key, http=http)
            done = await client.run("import uuid\nprint(uuid.uuid4())", labels={"lost": "yes"})
            texts = [event.text async for event in client.stream(done.name) if isinstance(event, TextEvent)]
            return done.stdout, texts

    stdout, texts = asyncio.run(run())
    assert "".join(texts) == stdout
    assert len(installed.select("CodeExecution", labels="lost=yes")) == 1
