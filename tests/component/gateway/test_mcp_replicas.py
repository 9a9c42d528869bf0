"""MCP requests that reach different replicas: no replica knows anything that another does not."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
from tests.component.gateway.conftest import DEADLINE, OTHER_KEY, Gateway, serving
from tests.component.gateway.mcp_client import MODERN, SESSIONS
from tests.component.gateway.test_mcp_runs import Scene, playing
from tests.support.api_server import FakeApiServer
from tests.support.until import until

Object = dict[str, Any]
CAPABILITIES = {"elicitation": {}}
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": CAPABILITIES,
}
RUN = {"name": "run_code", "arguments": {"code": "work()"}}


@dataclass
class Replicas:
    """Two replicas in front of one cluster, and a run at the first."""

    first: Scene
    second: Gateway

    @property
    def gateway(self) -> Gateway:
        return self.first.gateway


@pytest.fixture
async def replicas(api: FakeApiServer) -> AsyncIterator[Replicas]:
    async with playing(api) as first, serving(api, sandbox_port=first.supervisor.port) as second:
        yield Replicas(first, second)


def modern(method: str, id: int = 1, **params: Any) -> Object:
    headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": method, "Mcp-Name": str(params.get("name", ""))}
    body = {"jsonrpc": "2.0", "id": id, "method": method, "params": {**params, "_meta": ENVELOPE}}
    return {"json": body, "headers": {"Accept": "application/json, text/event-stream", **headers}}


def classic(message: Object, session: str = "") -> Object:
    headers = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": SESSIONS}
    return {
        "json": {"jsonrpc": "2.0", **message},
        "headers": headers | ({"Mcp-Session-Id": session} if session else {}),
    }


async def initialize(gateway: Gateway) -> str:
    params = {"protocolVersion": SESSIONS, "capabilities": CAPABILITIES, "clientInfo": {"name": "t", "version": "1"}}
    answer = await gateway.ask("POST", "/mcp", **classic({"id": 0, "method": "initialize", "params": params}))
    assert answer.json["result"]["protocolVersion"] == SESSIONS
    session: str = answer.headers["Mcp-Session-Id"]
    return session


class Events:
    """Events of a response, as they arrive."""

    def __init__(self, content: Any) -> None:
        self.content = content
        self.last_id = ""

    async def next(self) -> Object | None:
        """Return the next message, or None at the end."""
        async with asyncio.timeout(DEADLINE):
            async for line in self.content:
                if line.startswith(b"id: "):
                    self.last_id = line[4:].decode().strip()
                if line.startswith(b"data: "):
                    message: Object = json.loads(line[6:])
                    return message
        return None


async def test_a_run_is_resumed_at_another_replica_where_its_stream_broke(replicas: Replicas) -> None:
    first, session = replicas.first, await initialize(replicas.gateway)
    call = {"id": 7, "method": "tools/call", "params": {**RUN, "_meta": {"progressToken": "p"}}}
    async with replicas.gateway.request("POST", "/mcp", **classic(call, session)) as response:
        await first.bind()
        first.supervisor.say("stdout", text="one\n")
        events = Events(response.content)
        report = await events.next()
        assert report is not None
        assert report["params"]["message"] == "one"
    headers = {"Accept": "text/event-stream", "Mcp-Session-Id": session, "Last-Event-ID": events.last_id}
    async with replicas.second.request("GET", "/mcp", headers=headers) as response:
        assert response.status == 200
        resumed = Events(response.content)
        first.supervisor.say("stdout", text="two\n")
        report = await resumed.next()
        assert report is not None
        assert (report["params"]["progressToken"], report["params"]["message"]) == ("p", "two")
        first.finish(output={"stdout": "one\ntwo\n", "stderr": "", "truncated": False})
        outcome = await resumed.next()
    assert outcome is not None
    assert (outcome["id"], outcome["result"]["structuredContent"]["stdout"]) == (7, "one\ntwo\n")
    assert not first.is_cancelled


async def test_a_replica_that_ends_sends_its_clients_to_another(replicas: Replicas) -> None:
    first = replicas.first
    asking = asyncio.create_task(replicas.gateway.ask("POST", "/mcp", **modern("tools/call", **RUN)))
    await first.bind()
    await until(lambda: replicas.gateway.dependencies.index.wait_count)
    replicas.gateway.dependencies.index.shut_down()
    interim = (await asking).json["result"]
    assert (interim["resultType"], interim.get("inputRequests")) == ("input_required", None)
    again = modern("tools/call", id=2, **RUN, requestState=interim["requestState"])
    asking = asyncio.create_task(replicas.second.ask("POST", "/mcp", **again))
    await until(lambda: replicas.second.dependencies.index.wait_count)
    first.finish()
    result = (await asking).json["result"]
    assert result["structuredContent"]["phase"] == "Succeeded"
    assert len(replicas.gateway.executions) == 1


async def test_a_replica_that_ends_closes_streams_that_can_be_resumed(replicas: Replicas) -> None:
    first, session = replicas.first, await initialize(replicas.gateway)
    call = {"id": 7, "method": "tools/call", "params": RUN}
    async with replicas.gateway.request("POST", "/mcp", **classic(call, session)) as response:
        await first.bind()
        await until(lambda: replicas.gateway.dependencies.index.wait_count)
        replicas.gateway.dependencies.index.shut_down()
        events = Events(response.content)
        assert await events.next() is None
    assert events.last_id


async def test_a_cancellation_reaches_the_run_of_another_replica_in_the_same_session_alone(replicas: Replicas) -> None:
    first, session = replicas.first, await initialize(replicas.gateway)
    cancel = {"method": "notifications/cancelled", "params": {"requestId": 7}}
    call = {"id": 7, "method": "tools/call", "params": RUN}
    asking = asyncio.create_task(replicas.gateway.ask("POST", "/mcp", **classic(call, session)))
    await first.bind()
    answer = await replicas.second.ask("POST", "/mcp", **classic(cancel, await initialize(replicas.second)))
    assert (answer.status, first.is_cancelled) == (202, False)
    answer = await replicas.second.ask("POST", "/mcp", key=OTHER_KEY, **classic(cancel, session))
    assert (answer.status, first.is_cancelled) == (401, False)
    answer = await replicas.second.ask("POST", "/mcp", **classic(cancel, session))
    assert (answer.status, first.is_cancelled) == (202, True)
    first.finish(phase="Cancelled", reason="Cancelled")
    assert "Cancelled" in (await asking).text


async def test_a_filled_form_may_arrive_at_another_replica(replicas: Replicas) -> None:
    first, session = replicas.first, await initialize(replicas.gateway)
    call = {"id": 7, "method": "tools/call", "params": RUN}
    async with replicas.gateway.request("POST", "/mcp", **classic(call, session)) as response:
        await first.bind()
        first.wait_for_approval("a1")
        events = Events(response.content)
        form = await events.next()
        assert form is not None
        assert form["method"] == "elicitation/create"
        reply = {"id": form["id"], "result": {"action": "accept", "content": {"decision": "Approve"}}}
        assert (await replicas.second.ask("POST", "/mcp", **classic(reply, session))).status == 202
        assert [each["decision"] for each in first.decisions] == ["Approve"]
        first.finish()
        outcome = await events.next()
    assert outcome is not None
    assert outcome["result"]["structuredContent"]["phase"] == "Succeeded"


async def test_a_state_that_names_a_run_of_another_caller_means_nothing(replicas: Replicas) -> None:
    first, session = replicas.first, await initialize(replicas.gateway)
    call = {"id": 7, "method": "tools/call", "params": RUN}
    async with replicas.gateway.request("POST", "/mcp", **classic(call, session)) as response:
        await first.bind()
        events = Events(response.content)
        first.finish()
        await events.next()
    first.gateway.api.merge(
        "/apis/mcp-exec.dev/v1beta1/namespaces/agents/codeexecutions",
        first.name,
        {"metadata": {"labels": {"mcp-exec.dev/caller": "somebody"}}},
    )
    answer = await replicas.second.ask("POST", "/mcp", **modern("tools/call", **RUN, requestState=events.last_id))
    assert (answer.status, answer.json["error"]["message"][:21]) == (400, "there is no execution")
    answer = await replicas.second.ask("POST", "/mcp", **modern("tools/call", **RUN, requestState="made up"))
    assert answer.json["error"]["message"] == "requestState: not a token of this gateway"
    headers = {"Accept": "text/event-stream", "Mcp-Session-Id": session, "Last-Event-ID": events.last_id}
    assert (await replicas.second.ask("GET", "/mcp", headers=headers)).status == 400
    assert (await replicas.second.ask("GET", "/mcp")).status == 405
