"""The modes direct and hybrid of the MCP endpoint: the SDK's client, a real broker and real MCP servers."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, MCPError
from mcp.server.lowlevel import Server as LowServer
from mcp_types import (
    INVALID_PARAMS,
    CallToolResult,
    ElicitRequestParams,
    ElicitResult,
    ImageContent,
    ListToolsResult,
    TextContent,
    Tool,
    ToolAnnotations,
    ToolListChangedNotification,
)
from tests.component.broker.conftest import TS, World, running
from tests.component.broker.hostile import HostileServer
from tests.component.broker.hostile import result as reply
from tests.component.broker.servers import Toolbox, managed, serving, serving_app, toolbox
from tests.component.gateway.conftest import KEY, OTHER_KEY, SECRETS, Gateway, key_entry, keys_secret, pool
from tests.component.gateway.conftest import serving as serving_gateway
from tests.component.gateway.mcp_client import MODERN, REVISIONS, SESSIONS, connecting
from tests.component.gateway.test_auth import allow
from tests.support.api_server import FakeApiServer
from tests.support.broker import SLICES
from tests.support.constants import DEADLINE
from tests.support.until import until

from mcp_exec_api.constants import POOLS
from mcp_exec_broker.core.calls.pipeline import CallPipeline
from mcp_exec_client import AsyncClient
from mcp_exec_client.agent import Agent, ApprovalQuestion, OfflineProvider
from mcp_exec_common.kube.client import custom_resource_path
from mcp_exec_gateway.features.mcp.server import McpServers
from mcp_exec_gateway.features.tools.service import Tools

DIRECT = "?mode=direct"
BOX_TOOLS = ["add", "big", "destroy", "draw", "echo", "fail", "hang", "headers"]

Object = dict[str, Any]


@dataclass
class Installation:
    """Gateway, broker and the MCP server `box`."""

    gateway: Gateway
    world: World
    box: Toolbox

    @asynccontextmanager
    async def connect(self, revision: str = MODERN, query: str = DIRECT, **options: Any) -> AsyncIterator[Client]:
        async with connecting(self.gateway.url, revision, query=query, **options) as client:
            yield client

    async def read_audit(self, query: str = "") -> list[Object]:
        """Return the records of direct calls that have ended, newest first."""
        await until(lambda: self.world.broker.pipeline.active_calls == 0)
        answer = await self.gateway.ask("GET", f"/v1/audit?source=direct{query}")
        items: list[Object] = answer.json["items"]
        return items

    async def relist(self, **spec: Any) -> None:
        """Change the ToolServer's spec, and wait until the gateway's catalogs have it."""
        self.world.add("box", url=self.box.url, **spec)
        wanted = self.world.api.collections[TS]["box"]["metadata"]["generation"]
        await until(lambda: self.world.status("box").get("observedGeneration") == wanted)
        self.gateway.dependencies.get(Tools).catalogs.expire()


def use(tool: str, **given: Any) -> list[Object]:
    """Return a model's answer that uses a tool."""
    return [{"type": "tool_use", "id": "", "name": tool, "input": given}]


def build_slice(control: str) -> Object:
    """Return the slice of the broker's Service."""
    host, _, port = control.removeprefix("http://").partition(":")
    metadata = {"name": "mcp-exec-broker-x1", "labels": {"kubernetes.io/service-name": "mcp-exec-broker"}}
    endpoint = {"addresses": [host], "targetRef": {"uid": "broker-1"}, "conditions": {"ready": True}}
    ports = [{"name": "control", "port": int(port)}]
    return {"metadata": metadata, "addressType": "IPv4", "endpoints": [endpoint], "ports": ports}


