"""Calls of `run_code` by an MCP client for Python: drive.py CLIENT in|out CALLS, in the client's own environment.

`out` opens a session for each call. Each call prints a line: its result as the client shows it.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

URL, KEY = os.environ["MCP_EXEC_URL"], os.environ["MCP_EXEC_API_KEY"]
HEADERS = {"Authorization": f"Bearer {KEY}"}
ARGUMENTS = {"code": "import time; time.time_ns()"}

Call = Callable[[], Awaitable[Any]]


@asynccontextmanager
async def mcp_1() -> AsyncIterator[Call]:
    from mcp import ClientSession
    from mcp.client.streamable_http import streamablehttp_client

    async with (
        streamablehttp_client(URL, headers=HEADERS) as (read, write, _),
        ClientSession(read, write) as session,
    ):
        await session.initialize()
        yield lambda: session.call_tool("run_code", ARGUMENTS)


@asynccontextmanager
async def mcp_2() -> AsyncIterator[Call]:
    import httpx2
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client

    async with (
        httpx2.AsyncClient(headers=HEADERS, timeout=60) as http,
        Client(streamable_http_client(URL, http_client=http)) as client,
    ):
        yield lambda: client.call_tool("run_code", ARGUMENTS)


@asynccontextmanager
async def fastmcp() -> AsyncIterator[Call]:
    from fastmcp import Client
    from fastmcp.client.transports import StreamableHttpTransport

    async with Client(StreamableHttpTransport(URL, headers=HEADERS)) as client:
        yield lambda: client.call_tool("run_code", ARGUMENTS)


@asynccontextmanager
async def langchain() -> AsyncIterator[Call]:
    from langchain_mcp_adapters.client import MultiServerMCPClient
    from langchain_mcp_adapters.tools import load_mcp_tools

    client = MultiServerMCPClient({"mcp-exec": {"transport": "streamable_http", "url": URL, "headers": HEADERS}})
    async with client.session("mcp-exec") as session:
        tools = {tool.name: tool for tool in await load_mcp_tools(session)}
        yield lambda: tools["run_code"].ainvoke(ARGUMENTS)


@asynccontextmanager
async def langchain_default() -> AsyncIterator[Call]:
    """Its default: tools that open a session for each call."""
    from langchain_mcp_adapters.client import MultiServerMCPClient

    client = MultiServerMCPClient({"mcp-exec": {"transport": "streamable_http", "url": URL, "headers": HEADERS}})
    tools = {tool.name: tool for tool in await client.get_tools()}
    yield lambda: tools["run_code"].ainvoke(ARGUMENTS)


@asynccontextmanager
async def pydantic_ai() -> AsyncIterator[Call]:
    from pydantic_ai.mcp import MCPToolset

    toolset: Any = MCPToolset(URL, headers=HEADERS)
    async with toolset:
        yield lambda: toolset.direct_call_tool("run_code", ARGUMENTS)


@asynccontextmanager
async def openai_agents() -> AsyncIterator[Call]:
    from agents.mcp import MCPServerStreamableHttp

    async with MCPServerStreamableHttp({"url": URL, "headers": HEADERS}) as server:
        yield lambda: server.call_tool("run_code", ARGUMENTS)


@asynccontextmanager
async def mcp_use() -> AsyncIterator[Call]:
    from mcp_use import MCPClient

    client = MCPClient.from_dict({"mcpServers": {"mcp-exec": {"url": URL, "headers": HEADERS}}})
    session = await client.create_session("mcp-exec")
    try:
        yield lambda: session.call_tool("run_code", ARGUMENTS)
    finally:
        await client.close_all_sessions()


async def main(name: str, sessions: str, calls: int) -> None:
    if sessions == "in" or name == "langchain":
        # a client of LangChain opens the sessions of `out` itself
        connect = langchain_default if (name, sessions) == ("langchain", "out") else globals()[name]
        async with connect() as call:
            for _ in range(calls):
                print(repr(await call()).replace("\n", " "), flush=True)
        return
    for _ in range(calls):
        async with globals()[name]() as call:
            print(repr(await call()).replace("\n", " "), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
