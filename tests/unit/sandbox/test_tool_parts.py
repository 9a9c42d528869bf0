"""The parts of a tool call, each by itself: arguments, answers from the wire, results, errors, events."""

import asyncio
import base64
import json
import math
import re
from dataclasses import dataclass
from typing import Any, Optional, TypedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_exec_api.approvals import APPROVAL_ID
from mcp_exec_sandbox.supervisor.execution.events import (
    MAX_CALL_EVENT_CHARACTERS,
    EventLog,
    ToolCallEvents,
    parse_written,
)
from mcp_exec_sandbox.tools import connection as wire
from mcp_exec_sandbox.tools.arguments import MAX_ARGUMENT_BYTES, encode_arguments, merge_arguments
from mcp_exec_sandbox.tools.connection import BrokerAccess, BrokerConnection, BrokerLost
from mcp_exec_sandbox.tools.errors import ToolError, ToolProtocolError, parse_error
from mcp_exec_sandbox.tools.results import ResultFiles, ToolResult, build_result, cast_result
from mcp_exec_sandbox.tools.tool_session import ToolSession

PARAMETERS = {"owner": True, "from": False, "perPage": False}
SPELLINGS = {"from_": "from", "per_page": "perPage"}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)  # fmt: skip


def merged(*values, **named):
    return merge_arguments("s.t", values, named, PARAMETERS, SPELLINGS)


def test_a_parameter_is_known_with_more_capitals_too():
    assert merged({"Owner": 1}, PerPage=3) == {"owner": 1, "perPage": 3}
    assert merge_arguments("s.t", [{"projectID": 1}], {}, {"project_id": True}, {"projectId": "project_id"}) == {
        "project_id": 1
    }
    assert merge_arguments("s.t", [{"ID": 1, "id": 2}], {}, {"id": True, "ID": True}, {}) == {"id": 2, "ID": 1}


@pytest.mark.parametrize(
    ("given", "named", "message", "suggestions"),
    [
        (None, {}, "missing parameter: owner", []),
        ({"owner": 1, "perpage": 2}, {}, "there is no parameter perpage", ["perPage"]),
        ({"owner": 1}, {"ownr": 2}, "there is no parameter ownr", ["owner"]),
        ({"owner": 1}, {"Owner": 2}, "the parameter owner is given twice", []),
        ({"owner": 1, "from": 2}, {"from_": 2}, "the parameter from is given twice", []),
        (5, {"owner": 1}, "the parameter owner is given twice", []),
    ],
)
def test_wrong_arguments_are_named(given, named, message, suggestions):
    with pytest.raises(ToolError) as failure:
        merged(given, **named)
    assert (failure.value.message, failure.value.suggestions) == (message, suggestions)
    assert (failure.value.reason, failure.value.server) == ("InvalidArguments", "s")


@dataclass
class Given:
    owner: int
    per_page: int


@pytest.mark.parametrize(
    ("values", "named", "wanted"),
    [
        ((1,), {}, {"owner": 1}),
        (([1],), {}, {"owner": [1]}),
        ((1, 2), {"per_page": 3}, {"owner": 1, "from": 2, "perPage": 3}),
        ((1, None), {}, {"owner": 1, "from": None}),
        (({"a": 1}, {"b": 2}), {}, {"owner": {"a": 1}, "from": {"b": 2}}),
        (({"owner": {"a": 1}},), {}, {"owner": {"a": 1}}),
        ((Given(owner=1, per_page=2),), {}, {"owner": 1, "perPage": 2}),
        ((Given, 2), {}, {"owner": Given, "from": 2}),
        ((None,), {"owner": 1}, {"owner": 1}),
    ],
)
def test_values_are_arguments_in_the_parameters_order_and_a_single_mapping_is_all_of_them(values, named, wanted):
    assert merged(*values, **named) == wanted


def test_a_tool_that_accepts_other_parameters_gets_them_by_their_names():
    arguments = {"owner": 1, "per_page": 2, "more": 3}
    wanted = {"owner": 1, "perPage": 2, "more": 3}
    assert merge_arguments("s.t", [arguments], {}, PARAMETERS, SPELLINGS, is_open=True) == wanted
    assert merge_arguments("s.t", [1], {"more": 3}, PARAMETERS, SPELLINGS, is_open=True) == {"owner": 1, "more": 3}


