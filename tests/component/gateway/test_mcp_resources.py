"""Resources for MCP clients: skills with digests, files of workspaces, artifacts, tools, and their completion."""

import base64
import hashlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import yaml
from mcp import MCPError
from mcp_types import PaginatedRequestParams, Request, RequestParams, ResourceTemplateReference, Result
from tests.component.gateway.conftest import KEY, SECRETS, Gateway, key_entry, keys_secret, serving
from tests.component.gateway.mcp_client import MODERN, REVISIONS, connecting
from tests.component.gateway.test_artifacts import PNG, produce
from tests.component.gateway.test_skills import ANN, BOB, approve, save
from tests.support.api_server import FakeApiServer
from tests.support.broker import FakeBroker

from mcp_exec_api.files import Owner
from mcp_exec_common.broker.files import FilesReason
from mcp_exec_gateway.features.mcp.budget import MAX_TOKENS
from mcp_exec_gateway.features.mcp.resources.addresses import MAX_ADDRESS, TEMPLATES
from mcp_exec_gateway.features.mcp.resources.contents import MAX_BYTES

SKILL, WORKSPACE, ARTIFACT, TOOL = (template.uri_template for template in TEMPLATES)
Object = dict[str, Any]


class GetParams(RequestParams):
    uri: str


class Loose(Result):
    model_config = {"extra": "allow"}


@pytest.fixture
async def gateway(api: FakeApiServer, broker: FakeBroker) -> AsyncIterator[Gateway]:
    entries = {"team-a": key_entry(KEY), "bob": key_entry(BOB), "ann": {**key_entry(ANN), "approver": True}}
    api.put(SECRETS, keys_secret(**entries))
    async with serving(api, broker_service="mcp-exec-broker") as made:
        yield made


async def ask(client: Any, method: str, params: RequestParams) -> Object:
    """Send a request of the extension, which the SDK has no method for."""
    request: Any = Request[Any, Any](method=method, params=params)
    found: Object = (await client.session.send_request(request, Loose)).model_dump(by_alias=True)
    return found


async def list_all(client: Any) -> list[Any]:
    found, cursor = [], None
    while True:
        page = await client.list_resources(cursor=cursor)
        found += page.resources
        if (cursor := page.next_cursor) is None:
            return found


@pytest.mark.parametrize("revision", REVISIONS)
async def test_approved_skills_are_served_with_the_digest_of_each_file(gateway: Gateway, revision: str) -> None:
    await approve(gateway, await save(gateway, tags=["weekly", "sum"], instructions='# How "to"\n', name="report"))
    await approve(gateway, await save(gateway, description='Say "no": #1', name="no"))
    await save(gateway, name="draft")
    async with connecting(gateway.url, revision, key=BOB) as client:
        listed = await ask(client, "skills/list", PaginatedRequestParams())
        assert [each["uri"] for each in listed["skills"]] == ["skill://no/SKILL.md", "skill://report/SKILL.md"]
        assert (listed["ttlMs"], listed["cacheScope"]) == (60_000, "private")
        for entry in listed["skills"]:
            got = await ask(client, "skills/get", GetParams(uri=entry["uri"]))
            assert got["skill"] == entry
            for file in entry["resources"]:
                (content,) = (await client.read_resource(file["uri"])).contents
                data = content.text.encode()
                assert (len(data), f"sha256:{hashlib.sha256(data).hexdigest()}") == (file["size"], file["digest"])
            text = (await client.read_resource(entry["uri"])).contents[0].text
            assert yaml.safe_load(text.split("---\n")[1]) == entry["frontmatter"]
        assert entry["frontmatter"]["metadata"] == {"tags": "weekly, sum", "version": "1"}
        assert (await client.read_resource("skill://report/scripts/run.py")).contents[0].mime_type == "text/x-python"
        for uri in ("skill://draft/SKILL.md", "skill://none/SKILL.md", "skill://report/scripts/run.py", "tool://a/b"):
            with pytest.raises(MCPError, match="there is no resource"):
                await ask(client, "skills/get", GetParams(uri=uri))


