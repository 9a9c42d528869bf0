"""What clients and models of all kinds send to `/mcp`, and what they can take in."""

import json
from typing import Any

import pytest
from tests.component.gateway.conftest import Answer, Gateway, serving
from tests.component.gateway.mcp_client import MODERN, REVISIONS, SESSIONS, connecting
from tests.component.gateway.test_mcp import message
from tests.component.gateway.test_mcp_replicas import classic, initialize, modern
from tests.support.api_server import FakeApiServer
from tests.support.broker import CATALOG, running_broker, tool

from mcp_exec_gateway.features.mcp.budget import estimate_json, estimate_tokens

MAX_BYTES = 2048


async def test_the_path_may_end_with_a_slash(gateway: Gateway) -> None:
    for method in ("POST", "GET", "DELETE"):
        options: dict[str, Any] = {"json": message("ping")} if method == "POST" else {}
        first = await gateway.ask(method, "/mcp", **options)
        second = await gateway.ask(method, "/mcp/", **options)
        assert (first.status, first.text) == (second.status, second.text)
    assert (await gateway.ask("POST", "/mcp/", key=None, json=message("ping"))).status == 401


async def test_a_ping_is_answered_in_every_revision(gateway: Gateway) -> None:
    answer = await gateway.ask("POST", "/mcp", **modern("ping"))
    assert (answer.status, "error" in answer.json) == (200, False)
    answer = await gateway.ask("POST", "/mcp", **classic({"id": 1, "method": "ping"}, await initialize(gateway)))
    assert (answer.status, answer.json["result"]) == (200, {})


EVENTS, JSON = "text/event-stream", "application/json"
ACCEPTED = [
    ("application/json", JSON),
    ("text/event-stream", EVENTS),
    ("TEXT/Event-Stream", EVENTS),
    ("text/*", EVENTS),
    ("text/event-stream, text/html;q=0.5", EVENTS),
    ("text/event-stream, application/json;q=0", EVENTS),
    ("application/json, text/event-stream;q=0", JSON),
    ("application/json;q=0.9, text/event-stream;q=0.8", JSON),
    ("application/*", JSON),
    ("*/*", JSON),
    ("", JSON),
]


@pytest.mark.parametrize(("accept", "kind"), ACCEPTED)
async def test_an_answer_has_the_form_that_the_client_accepts(gateway: Gateway, accept: str, kind: str) -> None:
    headers = {"Accept": accept}
    params = {"protocolVersion": SESSIONS, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    first = await gateway.ask("POST", "/mcp", json=message("initialize", **params), headers=headers)
    assert (first.status, first.headers["Content-Type"].partition(";")[0]) == (200, kind), first.text
    assert SESSIONS in read_message(first)["result"]["protocolVersion"]
    session = {"Mcp-Session-Id": first.headers["Mcp-Session-Id"], "MCP-Protocol-Version": SESSIONS}
    gateway.finish_all()
    call = message("tools/call", name="run_code", arguments={"code": "1"})
    answer = await gateway.ask("POST", "/mcp", json=call, headers={**headers, **session})
    assert read_message(answer)["result"]["structuredContent"]["phase"] == "Succeeded"
    unknown = await gateway.ask("POST", "/mcp", json=message("no/method"), headers={**headers, **session})
    assert (unknown.status, read_message(unknown)["error"]["code"]) == (200, -32601)


def read_message(answer: Answer) -> Any:
    """Return the response in a body of JSON or events."""
    if answer.headers["Content-Type"].startswith(JSON):
        return answer.json
    return json.loads([line for line in answer.text.splitlines() if line.startswith("data: {")][-1][6:])


@pytest.mark.parametrize("accept", ["text/html", "application/json;q=0", "image/*, text/html"])
async def test_an_accept_header_with_no_form_of_an_answer_is_406(gateway: Gateway, accept: str) -> None:
    answer = await gateway.ask("POST", "/mcp", json=message("ping"), headers={"Accept": accept})
    assert (answer.status, answer.json["detail"]) == (406, "accept application/json or text/event-stream, or both")


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize("mode", ["code", "direct", "hybrid"])
async def test_descriptions_and_instructions_are_short(api: FakeApiServer, revision: str, mode: str) -> None:
    long = tool("talk", "Talks. " + "\u4e2d" * 5000, annotations={"readOnlyHint": True})
    catalog = {"server": "chat", "available": True, "description": "", "direct": ["*"], "tools": [long]}
    async with running_broker(api) as broker, serving(api, broker_service="mcp-exec-broker") as gateway:
        broker.catalogs["agents"] = {**CATALOG, "hash": "two", "servers": [*CATALOG["servers"], catalog]}  # type: ignore[misc]
        async with connecting(gateway.url, revision, query=f"?mode={mode}") as client:
            assert len((client.instructions or "").encode()) <= MAX_BYTES
            tools = (await client.list_tools()).tools
            prompts = (await client.list_prompts()).prompts
    assert (len(tools) >= 1, len(prompts)) == (True, 0 if mode == "direct" else 1)
    for each in [*tools, *prompts]:
        assert len((each.description or "").encode()) <= MAX_BYTES, each.name
    if mode == "direct":
        (shown,) = [each.description for each in tools if each.name == "chat__talk"]
        assert shown is not None
        assert shown.startswith("Talks. ")


ARGUMENTS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("?pool=long", {"session": "", "workspace": "", "description": "", "timeout": "200"}, {"timeoutSeconds": 200}),
    ("", {"context": '{"a": [1, 2]}', "tools": ""}, {"context": {"a": [1, 2]}, "tools": ["*.*"]}),
    ("", {"context": None, "tools": '["github.get_*"]'}, {"tools": ["github.get_*"]}),
]