@pytest.mark.parametrize("value", [math.nan, object(), {(1, 2): 3}, "x" * (MAX_ARGUMENT_BYTES + 1)])
def test_what_has_no_json_form_or_is_too_much_is_refused(value):
    with pytest.raises(ToolError) as failure:
        encode_arguments("s.t", {"value": value})
    assert failure.value.reason == "InvalidArguments"


class Wire(asyncio.Transport):
    """A transport that keeps what is written to it."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.closed = False

    def write(self, data):
        self.sent += data

    def is_closing(self):
        return self.closed

    def close(self):
        self.closed = True

    abort = close


def connected():
    transport, made = Wire(), BrokerConnection(host="10.0.0.1:8082", token="t")
    made.connection_made(transport)
    return made, transport


def answer(*lines, status=b"200 OK", extra=b""):
    body = b"".join(line + b"\n" for line in lines)
    return b"HTTP/1.1 %s\r\n%scontent-length: %d\r\n\r\n%s" % (status, extra, len(body), body)


EVENT = b'{"type":"approval","id":"1"}'
FINAL = b'{"type":"result","tool":"s.t","value":[1]}'


async def exchange(made, *pieces):
    events = []
    task = asyncio.ensure_future(made.call(b'{"id":"1"}', events.append))
    await asyncio.sleep(0)
    for piece in pieces:
        made.data_received(piece)
    return await task, events


async def test_an_answer_is_read_wherever_it_is_cut():
    whole = answer(EVENT, FINAL)
    for cut in range(1, len(whole)):
        made, transport = connected()
        (final, size), events = await exchange(made, whole[:cut], whole[cut:])
        assert (final["value"], size, events) == ([1], len(FINAL), [json.loads(EVENT)])
        assert made.is_usable
    assert transport.sent.startswith(b"POST /v1/calls HTTP/1.1\r\n")
    assert transport.sent.endswith(b'\r\n\r\n{"id":"1"}')


async def test_a_connection_carries_call_after_call_until_the_broker_wants_no_more():
    made, transport = connected()
    for _ in range(3):
        await exchange(made, answer(FINAL))
    assert transport.sent.count(b"POST") == 3
    await exchange(made, answer(FINAL, extra=b"connection: close\r\n"))
    assert not made.is_usable


@pytest.mark.parametrize(
    "received",
    [
        b"nonsense\r\n\r\n",
        answer(b"{"),
        answer(b"5"),
        answer(b"[" * 100_000),
        answer(EVENT),
        answer(),
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * 100_000,
    ],
)
async def test_what_is_no_answer_is_a_lost_connection(received):
    made, transport = connected()
    with pytest.raises(BrokerLost):
        await exchange(made, received)
    assert transport.closed


async def test_an_answer_without_end_is_given_up(monkeypatch):
    monkeypatch.setattr(wire, "MAX_RESPONSE_BYTES", 100)
    made, transport = connected()
    with pytest.raises(BrokerLost, match="the response is too long"):
        await exchange(made, answer(b'{"type":"result","value":"' + b"x" * 100 + b'"}'))
    assert transport.closed


async def test_events_without_end_are_dropped(monkeypatch):
    monkeypatch.setattr(wire, "MAX_EVENTS", 3)
    made, _ = connected()
    _, events = await exchange(made, answer(*[EVENT] * 10, FINAL))
    assert len(events) == 3


@given(st.dictionaries(st.sampled_from(["kind", "message", "tool", "code", "parameters", "content"]), JSON))
def test_an_error_is_made_of_whatever_is_answered(fields):
    error = parse_error(fields, tool="s.t")
    assert isinstance(error, ToolError)
    assert isinstance(str(error), str)


@given(blocks=st.lists(JSON | st.fixed_dictionaries({"type": st.sampled_from(["text", "resource", "x"])},
                                                    optional={"text": JSON, "resource": JSON})))  # fmt: skip
def test_a_result_is_made_of_whatever_blocks_come(tmp_path_factory, blocks):
    result = build_result(blocks, None, ResultFiles(tmp_path_factory.getbasetemp()))
    assert isinstance(result.text, str)


@pytest.mark.parametrize("data", [None, 5, "a", "é"])
def test_bytes_that_are_none_are_a_protocol_error(tmp_path, data):
    with pytest.raises(ToolProtocolError):
        build_result([{"type": "image", "data": data}], None, ResultFiles(tmp_path))


def test_files_never_overwrite_what_is_there_and_have_the_types_extension(tmp_path):
    (tmp_path / "tool_results").mkdir()
    (tmp_path / "tool_results/1.png").write_bytes(b"kept")
    data = base64.b64encode(b"new").decode()
    blocks = [{"type": "image", "data": data, "mimeType": kind} for kind in ("image/png", "../../x", "TEXT/CSV; a=b")]
    result = build_result(blocks, None, ResultFiles(tmp_path))
    names = [blob.path.rpartition("/")[2] for blob in result.images]
    assert names == ["2.png", "3.bin", "4.csv"]
    assert (tmp_path / "tool_results/1.png").read_bytes() == b"kept"


def test_bytes_that_the_structured_content_repeats_are_the_files_path_there(tmp_path):
    data, other = (base64.b64encode(text).decode() for text in (b"picture", b"paper"))
    image = {"type": "image", "data": data, "mimeType": "image/png"}
    paper = {"type": "resource", "resource": {"uri": "file:///p", "blob": other, "mimeType": "application/pdf"}}
    empty = {"type": "image", "data": "", "mimeType": "image/gif"}
    structured = {"content": [image, paper], "note": "", data: [[data]]}
    result = build_result([image, paper, empty], json.loads(json.dumps(structured)), ResultFiles(tmp_path))
    first, second = result.images[0].path, result.blobs[0].path
    assert result.structured == {
        "content": [{**image, "data": first}, {**paper, "resource": {**paper["resource"], "blob": second}}],
        "note": "",
        data: [[first]],
    }
    alone = build_result([image], data, ResultFiles(tmp_path))
    assert alone.structured == alone.images[0].path


def test_structured_content_is_searched_for_bytes_however_deep_it_is(tmp_path):
    data = base64.b64encode(b"picture").decode()
    deep = data
    for _ in range(100_000):
        deep = [deep]
    found = build_result([{"type": "image", "data": data}], deep, ResultFiles(tmp_path)).structured
    for _ in range(100_000):
        found = found[0]
    assert found.endswith("/1.bin")


def test_a_result_with_files_is_read_by_key_like_the_value_that_it_is(tmp_path):
    blocks = [{"type": "image", "data": "", "mimeType": "image/png"}, {"type": "text", "text": '{"b": 2}'}]
    assert build_result(blocks, {"a": [1]}, ResultFiles(tmp_path))["a"] == [1]
    assert build_result(blocks, None, ResultFiles(tmp_path))["b"] == 2
    assert list(build_result(blocks, {"a": [1]}, ResultFiles(tmp_path))) == ["a"]
    with pytest.raises(KeyError):
        build_result(blocks, {}, ResultFiles(tmp_path))["a"]


class Row(TypedDict):
    id: int


@dataclass
class Point:
    x: int
    y: int = 5


class Model:
    """What pydantic's models are to `cast_result`."""

    def __init__(self, x):
        self.x = x

    @classmethod
    def model_validate(cls, value):
        if not isinstance(value, dict) or "x" not in value:
            raise ValueError("x: Field required")
        return cls(value["x"])


