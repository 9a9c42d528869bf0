"""MCP clients at `/mcp` on a real cluster: run, progress, cancel, approve, two tenants, and replicas that die."""

import asyncio
import hashlib
import json
import os
import secrets
import sys
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import httpx2
import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp.client import ClaimContext, ClientExtension, ResultClaim
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, ElicitResult, Request, RequestParams, Result

from tests.e2e.support import NAMESPACE, RELEASE, SYSTEM, Cluster
from tests.e2e.toolservers import HARDENED, IMAGE, RESOURCES, patch_keys, running, stdio, tool_server
from tests.support.until import eventually, until_answered

pytestmark = pytest.mark.timeout(300)
MODERN, SESSIONS = "2026-07-28", "2025-11-25"
REVISIONS = (MODERN, SESSIONS)
PAIRS = [("http", MODERN), ("stdio", SESSIONS)]
"""Ways of clients, each with one revision: tests/component/gateway has all."""
SERVER = "mcp-probe"


@dataclass
class Endpoint:
    """The gateway's endpoint, and the ways of clients to it."""

    cluster: Cluster
    url: str
    key: str
    stranger: str
    """Key of another tenant."""
    reports: list[tuple[float, float | None, str | None]] = field(default_factory=list)
    forms: list[str] = field(default_factory=list)

    @asynccontextmanager
    async def connect(
        self, way: str, revision: str, *, key: str | None = None, **options: Any
    ) -> AsyncIterator[Client]:
        """Connect by HTTP, or by `mcp-exec mcp` on stdio."""
        key, mode = key or self.key, revision if revision == MODERN else "legacy"
        if way == "stdio":
            names = ("PATH", "HOME", "MCP_EXEC_PLAIN_HTTP")
            kept = {name: os.environ[name] for name in names if name in os.environ}
            bridge = StdioServerParameters(
                command=sys.executable,
                args=["-m", "mcp_exec_client", "mcp", "--gateway", self.url],
                env={**kept, "MCP_EXEC_API_KEY": key, "XDG_CONFIG_HOME": "/nonexistent"},
            )
            async with Client(bridge, mode=mode, **options) as client:
                yield client
            return
        headers = {"Authorization": f"Bearer {key}"}
        async with httpx2.AsyncClient(headers=headers, timeout=httpx2.Timeout(60), trust_env=False) as http:
            transport = streamable_http_client(f"{self.url}/mcp", http_client=http)
            async with Client(transport, mode=mode, **options) as client:
                yield client

    async def note(self, progress: float, total: float | None, message: str | None) -> None:
        self.reports.append((progress, total, message))

    async def approve(self, context: Any, params: Any) -> ElicitResult:
        self.forms.append(params.message)
        return ElicitResult(action="accept", content={"decision": "Approve"})

    def find(self, description: str) -> dict[str, Any]:
        """Return the one execution with a description."""
        found = [
            item for item in self.cluster.select("CodeExecution") if item["spec"].get("description") == description
        ]
        assert len(found) == 1, [item["metadata"]["name"] for item in found]
        return found[0]


@pytest.fixture(scope="module")
def endpoint(installed: Cluster, url: str, runtimes: dict[str, str | None]) -> Iterator[Endpoint]:
    """The endpoint with two tenants, the first of them may approve, and a server whose tool needs an approval."""
    keys = {name: f"mcpx_{secrets.token_urlsafe(32)}" for name in ("mcp-one", "mcp-two")}
    entries = {
        "mcp-one": {"namespace": NAMESPACE, "approver": True},
        "mcp-two": {"namespace": NAMESPACE, "limits": {"tools": ["nothing.*"]}},
    }
    data = {
        name: b64encode(json.dumps({"sha256": hashlib.sha256(keys[name].encode()).hexdigest(), **entry}).encode())
        for name, entry in entries.items()
    }
    patch_keys(installed, {name: text.decode() for name, text in data.items()})
    probe = stdio("python3", "-m", "mcp_exec_servers.probe", runtime=runtimes.get("gvisor"))
    try:
        with running(installed, tool_server(SERVER, stdio=probe)):
            yield Endpoint(installed, url, keys["mcp-one"], keys["mcp-two"])
    finally:
        patch_keys(installed, dict.fromkeys(keys))


async def soon(holds: Callable[[], Any], *, what: str) -> Any:
    """Wait for something that clients of this event loop do."""
    return await asyncio.to_thread(eventually, holds, seconds=60, every=0.1, what=what)