async def test_the_endpoint_declares_resources_and_skills_where_it_runs_code(gateway: Gateway) -> None:
    for mode, declared in (("code", True), ("direct", False)):
        async with connecting(gateway.url, MODERN, query=f"?mode={mode}") as client:
            found = (await ask(client, "server/discover", RequestParams()))["capabilities"]
        extension = "io.modelcontextprotocol/skills" in found.get("extensions", {})
        assert (extension, "resources" in found, "completions" in found) == (declared, declared, declared)


async def test_a_newer_approved_version_replaces_the_one_before(gateway: Gateway) -> None:
    for number in (1, 2, 3):
        view = await save(gateway, description=f"Number {number}.")
        if number < 3:
            await approve(gateway, view)
    async with connecting(gateway.url, MODERN) as client:
        (entry,) = (await ask(client, "skills/list", PaginatedRequestParams()))["skills"]
    assert entry["frontmatter"]["description"] == "Number 2."


@pytest.mark.parametrize("revision", REVISIONS)
async def test_files_of_the_caller_s_workspaces_are_listed_and_read(
    gateway: Gateway, broker: FakeBroker, revision: str
) -> None:
    await approve(gateway, await save(gateway))
    async with connecting(gateway.url, revision, query="?user=ann") as client:
        for name, path in (("b", "notes/a ü.md"), ("a", "x.csv"), ("b", "z.txt")):
            await client.call_tool("write_file", {"workspace": name, "path": path, "content": f"{name} {path}"})
        owner = Owner(namespace="agents", caller="team-a", user="ann").digest
        broker.files.workspaces[owner, "b"].versions[-1]["p.png"] = PNG
        broker.files.workspaces[owner, "b"].versions[-1]["large.bin"] = bytes(MAX_BYTES + 1)
        listed = await list_all(client)
        assert [each.uri for each in listed] == [
            "skill://report/SKILL.md", "workspace://a/x.csv", "workspace://b/large.bin",
            "workspace://b/notes/a%20%C3%BC.md", "workspace://b/p.png", "workspace://b/z.txt",
        ]  # fmt: skip
        assert (listed[1].mime_type, listed[1].size) == ("text/csv", 7)
        (text,) = (await client.read_resource(listed[3].uri)).contents
        assert (text.text, text.mime_type) == ("b notes/a ü.md", "text/markdown")
        (image,) = (await client.read_resource("workspace://b/p.png")).contents
        assert (base64.b64decode(image.blob), image.mime_type) == (PNG, "image/png")
        with pytest.raises(MCPError, match="at most 1048576 are read: use code"):
            await client.read_resource("workspace://b/large.bin")
        for uri in ("workspace://b/none", "workspace://none/z.txt", "workspace://b/../a/x.csv"):
            with pytest.raises(MCPError, match="there is no resource"):
                await client.read_resource(uri)
    async with connecting(gateway.url, revision) as other:
        assert [each.uri for each in await list_all(other)] == ["skill://report/SKILL.md"]
        with pytest.raises(MCPError, match="there is no resource"):
            await other.read_resource("workspace://b/z.txt")
    assert gateway.dependencies.memory.used == 0


async def test_artifacts_are_read_by_whoever_may_read_the_execution(gateway: Gateway, broker: FakeBroker) -> None:
    name = await produce(gateway, broker, ("plot.png", "image/png", PNG), ("a.csv", "text/csv", b"a,b"))
    async with connecting(gateway.url, MODERN) as client:
        (content,) = (await client.read_resource(f"artifact://{name}/a1")).contents
        assert (content.text, content.mime_type) == ("a,b", "text/csv")
        for uri in (f"artifact://{name}/a2", "artifact://none/a0", "artifact://../a0"):
            with pytest.raises(MCPError, match="there is no resource"):
                await client.read_resource(uri)