@pytest.fixture
async def made(api: FakeApiServer, tmp_path: Path) -> AsyncIterator[Installation]:
    box = toolbox()

    @box.server.tool(title="A picture", annotations=ToolAnnotations(read_only_hint=True), structured_output=False)
    async def draw() -> list[TextContent | ImageContent]:
        """Draw something."""
        image = ImageContent(data="aGVsbG8=", mime_type="image/png")
        return [TextContent(text="here it is"), image]

    async with serving(box), running(api, tmp_path, namespaces=("agents", "others")) as world:
        world.add("box", url=box.url)
        await world.listed("box")
        api.put(SLICES, build_slice(world.control))
        async with serving_gateway(api, broker_service="mcp-exec-broker") as gateway:
            broker = gateway.dependencies.broker
            assert broker is not None
            await until(broker.addresses)
            yield Installation(gateway, world, box)


@pytest.mark.parametrize("revision", REVISIONS)
async def test_tools_are_listed_and_called_as_their_server_offers_them(made: Installation, revision: str) -> None:
    async with connecting(made.box.url.removesuffix("/mcp"), revision, key=None) as upstream:
        own = {f"box__{tool.name}": tool for tool in (await upstream.list_tools()).tools}
    async with made.connect(revision, f"{DIRECT}&conversation=chat-7") as client:
        tools = (await client.list_tools()).tools
        assert [tool.name for tool in tools] == [f"box__{name}" for name in BOX_TOOLS]
        for tool in tools:
            expected = own[tool.name].model_copy(update={"name": tool.name, "meta": None})
            assert tool.model_copy(update={"meta": None}) == expected
        added = await client.call_tool("box__add", {"a": 1, "b": 2})
        drawn = await client.call_tool("box__draw", {})
        failed = await client.call_tool("box__fail", {})
        wrong = await client.call_tool("box__add", {"a": "one", "b": 2})
        with pytest.raises(MCPError, match="there is no tool 'box__ad'; did you mean box__add") as unknown:
            await client.call_tool("box__ad", {})
    assert (added.structured_content, added.content[0].text, added.is_error) == ({"result": 3}, "3", False)
    assert [block.type for block in drawn.content] == ["text", "image"]
    assert drawn.content[1].data == "aGVsbG8="
    assert (failed.is_error, "it was to be expected" in failed.content[0].text) == (True, True)
    assert (wrong.is_error, wrong.meta["mcp-exec.dev/reason"]) == (True, "InvalidArguments")
    assert "Valid parameters (* = required): a*, b*" in wrong.content[0].text
    assert unknown.value.code == INVALID_PARAMS
    assert made.box.calls == ["add"]
    records = await made.read_audit()
    assert [(each["tool"], each["outcome"]) for each in records] == [
        ("add", "error"),
        ("fail", "error"),
        ("draw", "ok"),
        ("add", "ok"),
    ]
    assert {(each["caller"], each["conversation"], each["pool"], each["execution"]) for each in records} == {
        ("team-a", "chat-7", "default", "")
    }


async def test_a_call_is_recorded_for_the_caller_as_its_executions_are(made: Installation) -> None:
    account = allow(made.gateway.api, "create", "get", "list")
    async with made.connect(REVISIONS[-1], DIRECT, key=account) as client:
        await client.call_tool("box__add", {"a": 1, "b": 2})
    execution = (await made.gateway.post(query="?wait=0", key=account)).json
    assert [each["caller"] for each in await made.read_audit()] == [execution["caller"]]