CODE = f"""
import asyncio
from servers.{SERVER.replace("-", "_")} import delete_everything
print("first line")
progress(1, 2, "half")
await asyncio.sleep(0.3)
await delete_everything(confirm=True)
progress(2, 2, "all")
{{"done": True}}
"""


@pytest.mark.parametrize(("way", "revision"), PAIRS)
async def test_clients_run_code_see_its_progress_and_approve_its_calls(
    endpoint: Endpoint, way: str, revision: str
) -> None:
    endpoint.reports.clear()
    endpoint.forms.clear()
    async with endpoint.connect(way, revision, elicitation_callback=endpoint.approve) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == [
            *("describe_tools", "read_file", "run_code", "run_skill", "save_skill", "search_tools", "write_file")
        ]
        found = await client.call_tool("search_tools", {"query": "delete everything"})
        assert SERVER in found.content[0].text
        prompt = await client.get_prompt("code-mode")
        assert SERVER in prompt.messages[0].content.text
        result = await client.call_tool("run_code", {"code": CODE}, progress_callback=endpoint.note)
        failed = await client.call_tool("run_code", {"code": "print('x' * 100_000)\n1 / 0"})
    assert result.structured_content["result"] == {"done": True}, result
    assert f"{SERVER}.delete_everything" in endpoint.forms[0]
    assert (1, 2, "half") in endpoint.reports
    assert (2, 2, "all") in endpoint.reports
    assert any(message == "first line" for _, _, message in endpoint.reports)
    assert failed.is_error
    assert "ZeroDivisionError" in failed.content[0].text
    assert len(failed.content[0].text) <= 20_000


@pytest.mark.parametrize(("way", "revision"), PAIRS)
async def test_a_call_that_is_cancelled_ends_its_execution(endpoint: Endpoint, way: str, revision: str) -> None:
    description = f"cancelled by {way} in {revision} {secrets.token_hex(4)}"
    endpoint.reports.clear()
    code = "import time\nprint('started')\ntime.sleep(100)"
    arguments = {"code": code, "description": description, "timeout": 120}
    async with endpoint.connect(way, revision) as client:
        running = asyncio.create_task(client.call_tool("run_code", arguments, progress_callback=endpoint.note))
        await soon(lambda: endpoint.reports, what="the code prints")
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        execution = await asyncio.to_thread(endpoint.find, description)
        name = execution["metadata"]["name"]
        status = await asyncio.to_thread(endpoint.cluster.finished, name, seconds=30)
    assert status["phase"] == "Cancelled"


async def test_a_wrong_key_is_refused_and_tenants_do_not_reach_each_other(endpoint: Endpoint) -> None:
    revision = SESSIONS
    description = f"of the first tenant {secrets.token_hex(4)}"
    with pytest.raises((MCPError, ExceptionGroup)):
        async with endpoint.connect("http", revision, key="mcpx_wrong") as client:
            await client.list_tools()
    endpoint.reports.clear()
    async with (
        endpoint.connect("http", revision) as client,
        endpoint.connect("http", revision, key=endpoint.stranger) as stranger,
    ):
        arguments = {"code": "import time\nprint('on')\ntime.sleep(1.5)\n'mine'", "description": description}
        running = asyncio.create_task(client.call_tool("run_code", arguments, progress_callback=endpoint.note))
        await soon(lambda: endpoint.reports, what="the code prints")
        found = await stranger.call_tool("search_tools", {"query": ""})
        assert [tool for tool in found.structured_content["tools"] if tool.get("kind") != "skill"] == []
        denied = await stranger.call_tool("run_code", {"code": "1", "tools": [f"{SERVER}.*"]})
        assert denied.is_error
        (name,) = [
            item["metadata"]["name"]
            for item in endpoint.cluster.select("CodeExecution")
            if item["spec"].get("description") == description
        ]
        await cancel_as(endpoint, endpoint.stranger, name)
        assert (await running).structured_content["result"] == "mine"