def test_a_type_that_asks_for_nothing_changes_nothing():
    for wanted in (dict, list, str, list[int], int | None, Row | Point, list, Any):
        assert cast_result({"a": 1}, wanted, tool="s.t") == {"a": 1}


def test_a_type_that_may_be_none_lets_none_through():
    assert cast_result(None, Point | None, tool="s.t") is None
    assert cast_result({"x": 1}, Optional[Point], tool="s.t") == Point(1)  # noqa: UP045 - as older code says it
    assert cast_result([{"x": 1}, None], list[Point | None], tool="s.t") == [Point(1), None]
    assert cast_result(None, list[Row] | None, tool="s.t") is None


@pytest.mark.parametrize("wanted", [Row, Point, Model, Row | None, Point | None, list[Row], list[Point] | None])
@pytest.mark.parametrize("value", ["text", 5, ["a"], {"y": 1}, ToolResult(text="x")])
def test_a_value_of_another_kind_than_was_asked_for_is_refused(value, wanted):
    with pytest.raises(ToolProtocolError) as failure:
        cast_result(value, wanted, tool="s.t")
    assert (failure.value.reason, failure.value.tool) == ("UnexpectedResult", "s.t")


def test_what_was_asked_for_and_what_came_are_named():
    for value, wanted, message in (
        (None, Point, "the result is not of type Point: it is null"),
        ("x" * 1000, Row, "the result is not of type Row: it is text"),
        ({"a": 1}, list[Row], "the result is not of type list of Row: it is an object"),
        (["a"], list[Row], "the result is not of type Row: it is text"),
        ({}, Model, "the result is not of type Model: x: Field required"),
    ):
        with pytest.raises(ToolProtocolError) as failure:
            cast_result(value, wanted, tool="s.t")
        assert failure.value.message == message