@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_schema_that_models_refuse_becomes_plain_and_calls_have_the_servers_own_names(
    made: Installation, revision: str
) -> None:
    received: list[Object] = []
    text = {"type": "string"}
    one = {"properties": {"$from": text, "\u65e5": text}, "required": ["$from"]}
    schema = {"type": "object", "oneOf": [one, {"properties": {"url": {"$ref": "#/lost"}}, "required": ["url"]}]}

    async def list_tools(context: Any, params: Any) -> ListToolsResult:
        output = {"type": "object", "properties": {"a": {"$ref": "#/lost"}}}
        return ListToolsResult(
            tools=[Tool(name="send", input_schema=schema, output_schema=output, description="Send.")]
        )

    async def call_tool(context: Any, params: Any) -> CallToolResult:
        received.append(params.arguments)
        return CallToolResult(content=[TextContent(text="{}")], structured_content={"a": 1})

    low = LowServer("odd", on_list_tools=list_tools, on_call_tool=call_tool)
    async with serving_app(low.streamable_http_app()) as url, managed(low.session_manager):
        made.world.add("odd", url=url + "/mcp")
        await made.world.listed("odd")
        made.gateway.dependencies.get(Tools).catalogs.expire()
        async with made.connect(revision, f"{DIRECT}&tools=odd.*") as client:
            [tool] = (await client.list_tools()).tools
            sent = await client.call_tool(tool.name, {"from": "a", "parameter_2": "b"})
            linked = await client.call_tool(tool.name, {"url": "u"})
            refused = await client.call_tool(tool.name, {"parameter_2": "b"})
        async with AsyncClient(made.gateway.url, api_key=KEY) as client:
            provider = OfflineProvider([use("odd__send", **{"from": "c"}), "Done."])
            await Agent(client, provider, mode="direct", tools=["odd.*"]).run("task")
    assert provider.requests[0].tools[0]["input_schema"] == tool.input_schema
    assert tool.input_schema == {
        "type": "object",
        "properties": {
            "from": {**text, "description": '"$from"'},
            "parameter_2": {**text, "description": '"\u65e5"'},
            "url": {},
        },
    }
    assert tool.description == "Send.\n\nPass either from and optionally parameter_2, or url."
    assert tool.output_schema is None
    assert (sent.is_error, linked.is_error, refused.is_error) == (False, False, True)
    assert received == [{"$from": "a", "\u65e5": "b"}, {"url": "u"}, {"$from": "c"}]


async def test_each_tenant_sees_and_calls_the_tools_of_its_own_namespace_key_and_pool(made: Installation) -> None:
    made.world.api.put(custom_resource_path(POOLS, namespace="others"), pool("default"))
    await until(lambda: made.gateway.dependencies.pools.find("others", "default"))
    async with made.connect(key=OTHER_KEY) as client:
        assert (await client.list_tools()).tools == []
        with pytest.raises(MCPError, match="there is no tool 'box__add'"):
            await client.call_tool("box__add", {"a": 1, "b": 2})
    entry = key_entry(KEY, tools=["box.add", "box.fail"], users=["u-*"], directCallsPerMinute=1)
    made.world.api.put(SECRETS, keys_secret(**{"team-a": entry}))
    keys = made.gateway.dependencies.keys
    await until(lambda: (found := keys.find(KEY)) is not None and found.limits.tools is not None)
    async with made.connect() as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["box__add", "box__fail"]
        with pytest.raises(MCPError, match="there is no tool 'box__big'"):
            await client.call_tool("box__big", {"size": 1})
        assert (await client.call_tool("box__add", {"a": 1, "b": 2})).structured_content == {"result": 3}
        limited = await client.call_tool("box__add", {"a": 1, "b": 2})
        assert limited.meta["mcp-exec.dev/reason"] == "RateLimited"
    for query, message in (
        ("&tools=box.big", "may use only box.add, box.fail"),
        ("&user=root", "may name only u-"),
        ("&pool=none", "there is no pool none"),
    ):
        async with made.connect(query=DIRECT + query) as client:
            with pytest.raises(MCPError, match=message):
                await client.call_tool("box__add", {"a": 1, "b": 2})
    async with made.connect(query=f"{DIRECT}&tools=box.fail&user=u-1") as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["box__fail"]
    assert made.box.calls == ["add"]


