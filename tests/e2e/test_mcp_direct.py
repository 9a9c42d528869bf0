"""The tools of real MCP servers at `/mcp`, by the SDK's client: the modes direct and hybrid."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitResult

from tests.e2e.support import Cluster, Gateway
from tests.e2e.toolservers import approver, running, stdio, tool_server
from tests.support.pace import paced

pytestmark = pytest.mark.timeout(600)
GIT = "[ -d /data/repo/.git ] || git init -q /data/repo; exec python3 -m mcp_server_git --repository /data/repo"
TOOLS = {"files": 14, "repo": 12, "hub": 26}
"""How many tools each server has."""
MODERN, SESSIONS = "2026-07-28", "legacy"

Object = dict[str, Any]


@pytest.fixture(scope="module")
def servers(installed: Cluster) -> Iterator[Object]:
    """The filesystem, git and archived GitHub servers. The last one reaches nothing."""
    files = tool_server(
        "files", stdio=stdio("mcp-server-filesystem", "/data", dataSize="16Mi"), direct=["read_text_file"]
    )
    repo = tool_server("repo", stdio=stdio("sh", "-c", GIT, dataSize="16Mi"))
    token = {"GITHUB_PERSONAL_ACCESS_TOKEN": "none"}
    hub = tool_server("hub", stdio=stdio("mcp-server-github", env=token), limits={"callTimeoutSeconds": 2})
    with running(installed, files, repo, hub):
        yield files


@asynccontextmanager
async def connecting(url: str, key: str, revision: str, query: str, **options: Any) -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {key}"}
    async with httpx2.AsyncClient(headers=headers, timeout=httpx2.Timeout(30, read=60), trust_env=False) as http:
        transport = streamable_http_client(f"{url}/mcp?pool=runc&{query}", http_client=http)
        async with Client(transport, mode=revision, **options) as client:
            yield client


async def list_names(client: Client) -> list[str]:
    names, cursor = [], None
    while True:
        page = await client.list_tools(cursor=cursor, cache_mode="refresh")
        names += [tool.name for tool in page.tools]
        cursor = page.next_cursor
        if cursor is None:
            return names


async def fails(client: Client, tool: str, **arguments: Any) -> bool:
    """Return whether a call fails, by its result or by an error of the protocol."""
    try:
        return (await client.call_tool(tool, arguments)).is_error
    except MCPError:
        return True


def test_tools_of_real_servers_are_listed_and_called_and_each_call_is_on_record(
    servers: Object, gateway: Gateway, url: str, api_key: str
) -> None:
    conversation = "direct"

    async def work() -> None:
        async with connecting(url, api_key, SESSIONS, f"mode=direct&conversation={conversation}") as client:
            names = await list_names(client)
            assert {server: sum(name.startswith(f"{server}__") for name in names) for server in TOOLS} == TOOLS
            assert names == sorted(names)
            listing = await client.call_tool("files__list_directory", {"path": "/data"})
            status = await client.call_tool("repo__git_status", {"repo_path": "/data/repo"})
            outside = await client.call_tool("files__list_directory", {"path": "/etc"})
            denied = await client.call_tool("files__write_file", {"path": "/data/a", "content": "a"})
            with pytest.raises(MCPError, match="did you mean repo__git_status"):
                await client.call_tool("repo__gitstatus", {})
            assert await fails(client, "hub__search_repositories", query="mcp")
        assert not listing.is_error
        assert "On branch" in status.content[0].text
        assert (outside.is_error, "Access denied" in outside.content[0].text) == (True, True)
        assert denied.meta["mcp-exec.dev/reason"] == "ApprovalRequired"

    asyncio.run(work())
    answer = gateway.client.get("/v1/audit", params={"source": "direct", "limit": 50})
    records = [each for each in answer.json()["items"] if each["conversation"] == conversation]
    assert [(each["server"], each["tool"], each["execution"]) for each in reversed(records)] == [
        ("files", "list_directory", ""),
        ("repo", "git_status", ""),
        ("files", "list_directory", ""),
        ("files", "write_file", ""),
        ("hub", "search_repositories", ""),
    ]
    assert [each["outcome"] for each in reversed(records)][:4] == ["ok", "ok", "error", "denied"]


def test_a_form_approves_a_call_and_hybrid_mode_follows_the_tool_servers(
    servers: Object, installed: Cluster, url: str
) -> None:
    async def approve(context: Any, params: Any) -> ElicitResult:
        assert params.message.startswith('Call files.write_file with the parameters "content", "path".\n')
        assert params.message.endswith('All arguments are shown.\nArguments: {"content": "a\\n", "path": "/data/a"}')
        return ElicitResult(action="accept", content={"decision": "Approve"})

    async def work(key: str) -> None:
        async with connecting(url, key, MODERN, "mode=direct", elicitation_callback=approve) as client:
            written = await client.call_tool("files__write_file", {"path": "/data/a", "content": "a\n"})
            assert not written.is_error, written
        async with connecting(url, key, MODERN, "mode=hybrid") as client:
            assert await list_names(client) == [
                *("describe_tools", "read_file", "run_code", "run_skill", "save_skill", "search_tools", "write_file"),
                "files__read_text_file",
            ]
            read = await client.call_tool("files__read_text_file", {"path": "/data/a"})
            assert read.structured_content == {"content": "a\n"}
            async with client.listen(tools_list_changed=True) as changes, asyncio.timeout(paced(60)):
                change = {"spec": {"direct": ["read_text_file", "list_directory"]}}
                await asyncio.to_thread(installed.merge, "ToolServer", "files", change)
                await anext(aiter(changes))
            assert "files__list_directory" in await list_names(client)
            done = await client.call_tool("run_code", {"code": "6 * 7"})
            assert done.structured_content["result"] == 42

    with approver(installed, url) as client:
        asyncio.run(work(client.headers["Authorization"].removeprefix("Bearer ")))
