"""Answers that the parser of the SDK refuses: repaired with a note, or an error at once, over each transport."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest
from tests.component.broker.conftest import World
from tests.component.broker.hostile import HostileServer, Object, Writer, http
from tests.component.broker.servers import module, real_bridge, stdio_status, stdio_token
from tests.component.broker.test_hostile_servers import add
from tests.support.constants import DEADLINE

LIMITS: Object = {"callTimeoutSeconds": 300}
"""An answer that never arrives exceeds the test's own limit."""


@asynccontextmanager
async def over_stdio(world: World, answer: bytes) -> AsyncIterator[None]:
    command = module("tests.component.broker.unreadable_server", os.fsdecode(answer))
    async with real_bridge(command, token=stdio_token("evil")) as address:
        stdio = {"image": "i", "command": ["evil"]}
        world.add("evil", stdio=stdio, limits=LIMITS, status=stdio_status(address))
        await world.listed("evil")
        yield


def over_http(kind: str, begin: bytes = b"", end: bytes = b"") -> "Transport":
    @asynccontextmanager
    async def run(world: World, answer: bytes) -> AsyncIterator[None]:
        async def reply(request: Object, writer: Writer) -> None:
            writer.write(http(begin + answer.replace(b"ID", b"%d" % request["id"]) + end, kind=kind))

        async with HostileServer(replies={"act": reply}).running() as server:
            await add(world, server, limits=LIMITS)
            yield

    return run


Transport = Callable[[World, bytes], AbstractAsyncContextManager[None]]
TRANSPORTS: dict[str, Transport] = {
    "stdio": over_stdio,
    "JSON": over_http("application/json"),
    "events": over_http("text/event-stream", b"data: ", b"\n\n"),
}
HALVES = "The answer has halves of surrogate pairs, which are no characters; each is replaced by U+FFFD."


def result(text: str) -> bytes:
    return b'{"jsonrpc": "2.0", "id": ID, "result": %s}' % text.encode()


def words(text: str) -> bytes:
    return result(f'{{"content": [{{"type": "text", "text": "{text}"}}]}}')


def structured(value: str) -> bytes:
    return result(f'{{"content": [], "structuredContent": {{"a": {value}}}}}')


REPAIRED: dict[str, tuple[bytes, Any]] = {
    "a high half": (words(r"a \ud800 b"), "a \ufffd b"),
    "a low half": (words(r"a \uDC00 b"), "a \ufffd b"),
    "halves in the wrong order": (words(r"\udc00\ud800"), "\ufffd\ufffd"),
    "a half before a pair": (words(r"\ud83d\ud83d\ude00"), "\ufffd\U0001f600"),
    "a half after a pair": (words(r"\ud83d\ude00\ude00"), "\U0001f600\ufffd"),
    "a half after a backslash": (words(r"\\\ud800 \\ud800"), "\\\ufffd \\ud800"),
    "structured content": (result(r'{"content": [], "structuredContent": {"\ud800": "\udc00"}}'), {"\ufffd": "\ufffd"}),
}


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("kind", REPAIRED)
async def test_half_a_character_is_replaced_with_a_note(world: World, transport: str, kind: str) -> None:
    answer, value = REPAIRED[kind]
    async with TRANSPORTS[transport](world, answer), asyncio.timeout(DEADLINE):
        line = await world.call("evil.act")
    assert (line["type"], line.get("value"), line.get("notes")) == ("result", value, [HALVES]), line


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_what_is_a_character_or_a_text_of_an_escape_stays_without_a_note(world: World, transport: str) -> None:
    async with TRANSPORTS[transport](world, words(r"\ud83d\ude00 \\ud800 \\\\udc00")), asyncio.timeout(DEADLINE):
        line = await world.call("evil.act")
    assert (line["value"], line.get("notes")) == ("\U0001f600 \\ud800 \\\\udc00", None)


ERRORS: dict[str, tuple[bytes, str, str]] = {
    "a result with isError": (
        result(r'{"content": [{"type": "text", "text": "no \ud800"}], "isError": true}'), "ToolError", "no \ufffd",
    ),
    "an error of the protocol": (
        rb'{"jsonrpc": "2.0", "id": ID, "error": {"code": -32000, "message": "no \ud800"}}', "ToolProtocolError",
        "no \ufffd",
    ),
}  # fmt: skip


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("kind", ERRORS)
async def test_half_a_character_in_an_error_is_replaced(world: World, transport: str, kind: str) -> None:
    answer, error, said = ERRORS[kind]
    async with TRANSPORTS[transport](world, answer), asyncio.timeout(DEADLINE):
        line = await world.call("evil.act")
    assert (line["type"], line["kind"]) == ("error", error), line
    assert said in line["message"]


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_an_error_without_an_id_ends_the_only_call(world: World, transport: str) -> None:
    answer = b'{"jsonrpc": "2.0", "id": null, "error": {"code": -32700, "message": "no JSON"}}'
    async with TRANSPORTS[transport](world, answer), asyncio.timeout(DEADLINE):
        line = await world.call("evil.act")
    assert (line["kind"], line["message"].endswith("no JSON")) == ("ToolProtocolError", True), line


