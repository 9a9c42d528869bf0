"""Servers whose results do not match the output schemas of their tools."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import mcp_types as types
import pytest
from mcp.server.lowlevel import Server as LowServer
from tests.component.broker.conftest import World
from tests.component.broker.servers import managed, serving_app
from tests.support.until import until

Object = dict[str, Any]
ROWS: Object = {
    "type": "object",
    "properties": {"rows": {"type": "array", "items": {"type": "object", "required": ["id"]}}},
    "required": ["rows"],
}


@dataclass
class Careless:
    """Server that returns the result that a test sets."""

    schema: Object | None = field(default_factory=lambda: ROWS)
    result: Object = field(default_factory=dict)
    calls: int = 0

    async def list_tools(self, context: Any, params: Any) -> types.ListToolsResult:
        tool = types.Tool(name="give", input_schema={"type": "object"}, output_schema=self.schema)
        return types.ListToolsResult(tools=[tool])

    async def call_tool(self, context: Any, params: Any) -> types.CallToolResult:
        self.calls += 1
        return types.CallToolResult.model_validate({"content": [], **self.result})


@pytest.fixture
async def careless(world: World) -> AsyncIterator[Careless]:
    server = Careless()
    low = LowServer("careless", on_list_tools=server.list_tools, on_call_tool=server.call_tool)
    async with serving_app(low.streamable_http_app()) as url, managed(low.session_manager):
        world.add("careless", url=url + "/mcp")
        await world.listed("careless")
        yield server


def text(text: str) -> Object:
    return {"content": [{"type": "text", "text": text}]}


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ({"structuredContent": {"rows": [{"id": 1}, {"name": "jane@example.com"}]}}, 'rows[1] breaks required: ["id"]'),
        ({"structuredContent": {"rows": "jane@example.com"}}, 'rows breaks type: "array"'),
        ({"structuredContent": [1]}, 'the value breaks type: "object"'),
        ({"structuredContent": None}, 'the value breaks type: "object"'),
        ({"content": []}, 'the value breaks type: "object"'),
    ],
)
async def test_a_result_that_breaks_its_schema_is_a_protocol_error(
    world: World, careless: Careless, result: Object, message: str
) -> None:
    careless.result = result
    answer = await world.call("careless.give")
    assert (answer["kind"], answer["reason"]) == ("ToolProtocolError", "UnexpectedResult")
    assert (answer["tool"], answer["server"]) == ("careless.give", "careless")
    assert answer["message"].endswith(message)
    assert "was called" in answer["message"]
    assert "jane" not in str(answer)
    assert careless.calls == 1


@pytest.mark.parametrize(
    ("result", "value"),
    [
        ({"structuredContent": {"rows": [{"id": 1}]}}, {"rows": [{"id": 1}]}),
        (text('{"rows": []}'), {"rows": []}),
        (text('{"rows": 5}'), {"rows": 5}),
        (text("no rows today"), "no rows today"),
        ({**text("no rows today"), "structuredContent": None}, "no rows today"),
    ],
)
async def test_a_result_that_keeps_to_its_schema_or_has_no_structured_content_is_a_value(
    world: World, careless: Careless, result: Object, value: object
) -> None:
    careless.result = result
    assert (await world.call("careless.give"))["value"] == value


async def test_files_without_the_declared_structured_content_arrive(world: World, careless: Careless) -> None:
    image = {"type": "image", "data": "aa==", "mimeType": "image/png"}
    careless.result = {"content": [image]}
    answer = await world.call("careless.give")
    assert (answer["type"], answer["content"][0]["data"]) == ("result", "aa==")


@pytest.mark.parametrize("structured", [{}, {"structuredContent": {"error": {"code": 1}}}])
async def test_an_error_of_the_tool_has_any_structure(world: World, careless: Careless, structured: Object) -> None:
    careless.result = {"isError": True, **text("auth failed"), **structured}
    answer = await world.call("careless.give")
    assert (answer["kind"], answer["message"], answer.get("reason")) == ("ToolError", "auth failed", None)


async def test_a_server_that_declares_otherwise_by_now_is_listed_again(world: World, careless: Careless) -> None:
    before = world.status("careless")["catalogHash"]
    careless.schema, careless.result = {"type": "object"}, {"structuredContent": {"lines": []}}
    assert (await world.call("careless.give"))["reason"] == "UnexpectedResult"
    await until(lambda: world.status("careless")["catalogHash"] != before)
    assert (await world.call("careless.give"))["value"] == {"lines": []}


async def test_names_in_the_message_are_scanned(world: World, careless: Careless) -> None:
    spec = world.broker.tracker.servers.find("agents", "careless")
    assert spec is not None
    assert spec.spec is not None
    world.add("careless", url=spec.spec.url, scan={"personalInResults": "Redact"})
    careless.schema = {"type": "object", "additionalProperties": {"type": "integer"}}
    careless.result = {"structuredContent": {"jane@example.com": "x"}}
    await until(lambda: world.status("careless").get("observedGeneration") == 2)
    answer = await world.call("careless.give")
    assert answer["reason"] == "UnexpectedResult"
    assert '[REDACTED EMAIL] breaks type: "integer"' in answer["message"]


async def test_a_schema_that_is_none_is_no_obstacle(world: World, careless: Careless) -> None:
    careless.schema = {"type": "object", "$ref": "http://127.0.0.1:9/none", "properties": {"a": 5}}
    careless.result = {"structuredContent": {"a": 1}}
    world.broker.catalogs.refresh(("agents", "careless"))
    before = world.status("careless")["catalogHash"]
    await until(lambda: world.status("careless")["catalogHash"] != before)
    assert (await world.call("careless.give"))["value"] == {"a": 1}