async def cancel_as(endpoint: Endpoint, key: str, name: str) -> None:
    """Try what a client that guesses ids can do to the run of another: follow it, and cancel it."""
    from mcp_exec_gateway.core.events.follower import StreamPosition
    from mcp_exec_gateway.features.mcp.transport.tokens import ResumePoint

    token = str(ResumePoint(execution=name, position=StreamPosition(), request_id=2))
    headers = {"Authorization": f"Bearer {key}", "Accept": "text/event-stream", "Last-Event-ID": token}
    headers |= {"Mcp-Session-Id": f"{SESSIONS}.0.{'0' * 32}"}
    async with httpx2.AsyncClient(headers=headers, trust_env=False) as http:
        assert "there is no execution" in (await http.get(f"{endpoint.url}/mcp")).text
        cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}}
        assert (await http.post(f"{endpoint.url}/mcp", json=cancel)).status_code == 202


NODE = """
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
const headers = { Authorization: `Bearer ${process.env.KEY}` };
const transport = new StreamableHTTPClientTransport(new URL(process.env.URL), { requestInit: { headers } });
const client = new Client({ name: "node", version: "1" });
const reports = [];
await client.connect(transport);
const tools = (await client.listTools()).tools.map((tool) => tool.name);
const code = "import time\\nprogress(1, 2, 'half')\\nprint('from Python')\\ntime.sleep(1)\\n6 * 7";
const onprogress = (report) => reports.push(report);
const result = await client.callTool({ name: "run_code", arguments: { code } }, undefined, { onprogress });
const failed = await client.callTool({ name: "run_code", arguments: { code: "oops" } });
console.log("OUTCOME " + JSON.stringify({ tools, result, failed, reports }));
await client.close();
"""


def test_the_client_of_npm_runs_code_from_a_pod(endpoint: Endpoint) -> None:
    service = endpoint.cluster.get("Service", f"{RELEASE}-gateway", namespace=SYSTEM)["spec"]
    address = f"http://{service['clusterIP']}:{service['ports'][0]['port']}/mcp"
    container = {
        "name": "client",
        "image": IMAGE,
        "command": ["node", "--input-type=module", "-e", NODE],
        "workingDir": "/opt/mcp-exec/npm",
        "env": [{"name": "URL", "value": address}, {"name": "KEY", "value": endpoint.key}],
        "resources": RESOURCES,
        "securityContext": HARDENED,
    }
    spec = {"restartPolicy": "Never", "automountServiceAccountToken": False, "containers": [container]}
    metadata = {"name": "mcp-node-client", "namespace": NAMESPACE}
    endpoint.cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    try:
        ended = ("Succeeded", "Failed")
        eventually(
            lambda: endpoint.cluster.get("Pod", "mcp-node-client")["status"].get("phase") in ended,
            seconds=120, every=0.3, what="the client has ended",
        )  # fmt: skip
        log = endpoint.cluster.logs("mcp-node-client")
    finally:
        endpoint.cluster.delete("Pod", "mcp-node-client", wait=False)
    outcome = json.loads(log.partition("OUTCOME ")[2] or "{}")
    assert outcome, log
    own = ["describe_tools", "read_file", "run_code", "run_skill", "save_skill", "search_tools", "write_file"]
    assert outcome["tools"] == own
    assert (outcome["result"]["structuredContent"]["result"], outcome["result"]["isError"]) == (42, False)
    assert outcome["failed"]["isError"]
    assert "half" in [report.get("message") for report in outcome["reports"]]


async def test_runs_go_on_when_the_replicas_of_the_gateway_are_killed(endpoint: Endpoint) -> None:
    """Both replicas, so that it hits every client wherever it is connected."""
    code = "import time\nfor number in range(10):\n    progress(number, 10)\n    time.sleep(0.5)\n'survived'"
    descriptions = {revision: f"killed in {revision} {secrets.token_hex(4)}" for revision in REVISIONS}
    endpoint.reports.clear()
    pods = endpoint.cluster.names("Pod", namespace=SYSTEM, labels="app.kubernetes.io/component=gateway")
    async with endpoint.connect("stdio", MODERN) as modern, endpoint.connect("stdio", SESSIONS) as classic:
        runs = [
            asyncio.create_task(
                client.call_tool(
                    "run_code",
                    {"code": code, "description": descriptions[revision]},
                    progress_callback=endpoint.note,
                )
            )
            for client, revision in ((modern, MODERN), (classic, SESSIONS))
        ]
        await soon(lambda: len(endpoint.reports) > 3, what="both runs report")
        command = ("delete", "pod", "-n", SYSTEM, "--grace-period=0", "--force", *pods)
        await asyncio.to_thread(endpoint.cluster.kubectl, *command)
        results = await asyncio.gather(*runs)
    assert [result.structured_content["result"] for result in results] == ["survived", "survived"]
    for description in descriptions.values():
        assert not endpoint.find(description)["spec"].get("cancelRequested")
    endpoint.cluster.rolled_out(f"{RELEASE}-gateway", namespace=SYSTEM, seconds=60)


