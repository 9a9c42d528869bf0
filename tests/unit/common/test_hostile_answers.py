"""Whatever a peer sends, its reader returns a bounded value or raises its own error."""

import json
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.fuzz import fuzz_settings

from mcp_exec_api.meta import micro_time
from mcp_exec_common.peers import InvalidAnswer, parse_answer
from mcp_exec_common.supervisor.protocol import SandboxError, parse_event
from mcp_exec_operator.core.executions.output import OutputCollector

SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20))
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
)
TIMES = st.one_of(st.text(max_size=10), st.datetimes(timezones=st.timezones()).map(lambda at: at.isoformat()))
KINDS = ("status", "stdout", "stderr", "result", "tool_call", "tool_result", "approval", "end")
FIELDS = st.fixed_dictionaries(
    {"seq": st.integers(0, 3) | st.integers() | VALUES, "at": TIMES | VALUES, "type": st.sampled_from(KINDS) | VALUES},
    optional={
        **{
            name: st.text(max_size=10) | VALUES for name in ("text", "phase", "reason", "id", "tool", "kind", "message")
        },
        **{
            name: st.integers() | VALUES
            for name in ("stdoutBytes", "bytes", "ms", "runMs", "exitCode", "peakMemoryBytes", "cpuSeconds")
        },
        **dict.fromkeys(("value", "error", "expiresAt", "truncated", "ok"), VALUES),
    },
)


@pytest.mark.fuzz
@given(FIELDS)
@fuzz_settings(100)
def test_every_event_is_refused_or_can_be_collected_and_written(fields: dict[str, Any]) -> None:
    try:
        event = parse_event(json.dumps(fields).encode())
    except SandboxError:
        return
    micro_time(event.at)
    micro_time(event.at + timedelta(days=1))
    output = OutputCollector(limit=100)
    output.add(event)
    assert len(json.dumps(output.build_output(), allow_nan=False)) < 5000
    output.measure(bound=0.0, bind_milliseconds=0.0)


@pytest.mark.fuzz
@given(st.binary(max_size=200) | VALUES.map(lambda value: json.dumps(value).encode()))
@fuzz_settings(200)
def test_every_line_and_answer_is_refused_or_parsed(body: bytes) -> None:
    with pytest.raises(SandboxError):
        parse_event(body + b"{")
    with suppress(InvalidAnswer):
        assert isinstance(parse_answer(body), dict)
