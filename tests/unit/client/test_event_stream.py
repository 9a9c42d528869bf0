"""Streams of events at the client: each event once and in order, whatever happens to connections; bounded."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import httpx
import pytest
from tests.support.processes import SECONDS
from tests.support.scripted_gateway import Chunks, ScriptedGateway, events, problem, scripted

from mcp_exec_client import errors, event_stream
from mcp_exec_client.events import EndEvent, OtherEvent, StreamedEvent, TextEvent
from mcp_exec_client.mcp_bridge.bridge import StdioBridge
from mcp_exec_client.mcp_bridge.endpoint import McpEndpoint, Reception

JSON = {"Content-Type": "application/json"}
RUNNING = {"id": "1.0", "type": "status", "phase": "Running"}
ONE = {"id": "2.1", "type": "stdout", "text": "1"}
TWO = {"id": "3.2", "type": "stdout", "text": "2"}
END = {"id": "4.2", "type": "end", "phase": "Succeeded", "reason": "", "durations": {"run": 1.5}, "newer": 1}


async def read(gateway: ScriptedGateway, **options: Any) -> list[StreamedEvent]:
    async with aclosing(gateway.client().stream("e1", **options)) as stream:
        return [event async for event in stream]


async def test_a_stream_has_typed_events_up_to_the_end() -> None:
    gateway = scripted(events(RUNNING, b"\n", ONE, TWO, END))
    found = await read(gateway)
    assert [event.type for event in found] == ["status", "stdout", "stdout", "end"]
    assert isinstance(found[1], TextEvent)
    assert found[1].text == "1"
    assert isinstance(found[3], EndEvent)
    assert (found[3].succeeded, found[3].durations and found[3].durations.run) == (True, 1.5)
    assert gateway.requests[0].headers["Accept"] == "application/x-ndjson"


@pytest.mark.parametrize(
    "cut",
    [
        events(RUNNING, ONE),
        events(RUNNING, ONE, lost=True),
        events(RUNNING, ONE, b'{"id": "3.2", "ty', lost=True),
        events(RUNNING, ONE, b'{"id": "3.2", "ty'),
    ],
    ids=["ends early", "is lost", "is lost within an event", "ends within an event"],
)
async def test_a_connection_that_is_lost_is_resumed_after_the_last_event(cut: httpx.Response) -> None:
    gateway = scripted(cut, httpx.ConnectError("refused"), problem(503, "unavailable"), events(TWO, END))
    assert [event.id for event in await read(gateway)] == ["1.0", "2.1", "3.2", "4.2"]
    positions = [each.headers.get("Last-Event-ID") for each in gateway.requests]
    assert positions == [None, "2.1", "2.1", "2.1"]


async def test_a_stream_that_never_gets_on_ends_with_an_error_and_one_that_does_never_runs_out_of_retries() -> None:
    gateway = scripted(*(events() for _ in range(20)))
    with pytest.raises(errors.GatewayUnreachable, match="the stream ended before the execution's end"):
        await read(gateway)
    progress = [events({**ONE, "id": str(number)}) for number in range(20)]
    assert len(await read(scripted(*progress, events(END)))) == 21


async def test_an_execution_that_does_not_exist_is_an_error_at_once() -> None:
    gateway = scripted(problem(404, "not-found"))
    with pytest.raises(errors.NotFound):
        await read(gateway)
    assert len(gateway.sent) == 1


async def test_an_event_of_a_newer_gateway_is_passed_on() -> None:
    found = await read(scripted(events({"id": "1", "type": "hologram", "name": "plot.png"}, END)))
    assert isinstance(found[0], OtherEvent)
    assert found[0].model_extra == {"name": "plot.png"}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"hello\n", "Invalid JSON"),
        (b"[]\n", "is not an event"),
        (b'{"type": "stdout", "text": "1", "id": "2", "seq": 1}\n', "at: Field required"),
        (b'{"type": "stdout", "at": "2026-11-21T20:00:00Z", "seq": 1, "text": "1", "id": "2\\r\\nHost: x"}\n', "id: "),
        (b'{"type": "x", "id": "1", "at": "2026-11-21T20:00:00Z", "y": ' + b"[" * 100_000 + b"\n", "Invalid JSON"),
    ],
)
async def test_a_line_that_is_no_event_is_refused(line: bytes, reason: str) -> None:
    with pytest.raises(errors.UnexpectedResponse, match=reason):
        await read(scripted(events(line)))


async def test_an_event_without_an_end_is_refused_before_it_fills_the_memory() -> None:
    endless = httpx.Response(200, stream=Chunks(b"x" * 2**16 for _ in range(10**9)))
    with pytest.raises(errors.UnexpectedResponse, match="an event has more than 8388608 bytes"):
        await read(scripted(endless))


async def test_a_stream_without_an_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "_MAX_EVENTS", 100)
    with pytest.raises(errors.UnexpectedResponse, match="more than 100 events"):
        await read(scripted(events(*[ONE] * 101)))


async def test_a_caller_that_stops_reading_closes_the_connection() -> None:
    gateway = scripted(events(RUNNING, ONE))
    async with aclosing(gateway.client().stream("e1")) as stream:
        assert (await anext(stream)).type == "status"
    assert len(gateway.sent) == 1


async def test_messages_of_the_mcp_endpoint_are_read_however_their_bytes_arrive() -> None:
    text = b': open\n\nid: 7\ndata:\n\nevent: message\r\nid: 8\r\ndata: {"a":\r\ndata: 1}\r\n\r\ndata: {}\n\n'
    for size in (1, 7, len(text)):
        parts = [text[start : start + size] for start in range(0, len(text), size)]
        body = httpx.Response(200, headers={"Content-Type": "text/event-stream"}, stream=Chunks(parts))
        endpoint, reception = McpEndpoint(transport=scripted(body).client().transport, query={}), Reception(headers={})
        assert [message async for message in endpoint.exchange({}, headers={}, reception=reception)] == [{"a": 1}, {}]
        assert reception.last_event_id == "8"


async def test_the_mcp_bridge_follows_a_task_although_its_gateway_is_away_for_a_while() -> None:
    answers = [{"jsonrpc": "2.0", "id": number, "result": {"status": "working"}} for number in (1, 2)]
    refused = [httpx.ConnectError("refused")] * 8
    gateway = scripted(answers[0], *refused, httpx.Response(503, text="<html>no upstream</html>"), answers[1])
    for each in (0, -1):
        gateway.script[each] = httpx.Response(200, json=gateway.script[each], headers=JSON)
    written: list[Any] = []
    was_written = asyncio.Event()

    async def write(message: Any) -> None:
        written.append(message)
        was_written.set()

    async def lines() -> AsyncIterator[bytes]:
        meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}
        for number in (1, 2):
            params = {"taskId": "t", "_meta": meta}
            yield json.dumps({"jsonrpc": "2.0", "id": number, "method": "tasks/get", "params": params}).encode()
            await was_written.wait()
            was_written.clear()

    endpoint = McpEndpoint(transport=gateway.client().transport, query={})
    async with asyncio.timeout(SECONDS):
        await StdioBridge(endpoint, write, lambda text: None).run(lines())
    assert written == answers
    assert len(gateway.delays) == 9