async def test_hybrid_mode_has_the_tools_of_code_and_those_that_are_marked(made: Installation) -> None:
    own = ["describe_tools", "read_file", "run_code", "run_skill", "save_skill", "search_tools", "write_file"]
    async with made.connect(query="?mode=hybrid") as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == own
    await made.relist(direct=["add", "d*"], policy={"rules": [{"tools": ["destroy"], "action": "Deny"}]})
    made.gateway.finish_all()
    for revision in REVISIONS:
        async with made.connect(revision, "?mode=hybrid") as client:
            names = [tool.name for tool in (await client.list_tools()).tools]
            assert names == [*own, "box__add", "box__draw"]
            assert (await client.call_tool("box__add", {"a": 1, "b": 2})).structured_content == {"result": 3}
            assert not (await client.call_tool("run_code", {"code": "1"})).is_error
            with pytest.raises(MCPError, match="there is no tool 'box__echo'"):
                await client.call_tool("box__echo", {"value": 1})
            assert [prompt.name for prompt in (await client.list_prompts()).prompts] == ["code-mode"]


async def test_an_approval_is_given_in_a_form_by_who_may_approve(made: Installation) -> None:
    shown: list[str] = []
    answers = [
        ElicitResult(action="accept", content={"decision": "Approve"}),
        ElicitResult(action="accept", content={"decision": "Deny", "comment": "not today"}),
        ElicitResult(action="cancel"),
    ]

    async def fill(context: Any, params: ElicitRequestParams) -> ElicitResult:
        shown.append(params.message)
        return answers.pop(0)

    async with made.connect(elicitation_callback=fill) as client:
        refused = await client.call_tool("box__destroy", {"name": "db"})
    async with made.connect(SESSIONS, elicitation_callback=fill) as client:
        older = await client.call_tool("box__destroy", {"name": "db"})
    for result in (refused, older):
        assert result.meta["mcp-exec.dev/reason"] == "ApprovalRequired"
        assert "box.destroy needs an approval, and a direct call does not wait for it" in result.content[0].text
    assert shown == []
    made.world.api.put(SECRETS, keys_secret(**{"team-a": {**key_entry(KEY), "approver": True}}))
    keys = made.gateway.dependencies.keys
    await until(lambda: (found := keys.find(KEY)) is not None and found.entry.approver)
    async with made.connect(elicitation_callback=fill) as client:
        approved = await client.call_tool("box__destroy", {"name": "db"})
        denied = await client.call_tool("box__destroy", {"name": "db"})
        dismissed = await client.call_tool("box__destroy", {"name": "db"})
    assert (approved.is_error, approved.structured_content) == (False, {"result": "gone"})
    assert denied.content[0].text == "box.destroy was not approved by team-a: not today"
    assert dismissed.is_error
    assert shown[0].startswith('Call box.destroy with the parameters "name".\nSize: 13 bytes. Digest: sha256:')
    assert shown[0].endswith('. All arguments are shown.\nArguments: {"name": "db"}')
    assert made.box.calls == ["destroy db"]
    made_call = next(record for record in await made.read_audit() if record["outcome"] == "ok")
    assert (made_call["decision"], made_call["approvedBy"]) == ("Approve", "team-a")


@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_client_that_cancels_cancels_the_call_at_the_server(made: Installation, revision: str) -> None:
    async with made.connect(revision) as client:
        call = asyncio.create_task(client.call_tool("box__hang", {}))
        await asyncio.wait_for(made.box.entered.wait(), DEADLINE)
        call.cancel()
        await asyncio.wait_for(made.box.cancelled.wait(), DEADLINE)
    assert (await made.read_audit())[0]["outcome"] == "cancelled"


@pytest.mark.parametrize("revision", REVISIONS)
async def test_what_a_call_leaves_out_and_what_an_older_server_sends_is_named_and_nothing_is_lost(
    made: Installation, revision: str
) -> None:
    async def give(request: Object, writer: Any) -> None:
        writer.write(reply(request, {"structuredContent": [1, 2]}))

    async with HostileServer().running() as odd:
        properties = {"note": {"type": "string", "nullable": True}, "due": {"type": "string"}}
        odd.tools = [{"name": "act", "inputSchema": {"type": "object", "properties": properties}}]
        odd.replies["act"] = give
        made.world.add("odd", url=odd.url)
        await made.world.listed("odd")
        made.gateway.dependencies.get(Tools).catalogs.expire()
        async with made.connect(revision) as client:
            (tool,) = [tool for tool in (await client.list_tools()).tools if tool.name == "odd__act"]
            assert tool.input_schema["properties"]["note"]["type"] == ["string", "null"]
            answer = await client.call_tool("odd__act", {"note": None, "due": None})
        assert odd.messages[-1]["params"]["arguments"] == {"note": None}
    assert answer.meta is not None
    left_out, kept = answer.meta["mcp-exec.dev/notes"]
    assert left_out == "None was not sent for due: the tool's schema does not accept null there."
    assert kept.startswith("structuredContent is a list")
    shown = answer.structured_content if revision == MODERN else json.loads(answer.content[0].text)
    assert shown == [1, 2]