DEEP = "[" * 5000 + "]" * 5000
NOT_JSON = "the answer is no valid JSON: "
NO_RESULT = "the answer is no JSON-RPC message whose result is an object"
REFUSED: dict[str, tuple[bytes, str]] = {
    "too deep": (structured(DEEP), NOT_JSON + "recursion limit"),
    "a huge integer": (structured("9" * 5000), NOT_JSON),
    "a raw control character": (words("a \x01 b"), NOT_JSON + "control character"),
    "half an escape": (words(r"a \ud8 b"), NOT_JSON),
    "an unknown escape": (words(r"a \x b"), NOT_JSON + "invalid escape"),
    "a comma too many": (result('{"content": [],}'), NOT_JSON + "trailing comma"),
    "no value": (result('{"content": undefined}'), NOT_JSON + "expected value"),
    "a list as result": (result("[1]"), NO_RESULT),
    "no version": (b'{"id": ID, "result": {"content": []}}', NO_RESULT),
    "another version": (b'{"jsonrpc": "1.0", "id": ID, "result": {"content": []}}', NO_RESULT),
    "the id at the end": (b'{"result": [], "id": ID, "jsonrpc": "2.0"}', NO_RESULT),
    "an error without a code": (b'{"jsonrpc": "2.0", "id": ID, "error": "no"}', NO_RESULT),
    "a batch": (b'[{"jsonrpc": "2.0", "id": ID, "result": {"content": []}}]', NO_RESULT),
    "the id in the middle": (b'{"jsonrpc": "2.0", "result": [], "id": ID, "more": 1}', NO_RESULT),
    "a question": (
        b'{"jsonrpc": "2.0", "id": ID, "method": "elicitation/create", "params": {"message": %s}}' % DEEP.encode(),
        NOT_JSON + "recursion limit",
    ),
    "a notification": (
        b'{"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": %s}}' % DEEP.encode(),
        NOT_JSON + "recursion limit",
    ),
}


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("kind", REFUSED)
async def test_an_answer_that_cannot_be_read_ends_its_call_at_once_with_the_reason(
    world: World, transport: str, kind: str
) -> None:
    answer, said = REFUSED[kind]
    async with TRANSPORTS[transport](world, answer), asyncio.timeout(DEADLINE):
        line = await world.call("evil.act")
    assert (line["type"], line["kind"]) == ("error", "ToolProtocolError"), line
    assert said in line["message"]


@pytest.mark.parametrize("transport", ["stdio", "JSON"])
async def test_bytes_that_are_no_text_end_the_call_at_once(world: World, transport: str) -> None:
    answer = b'{"jsonrpc": "2.0", "id": ID, "result": {"content": [{"type": "text", "text": "\xff\xfe"}]}}'
    async with TRANSPORTS[transport](world, answer), asyncio.timeout(DEADLINE):
        line = await world.call("evil.act")
    assert (line["type"], line["kind"]) == ("error", "ToolProtocolError"), line
    assert NOT_JSON + "invalid unicode" in line["message"]


OTHERS: dict[str, bytes] = {
    "another number": result('{"content": []}').replace(b"ID", b"987654"),
    "a text": result('{"content": []}').replace(b"ID", b'"another"'),
    "null": result('{"content": []}').replace(b"ID", b"null"),
    "an object": result('{"content": []}').replace(b"ID", b'{"id": ID}'),
    "no id": b'{"jsonrpc": "2.0", "result": {"content": []}}',
    "another at the end, and its own in the content": (
        b'{"result": {"content": [], "id": ID}, "jsonrpc": "2.0", "id": 987654}'
    ),
    "another, and its own in the result": b'{"jsonrpc": "2.0", "id": 987654, "result": {"content": [], "id": ID}}',
    "an error of another": b'{"jsonrpc": "2.0", "id": 987654, "error": {"code": -32000, "message": "no"}}',
    "a question": b'{"jsonrpc": "2.0", "id": ID, "method": "ping"}',
    "a notification": b'{"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}',
}


@pytest.mark.parametrize("kind", OTHERS)
async def test_an_answer_to_another_request_ends_the_call_at_once_with_the_reason(world: World, kind: str) -> None:
    async with TRANSPORTS["JSON"](world, OTHERS[kind]), asyncio.timeout(DEADLINE):
        line = await world.call("evil.act")
    assert (line["type"], line["kind"]) == ("error", "ToolProtocolError"), line
    assert "the answer has another id than its request" in line["message"] or NO_RESULT in line["message"]


READ: dict[str, tuple[bytes, Any]] = {
    "a key twice": (result('{"content": [], "structuredContent": {"a": 1, "a": 2}}'), {"a": 2}),
    "an integer of 80 digits": (structured("9" * 80), {"a": int("9" * 80)}),
    "the id as a text": (result('{"content": [{"type": "text", "text": "x"}]}').replace(b"ID", b'"ID"'), "x"),
    "the id in the middle": (
        b'{"more": 1, "id": ID, "jsonrpc": "2.0", "result": {"content": [{"type": "text", "text": "x"}]}}', "x",
    ),
    "the id of another in the content": (structured('1, "id": 987654'), {"a": 1, "id": 987654}),
}  # fmt: skip


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("kind", READ)
async def test_an_odd_answer_that_can_be_read_is_read(world: World, transport: str, kind: str) -> None:
    answer, value = READ[kind]
    async with TRANSPORTS[transport](world, answer), asyncio.timeout(DEADLINE):
        line = await world.call("evil.act")
    assert line.get("value") == value, line


async def test_half_a_character_hides_no_tool_but_those_whose_name_has_it(world: World) -> None:
    async with HostileServer().running() as server:
        schema = {"type": "object", "properties": {"a": {"type": "string", "description": "\ud800"}}}
        server.tools = [
            {"name": "act", "description": "say \udc00", "inputSchema": schema},
            {"name": "a\ud800", "inputSchema": {"type": "object"}},
        ]
        await add(world, server)
        status = world.status("evil")
        assert (status["tools"], status["omitted"]) == (1, 1)
        assert [each["name"] for each in status["omittedTools"]] == ["a\\ufffd"]
        assert (await world.call("evil.act"))["value"] == "fine"