class Task(Result):
    """A task in place of a call's result."""

    result_type: Literal["task"]
    task_id: str


class TaskParams(RequestParams):
    """Parameters of `tasks/get` and `tasks/update`."""

    task_id: str
    input_responses: dict[str, Any] | None = None


APPROVE = {"action": "accept", "content": {"decision": "Approve"}}


class Tasks(ClientExtension):
    """What a client adds to the SDK, which has no tasks of revision 2026-07-28: it asks until the run has ended."""

    identifier = "io.modelcontextprotocol/tasks"

    def __init__(self) -> None:
        self.states: list[dict[str, Any]] = []

    def claims(self) -> list[ResultClaim[Task]]:
        return [ResultClaim(result_type="task", model=Task, resolve=self.follow)]

    async def ask(self, context: ClaimContext, method: str, params: TaskParams) -> dict[str, Any]:
        found = await context.session.send_request(Request[Any, Any](method=method, params=params), OpenResult)
        return found.model_dump(by_alias=True)

    async def follow(self, task: Task, context: ClaimContext) -> CallToolResult:
        async def look() -> CallToolResult | None:
            state = await self.ask(context, "tasks/get", TaskParams(task_id=task.task_id))
            self.states.append(state)
            if given := dict.fromkeys(state.get("inputRequests") or {}, APPROVE):
                await self.ask(context, "tasks/update", TaskParams(task_id=task.task_id, input_responses=given))
            return CallToolResult.model_validate(state["result"]) if "result" in state else None

        return await until_answered(look, every=1, seconds=90)


async def test_a_long_run_is_a_task_that_any_replica_answers_and_that_waits_for_an_approval(endpoint: Endpoint) -> None:
    tasks, code = Tasks(), CODE.replace("0.3", "11")
    async with endpoint.connect("http", MODERN, elicitation_callback=endpoint.approve, extensions=[tasks]) as client:
        result = await client.call_tool("run_code", {"code": code, "timeout": 60, "tools": [f"{SERVER}.*"]})
    assert (result.structured_content["result"], result.is_error) == ({"done": True}, False)
    assert {state["status"] for state in tasks.states} >= {"working", "input_required", "completed"}
    (name,) = {state["taskId"] for state in tasks.states}
    assert endpoint.cluster.get("CodeExecution", name)["status"]["phase"] == "Succeeded"


class SkillParams(RequestParams):
    """Parameters of `skills/get`."""

    uri: str


class OpenResult(Result):
    """A result of an extension, which the SDK does not know."""

    model_config = {"extra": "allow"}


FILES = """
open("notes.md", "w").write("from the sandbox")
show("a,b", "table.csv", media_type="text/csv")
"""


async def test_what_code_left_is_read_as_resources_by_its_owner_alone(endpoint: Endpoint) -> None:
    async with endpoint.connect("http", MODERN) as client:
        done = await client.call_tool("run_code", {"code": FILES, "workspace": "mcp-resources"})
        assert not done.is_error, done.content
        execution, (artifact,) = done.structured_content["execution"], done.structured_content["artifacts"]
        listed, cursor = [], None
        while True:
            page = await client.list_resources(cursor=cursor)
            listed += [each.uri for each in page.resources]
            if (cursor := page.next_cursor) is None:
                break
        address, shown = "workspace://mcp-resources/notes.md", f"artifact://{execution}/{artifact['id']}"
        assert {address, "skill://profile-table/SKILL.md"} <= set(listed)
        assert (await client.read_resource(address)).contents[0].text == "from the sandbox"
        assert (await client.read_resource(shown)).contents[0].text == "a,b"
        request: Any = Request[Any, Any](method="skills/get", params=SkillParams(uri="skill://profile-table/SKILL.md"))
        entry = (await client.session.send_request(request, OpenResult)).model_dump()["skill"]
        for file in entry["resources"]:
            text = (await client.read_resource(file["uri"])).contents[0].text
            assert f"sha256:{hashlib.sha256(text.encode()).hexdigest()}" == file["digest"]
    async with endpoint.connect("http", MODERN, key=endpoint.stranger) as stranger:
        with pytest.raises(MCPError, match="there is no resource"):
            await stranger.read_resource(address)