LISTED: list[tuple[list[Object], list[str]]] = [
    ([], ["[1, 2]"]),
    ([{"type": "text", "text": "two rows"}], ["two rows", "[1, 2]"]),
    ([{"type": "text", "text": "[1,2]"}], ["[1,2]"]),
    ([{"type": "text", "text": "{"}, {"type": "text", "text": "[1]"}], ["{", "[1]", "[1, 2]"]),
]


@pytest.mark.parametrize(("content", "texts"), LISTED)
async def test_a_list_as_structured_content_is_a_text_beside_others_in_older_revisions(
    made: Installation, content: list[Object], texts: list[str]
) -> None:
    async def give(request: Object, writer: Any) -> None:
        writer.write(reply(request, {"content": content, "structuredContent": [1, 2]}))

    async with HostileServer(replies={"act": give}).running() as odd:
        made.world.add("odd", url=odd.url)
        await made.world.listed("odd")
        made.gateway.dependencies.get(Tools).catalogs.expire()
        async with made.connect(REVISIONS[-1]) as client:
            answer = await client.call_tool("odd__act", {})
    assert REVISIONS[-1] != MODERN
    assert [block.text for block in answer.content] == texts
    assert answer.structured_content is None


async def test_a_result_that_does_not_fit_the_gateways_memory_says_that_the_call_was_made(made: Installation) -> None:
    made.gateway.dependencies.memory.limit = 100_000
    async with made.connect() as client:
        fitting = await client.call_tool("box__big", {"size": 10_000})
        large = await client.call_tool("box__big", {"size": 200_000})
    assert len(fitting.content[0].text) == 10_000
    assert large.meta["mcp-exec.dev/reason"] == "ResultTooLarge"
    assert "the tool was called, but its result, of 4" in large.content[0].text
    assert made.gateway.dependencies.memory.used == 0


async def test_a_broker_that_fails_may_have_made_the_call(made: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*call: Any, **options: Any) -> bytes:
        raise RuntimeError("after the call")

    monkeypatch.setattr(CallPipeline, "run_call", fail)
    async with made.connect() as client:
        result = await client.call_tool("box__add", {"a": 1, "b": 2})
    assert (result.is_error, result.meta["mcp-exec.dev/reason"]) == (True, "ConnectionLost")
    assert "the server may have done it all the same" in result.content[0].text


async def test_a_broker_that_is_gone_is_an_error_that_may_pass(made: Installation) -> None:
    async with made.connect() as client:
        await client.list_tools()
        made.world.api.put(SLICES, build_slice("http://127.0.0.1:1"))
        broker = made.gateway.dependencies.broker
        assert broker is not None
        await until(lambda: list(broker.addresses()) == ["127.0.0.1:1"])
        assert len((await client.list_tools()).tools) == len(BOX_TOOLS)
        with pytest.raises(MCPError, match="the call was not made, because no tool broker accepts it") as error:
            await client.call_tool("box__add", {"a": 1, "b": 2})
        assert error.value.code == -32000
        with pytest.raises(MCPError, match="cursor: malformed"):
            await client.list_tools(cursor="after.'")
        with pytest.raises(MCPError, match="there is no prompt"):
            await client.get_prompt("code-mode")


