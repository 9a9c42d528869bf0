"""Parsing of a supervisor's events, which are untrusted input."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_exec_common.supervisor.protocol import EndEvent, SandboxError, TextEvent, parse_event
from mcp_exec_common.supervisor.tokens import supervisor_token, token_digest


def test_text_and_end_are_read() -> None:
    text = parse_event(b'{"seq": 2, "at": "2026-11-21T20:00:00.000001Z", "type": "stdout", "text": "hi"}')
    assert isinstance(text, TextEvent)
    end = parse_event(
        b'{"seq": 3, "at": "2026-11-21T20:00:00Z", "type": "end", "phase": "Failed", "reason": "UserError"}'
    )
    assert isinstance(end, EndEvent)
    assert end.phase.finished


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"[]",
        b'{"seq": 0, "at": "2026-11-21T20:00:00Z", "type": "stdout", "text": ""}',
        b'{"seq": 1, "at": "2026-11-21T20:00:00Z", "type": "end", "phase": "Running"}',
        b'{"seq": 1, "at": "2026-11-21T20:00:00Z", "type": "end", "phase": "Failed", "reason": "Anything"}',
        b'{"seq": 1, "at": "never", "type": "stdout", "text": ""}',
        b'{"seq": 1, "at": "2026-11-21T20:00:00Z", "type": "tool_call", "id": "1"}',
        b'{"seq": 1, "at": "2026-11-21T20:00:00Z", "type": "tool_call", "id": "1", "tool": "a.b", "argumentBytes": -1}',
        b'{"seq": 1, "at": "2026-11-21T20:00:00Z", "type": "tool_call", "id": "1", "tool": "' + b"x" * 400 + b'"}',
        b'{"seq": 1, "at": "2026-11-21T20:00:00Z", "type": "tool_result", "id": "1", "tool": "a.b"}',
        b'{"seq": 1, "at": "2026-11-21T20:00:00Z", "type": "tool_result", "id": "1", "tool": "a", "ok": 1, "ms": NaN}',
        b'{"seq": 1, "at": "2026-11-21T20:00:00Z", "type": "approval", "id": "a $(sh)", "tool": "a.b"}',
        b'{"seq": 1, "at": "2026-11-21T20:00:00Z", "type": "approval", "id": "approval-0123456789abcdef",'
        b' "tool": "a.b", "expiresAt": "soon"}',
    ],
)
def test_an_invalid_event_is_refused(line: bytes) -> None:
    with pytest.raises(SandboxError):
        parse_event(line)


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_parsed_or_refused(line: bytes) -> None:
    try:
        parse_event(line)
    except SandboxError:
        return


def test_each_pod_has_a_token_of_its_own() -> None:
    one = supervisor_token(key=b"key", namespace="agents", pod="default-1")
    assert one == supervisor_token(key=b"key", namespace="agents", pod="default-1")
    assert one != supervisor_token(key=b"key", namespace="agents", pod="default-2")
    assert one not in token_digest(one)
