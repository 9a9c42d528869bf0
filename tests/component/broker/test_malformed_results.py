"""Results of servers that keep to no revision of MCP: the value is kept with a note, or the error says what ran."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.component.broker.conftest import World
from tests.component.broker.hostile import HostileServer, Object, Writer, result
from tests.component.broker.test_hostile_servers import add


@pytest.fixture
async def odd() -> AsyncIterator[HostileServer]:
    async with HostileServer().running() as server:
        yield server


def answer(server: HostileServer, value: Any) -> None:
    async def reply(request: Object, writer: Writer) -> None:
        writer.write(result(request, value))

    server.replies["act"] = reply


TEXT = {"type": "text", "text": "1, 2"}
LINK = {"type": "resource_link", "uri": "file:///a", "name": "a"}
UNKNOWN = {"type": "table", "rows": [1]}
KEPT: list[tuple[str, Any, Object, list[str]]] = [
    ("a list", {"content": [TEXT], "structuredContent": [1, 2]}, {"value": [1, 2]}, ["structuredContent is a list"]),
    ("a list alone", {"structuredContent": [1, 2]}, {"value": [1, 2]}, ["structuredContent is a list"]),
    ("a number", {"content": [TEXT], "structuredContent": 0}, {"value": 0}, ["structuredContent is a number"]),
    ("a boolean", {"content": [], "structuredContent": False}, {"value": False}, ["structuredContent is a boolean"]),
    ("a text", {"content": [], "structuredContent": "x"}, {"value": "x"}, ["structuredContent is a text"]),
    ("null", {"content": [TEXT], "structuredContent": None}, {"value": "1, 2"}, []),
    ("no content", {"structuredContent": {"a": 1}}, {"value": {"a": 1}}, []),
    ("content null", {"content": None, "structuredContent": {"a": 1}}, {"value": {"a": 1}}, []),
    ("content null, nothing else", {"content": None}, {"value": None}, []),
    ("nothing", {}, {"value": None}, []),
    ("content a text", {"content": "fine"}, {"value": "fine"}, ["content is a text"]),
    ("content one block", {"content": TEXT}, {"value": "1, 2"}, ["content is an object"]),
    ("a block that is a text", {"content": ["a", TEXT]}, {"value": "a\n1, 2"}, ["content[0] is a text"]),
    ("a text of a number", {"content": [{"type": "text", "text": 5}]}, {"value": {"type": "text", "text": 5}},
     ["content[0] is of a form"]),
    ("annotations", {"content": [{**TEXT, "annotations": {"priority": 9}}]}, {"value": "1, 2"}, []),
    ("an unknown type", {"content": [UNKNOWN]}, {"value": UNKNOWN}, ["content[0] is of a form"]),
    ("an unknown type with others", {"content": [UNKNOWN, LINK]},
     {"content": [{"type": "text", "text": '{"type": "table", "rows": [1]}'}, LINK]}, ["content[0] is of a form"]),
    ("a result of 2024", {"toolResult": [1]}, {"value": [1]}, ["toolResult is its value"]),
    ("bare fields", {"rows": [1]}, {"value": {"rows": [1]}}, ["its fields are its value"]),
    ("isError as false", {"content": [TEXT], "isError": "false"}, {"value": "1, 2"}, []),
    ("isError null", {"content": [TEXT], "isError": None}, {"value": "1, 2"}, []),
]  # fmt: skip


@pytest.mark.parametrize(("sent", "got", "notes"), [row[1:] for row in KEPT], ids=[row[0] for row in KEPT])
async def test_what_an_older_server_sends_is_kept_with_a_note(
    world: World, odd: HostileServer, sent: Any, got: Object, notes: list[str]
) -> None:
    answer(odd, sent)
    await add(world, odd)
    line = await world.call("evil.act")
    assert line["type"] == "result", line
    assert {name: line[name] for name in got} == got
    assert len(line.get("notes", [])) == len(notes), line
    assert all(note in said for note, said in zip(notes, line.get("notes", []), strict=True)), line


REFUSED = [
    ({"content": 5}, "content is a number and must be a list"),
    ({"content": [TEXT], "isError": "maybe"}, "isError is a text and must be true or false"),
    ({"content": [TEXT], "isError": {}}, "isError is an object and must be true or false"),
]


@pytest.mark.parametrize(("sent", "said"), REFUSED)
async def test_a_result_that_can_mean_several_things_is_an_error_that_says_that_the_tool_ran(
    world: World, odd: HostileServer, sent: Any, said: str
) -> None:
    answer(odd, sent)
    await add(world, odd)
    line = await world.call("evil.act")
    assert (line["kind"], line["reason"]) == ("ToolProtocolError", "UnexpectedResult")
    assert line["message"] == f"evil.act was called, but its result can't be read: {said}"
    assert odd.methods().count("tools/call") == 1


@pytest.mark.parametrize("flag", [True, "true", "yes", 1])
async def test_an_error_is_an_error_in_every_spelling(world: World, odd: HostileServer, flag: Any) -> None:
    answer(odd, {"content": [{"type": "text", "text": "no such row"}], "isError": flag})
    await add(world, odd)
    line = await world.call("evil.act")
    assert (line["type"], line["kind"], line["message"]) == ("error", "ToolError", "no such row")


@pytest.mark.parametrize("sent", [[1], "text", 5, None])
async def test_a_result_that_is_no_object_fails_its_call_within_the_limit(
    world: World, odd: HostileServer, sent: Any
) -> None:
    answer(odd, sent)
    await add(world, odd, limits={"callTimeoutSeconds": 1})
    async with asyncio.timeout(10):
        line = await world.call("evil.act")
    assert line["type"] == "error"
    assert "may have" in line["message"] or "was called" in line["message"], line


async def test_a_null_that_is_left_out_is_noted(world: World, odd: HostileServer) -> None:
    properties = {"note": {"type": "string", "nullable": True}, "due": {"type": "string"}}
    odd.tools = [{"name": "act", "inputSchema": {"type": "object", "properties": properties}}]
    await add(world, odd)
    line = await world.call("evil.act", note=None, due=None)
    assert odd.messages[-1]["params"]["arguments"] == {"note": None}
    assert line["notes"] == ["None was not sent for due: the tool's schema does not accept null there."]