@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_client_learns_of_each_change_of_the_tools_that_it_may_use(
    made: Installation, revision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcp_exec_gateway.features.mcp.server.POLL_SECONDS", 0.02)
    received: asyncio.Queue[str] = asyncio.Queue()

    async def note(message: Any) -> None:
        if isinstance(message, ToolListChangedNotification):
            received.put_nowait("changed")

    slots = made.gateway.dependencies.get(McpServers).listeners
    async with made.connect() as client:  # so that the gateway knows the tools before the stream begins
        await client.list_tools()
    async with made.connect(revision, message_handler=note) as client, AsyncExitStack() as stack:
        if revision == SESSIONS:
            assert client.server_capabilities.tools.list_changed is True
        else:
            stream = await stack.enter_async_context(client.listen(tools_list_changed=True))
        await until(lambda: slots.open == 1)
        await made.relist(deny=["big"])
        async with asyncio.timeout(DEADLINE):
            await (anext(aiter(stream)) if revision == MODERN else received.get())
        assert "box__big" not in [tool.name for tool in (await client.list_tools(cache_mode="refresh")).tools]
    await until(lambda: slots.open == 0)


async def test_streams_of_changes_are_bounded_and_end_with_the_gateway(made: Installation) -> None:
    made.world.api.put(SECRETS, keys_secret(**{"team-a": key_entry(KEY, maxStreams=1)}))
    keys = made.gateway.dependencies.keys
    await until(lambda: (found := keys.find(KEY)) is not None and found.limits.max_streams == 1)
    async with made.connect() as client, client.listen(tools_list_changed=True) as stream:
        with pytest.raises(MCPError, match="has 1 open streams of changes, and 1 are allowed"):
            async with client.listen(tools_list_changed=True):
                pass
        made.gateway.dependencies.shutdown.closing.set()
        async with asyncio.timeout(DEADLINE):
            assert [change async for change in stream] == []
    async with made.connect(SESSIONS, query="") as client:
        assert client.server_capabilities.tools.list_changed is False
    assert (await made.gateway.ask("GET", "/mcp")).status == 405


async def test_an_agent_calls_tools_directly_and_its_application_approves(made: Installation) -> None:
    asked: list[ApprovalQuestion] = []

    async def approve(question: ApprovalQuestion) -> bool:
        asked.append(question)
        return True

    made.world.api.put(SECRETS, keys_secret(**{"team-a": {**key_entry(KEY), "approver": True}}))
    keys = made.gateway.dependencies.keys
    await until(lambda: (found := keys.find(KEY)) is not None and found.entry.approver)
    script = [use("box__add", a=1, b=2), use("box__destroy", name="db"), use("box__ad"), use("box__fail"), "Done."]
    provider = OfflineProvider(script)
    async with AsyncClient(made.gateway.url, api_key=KEY) as client:
        agent = Agent(client, provider, mode="direct", tools=["box.*"], on_approval=approve, conversation="chat-9")
        answer = await agent.run("task")
        by_rules = Agent(client, OfflineProvider(), mode="direct", tools=["box.*"])
        scripted = await by_rules.run("Please add a=20 b=22")
    assert [tool["name"] for tool in provider.requests[0].tools] == [f"box__{name}" for name in BOX_TOOLS]
    results = [request.messages[-1]["content"][0] for request in provider.requests[1:]]
    assert [result["content"] for result in results[:2]] == ['{"result":3}', '{"result":"gone"}']
    assert ("did you mean box__add" in results[2]["content"], results[2]["is_error"]) == (False, True)
    assert "it was to be expected" in results[3]["content"]
    assert (answer.text, [(each.tool, each.arguments) for each in asked]) == (
        "Done.",
        [("box.destroy", '{"name": "db"}')],
    )
    assert scripted.text.endswith('The result: {"result":42}')
    records = [each for each in await made.read_audit() if each["conversation"] == "chat-9"]
    assert [(each["tool"], each["outcome"]) for each in records] == [
        ("fail", "error"),
        ("destroy", "ok"),
        ("destroy", "denied"),
        ("add", "ok"),
    ]