def test_a_result_with_files_is_made_into_a_type_by_its_structured_content():
    result = ToolResult(structured={"x": 1})
    assert cast_result(result, Point, tool="s.t") == Point(1)
    assert cast_result(result, ToolResult, tool="s.t") is result


def test_a_grant_does_not_show_its_token():
    access = BrokerAccess.from_job({"url": "http://[fd00::1]:8082", "token": "secret", "allow": ["a.*"]})
    assert (access.host, access.port) == ("fd00::1", 8082)
    assert "secret" not in repr(access)


async def test_a_call_is_reported_even_if_the_broker_cannot_be_reached(tmp_path):
    events = []
    access = BrokerAccess(host="127.0.0.1", port=1, token="t", allow=())
    session = ToolSession(broker=access, emit=events.append, workspace=tmp_path)
    with pytest.raises(ToolProtocolError):
        await session.call("s.t", {}, None)
    assert [event["type"] for event in events] == ["tool_call", "tool_result"]
    assert (events[1]["ok"], events[1]["kind"], events[1]["bytes"]) == (False, "ToolProtocolError", 0)


CALL = {"type": "tool_call", "id": "1", "tool": "s.t", "argumentBytes": 5}


async def read(log):
    """Return the events of a log, which gets an event `end`."""
    log.append("end")
    lines = [line async for batch in log.follow(1) for line in batch.lines.splitlines()]
    return [json.loads(line) for line in lines[:-1]]


@pytest.mark.parametrize(
    "message",
    [{}, {"id": 1, "tool": "s.t"}, {"id": "1", "tool": None}],
)
def test_a_message_that_is_no_event_is_dropped(message):
    log = EventLog()
    ToolCallEvents(log).add("tool_call", message)
    assert log.last_sequence == 0


async def test_what_the_runner_reports_of_a_call_is_bounded_field_by_field():
    log = EventLog()
    events = ToolCallEvents(log)
    long = "x" * 100_000
    events.add("tool_call", {**CALL, "id": long, "tool": long, "argumentBytes": -1, "more": 1})
    events.add("tool_result", {**CALL, "ok": 1, "kind": long, "message": long, "bytes": 1 << 80, "ms": "1"})
    for time in (5, "soon", "2026-01-01T00:00:00", "2026-01-01T00:00:00Z"):
        events.add("approval", {**CALL, "id": "approval-0123456789abcdef", "expiresAt": time})
    call, result, *approvals = await read(log)
    assert (len(call["id"]), len(call["tool"]), call["argumentBytes"]) == (64, 300, 0)
    assert "more" not in call
    assert (result["ok"], len(result["kind"])) == (False, 64)
    assert 990 < len(result["message"]) <= 1000
    assert (result["bytes"], result["ms"]) == (0, 0)
    assert [approval["expiresAt"] for approval in approvals] == [None, None, None, "2026-01-01T00:00:00Z"]


@pytest.mark.parametrize(
    "id", ["approval-0123456789abcdef", "approval-0123456789ABCDEF", "approval-0123456789abcde", "approval-0 $(sh)", ""]
)
def test_the_supervisor_accepts_the_ids_of_approvals_that_its_readers_accept(id: str) -> None:
    is_valid = re.fullmatch(APPROVAL_ID, id) is not None
    assert ToolCallEvents(EventLog()).add("approval", {**CALL, "id": id}) == is_valid


async def test_events_of_calls_are_bounded_in_number_and_size():
    log = EventLog()
    events = ToolCallEvents(log)
    for _ in range(31_000):
        events.add("tool_call", CALL)
    assert log.last_sequence == 30_000
    log = EventLog()
    events = ToolCallEvents(log)
    for _ in range(20_000):
        events.add("tool_result", {**CALL, "message": "x" * 1000})
    size = sum(len(event.get("message", "")) for event in await read(log))
    assert size <= MAX_CALL_EVENT_CHARACTERS


@pytest.mark.parametrize(
    ("written", "expected"),
    [([1, 2], {1: 1, 2: 2}), ([1], {}), (None, {}), ("ab", {}), (["a", -5], {1: 0, 2: 0}), ([True, 1.5], {1: 0, 2: 0})],
)
def test_counts_of_output_are_numbers_or_nothing(written, expected):
    assert parse_written({"written": written}) == expected