async def test_a_tool_is_a_resource_within_the_tools_of_the_url(gateway: Gateway) -> None:
    async with connecting(gateway.url, MODERN, query="?tools=github.*") as client:
        (content,) = (await client.read_resource("tool://github/create_issue")).contents
        assert json.loads(content.text)["import"] == "from servers.github import create_issue"
        for uri in ("tool://my-docs/get-page", "tool://github/none"):
            with pytest.raises(MCPError, match="there is no resource"):
                await client.read_resource(uri)


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "file:///etc/passwd",
        "workspace://",
        "workspace://a",
        "workspace:///a",
        "artifact:a/b",
        "skill://a/" + "b" * MAX_ADDRESS,
    ],
)
async def test_another_address_is_refused_with_those_that_exist(gateway: Gateway, uri: str) -> None:
    async with connecting(gateway.url, MODERN) as client:
        with pytest.raises(MCPError, match=r"resources are skill://\{name\}/\{\+file\}, workspace://"):
            await client.read_resource(uri)


@pytest.mark.parametrize("cursor", ["", "/", "no-workspace", "x" * 4000])
async def test_a_cursor_that_the_server_did_not_return_is_refused(gateway: Gateway, cursor: str) -> None:
    async with connecting(gateway.url, MODERN) as client:
        with pytest.raises(MCPError, match="cursor"):
            await client.list_resources(cursor=cursor)


async def test_a_store_that_does_not_answer_is_an_error_and_not_an_empty_list(
    gateway: Gateway, broker: FakeBroker
) -> None:
    broker.files.refusal = FilesReason.UNAVAILABLE
    async with connecting(gateway.url, MODERN) as client:
        with pytest.raises(MCPError, match=r"unavailable|try again|answer"):
            await client.list_resources()


async def test_variables_of_the_templates_are_completed(gateway: Gateway, broker: FakeBroker) -> None:
    await approve(gateway, await save(gateway))
    name = await produce(gateway, broker, ("a.csv", "text/csv", b"a,b"))
    async with connecting(gateway.url, MODERN) as client:
        assert [each.uri_template for each in (await client.list_resource_templates()).resource_templates] == [
            SKILL, WORKSPACE, ARTIFACT, TOOL,
        ]  # fmt: skip
        for path in ("data/a.csv", "data/b.csv", "notes.md"):
            await client.call_tool("write_file", {"workspace": "w-1", "path": path, "content": "1"})

        async def complete(uri: str, variable: str, value: str, **given: str) -> list[str]:
            ref = ResourceTemplateReference(uri=uri)
            argument = {"name": variable, "value": value}
            found = (await client.complete(ref, argument, context_arguments=given or None)).completion
            assert (found.total, found.has_more) == (len(found.values), False)
            return found.values

        assert await complete(TOOL, "server", "G") == ["github"]
        assert await complete(TOOL, "tool", "create_p", server="github") == ["create_pull_request"]
        assert await complete(TOOL, "tool", "create_p", server="my-docs") == []
        assert await complete(SKILL, "name", "re") == ["report"]
        assert await complete(SKILL, "file", "") == ["SKILL.md", "scripts/run.py"]
        assert await complete(WORKSPACE, "workspace", "w") == ["w-1"]
        assert await complete(WORKSPACE, "path", "data/", workspace="w-1") == ["data/a.csv", "data/b.csv"]
        assert await complete(WORKSPACE, "path", "data/", workspace="other") == []
        assert await complete(ARTIFACT, "id", "", execution=name) == ["a0"]
        assert await complete(ARTIFACT, "id", "", execution="none") == []
        with pytest.raises(MCPError, match=r"'x' cannot be completed; what can be is name of skill://"):
            await complete(TOOL, "x", "")


async def test_definitions_say_how_long_results_are_if_the_application_allows_more(gateway: Gateway) -> None:
    for tokens, expected in ((25_000, None), (40_000, 160_000), (MAX_TOKENS, 400_000)):
        async with connecting(gateway.url, MODERN, query=f"?maxTokens={tokens}") as client:
            tools = (await client.list_tools()).tools
        assert {(tool.meta or {}).get("anthropic/maxResultSizeChars") for tool in tools} == {expected}