@pytest.mark.parametrize(("query", "arguments", "expected"), ARGUMENTS)
async def test_arguments_as_models_write_them_run_the_code(
    gateway: Gateway, query: str, arguments: dict[str, Any], expected: dict[str, Any]
) -> None:
    gateway.finish_all()
    async with connecting(gateway.url, MODERN, query=query) as client:
        result = await client.call_tool("run_code", {"code": "1", **arguments})
    assert not result.is_error, result
    spec = gateway.executions[result.structured_content["execution"]]["spec"]
    assert {name: spec[name] for name in expected} == expected
    assert spec.keys().isdisjoint({"session", "workspace", "description"})


async def test_empty_parts_of_a_result_are_left_out_of_its_structured_content(gateway: Gateway) -> None:
    gateway.finish_all(output={"stdout": "", "stderr": "", "result": 42, "truncated": False})
    async with connecting(gateway.url, MODERN) as client:
        result = await client.call_tool("run_code", {"code": "42"})
    assert result.structured_content.keys() <= {"execution", "phase", "result", "milliseconds"}
    assert result.structured_content["result"] == 42


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize(("query", "headers"), [("?structured=false", {}), ("", {"Mcp-Exec-Structured": "false"})])
async def test_an_application_can_have_results_without_structured_content(
    gateway_with_broker: Gateway, revision: str, query: str, headers: dict[str, str]
) -> None:
    gateway_with_broker.finish_all(output={"stdout": "a\nb\n", "stderr": "", "truncated": False})
    async with connecting(gateway_with_broker.url, revision, query=query, headers=headers) as client:
        tools = (await client.list_tools()).tools
        ran = await client.call_tool("run_code", {"code": "1"})
        found = await client.call_tool("search_tools", {"query": ""})
    assert [tool.name for tool in tools if tool.output_schema is not None] == []
    assert (ran.structured_content, found.structured_content) == (None, None)
    assert (ran.content[0].text, len(found.content)) == ("stdout:\na\nb", 1)


@pytest.mark.parametrize("arguments", [{"tools": ["github.create_issue"]}, {"tool": "github.create_issue"}])
async def test_describe_tools_takes_the_names_that_models_give_its_argument(
    gateway_with_broker: Gateway, arguments: dict[str, Any]
) -> None:
    async with connecting(gateway_with_broker.url, MODERN) as client:
        wanted = await client.call_tool("describe_tools", {"names": ["github.create_issue"]})
        result = await client.call_tool("describe_tools", arguments)
        refused = [
            await client.call_tool("describe_tools", {**arguments, other: ["github.create_pull_request"]})
            for other in ("names", "name")
        ]
    assert (result.is_error, result.structured_content) == (False, wanted.structured_content)
    for both in refused:
        assert both.is_error
        assert "is not known" in both.content[0].text or "unknown" in both.content[0].text


async def test_the_text_of_a_time_out_says_the_limit_and_how_to_raise_it(gateway: Gateway) -> None:
    error = {"type": "Timeout", "message": "the code ran longer than 2 s", "traceback": "Traceback ...\n    pass"}
    gateway.finish_all(phase="TimedOut", reason="Timeout", error=error)
    async with connecting(gateway.url, MODERN, query="?pool=long") as client:
        result = await client.call_tool("run_code", {"code": "while True: pass", "timeout": 2})
    assert "Timeout: the code ran longer than 2 s; set timeout up to 300, or do less" in result.content[0].text


@pytest.mark.parametrize(("query", "tokens"), [("", 25_000), ("?maxTokens=5000", 5_000)])
async def test_a_result_of_120_kb_fits_the_client(gateway: Gateway, query: str, tokens: int) -> None:
    text = "".join(f"row {number}: {number * 7919}\n" for number in range(7_000))[:120_000]
    gateway.finish_all(output={"stdout": text, "stderr": text, "result": text, "truncated": True})
    async with connecting(gateway.url, MODERN, query=query) as client:
        result = await client.call_tool("run_code", {"code": "1"})
    shown = sum(estimate_tokens(block.model_dump_json()) for block in result.content)
    assert tokens // 4 < shown + estimate_json(result.structured_content) <= tokens
    assert result.structured_content["notes"][0]["kind"] == "OutputCut"
    for end in ("row 0: 0", text[-30:].rstrip()):
        assert end in result.structured_content["stdout"]


async def test_tools_whose_schemas_are_large_fit_the_client(api: FakeApiServer) -> None:
    large = {
        "type": "object",
        "properties": {f"field_{n}": {"type": "string", "description": "x" * 90} for n in range(999)},
    }
    tools = [{**tool(f"large_{n}", "d"), "inputSchema": large} for n in range(9)]
    async with running_broker(api) as broker, serving(api, broker_service="mcp-exec-broker") as gateway:
        servers = [{"server": "big", "available": True, "description": "", "tools": tools}]
        broker.catalogs["agents"] = {"hash": "three", "servers": servers}
        async with connecting(gateway.url, MODERN) as client:
            found = await client.call_tool("search_tools", {"query": "", "detail_level": "full"})
            described = await client.call_tool("describe_tools", {"names": '["big.large_0", "big.large_1"]'})
    for result in (found, described):
        assert estimate_tokens(result.content[0].text) + estimate_json(result.structured_content) <= 25_000
        assert result.structured_content["tools"][0]["name"] == "large_0"
        assert "do not fit: ask for fewer tools or less detail" in result.content[0].text
