"""The supervisor's end of the control channel against a runner that writes anything.

The supervisor's own classes run here over real sockets and pipes. Only the runner is the test.
"""

import asyncio
import contextlib
import json
import os
import socket
import threading
from collections.abc import AsyncIterator
from unittest import mock

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.support.fuzz import fuzz_settings
from tests.support.pace import paced

from mcp_exec_sandbox.protocol import RunnerLimits
from mcp_exec_sandbox.supervisor.execution import code_run, output
from mcp_exec_sandbox.supervisor.execution.code_run import CodeRun
from mcp_exec_sandbox.supervisor.execution.events import EventLog
from mcp_exec_sandbox.supervisor.execution.job_request import ExecutionRequest
from mcp_exec_sandbox.supervisor.execution.runner_process import CONTROL_BYTES, RunnerProcess
from mcp_exec_sandbox.supervisor.files.request import FilesReport
from mcp_exec_sandbox.supervisor.json_object import MAX_DEPTH, parse_object
from mcp_exec_tools.nesting import is_deeper

TIMEOUT, GRACE = 0.05, 0.01
OUTPUT_BYTES = 2048
PHASES = {"Succeeded", "Failed", "TimedOut"}
KINDS = ["done", "interrupted", "stack", "tool_call", "tool_result", "approval", "ready", "end", "status", None]

hostile_numbers = st.sampled_from(
    ["1e999", "-1e999", "1e-999", "-0", "9" * 4000, "9" * 5000, "NaN", "Infinity", "1E400"]
)
raw_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
).map(json.dumps)
nested = st.tuples(st.integers(1, 1400), st.sampled_from(["[]", "{}"])).map(
    lambda each: "[" * each[0] + "]" * each[0] if each[1] == "[]" else '{"a":' * each[0] + "1" + "}" * each[0]
)
strings = st.sampled_from(['"\\ud800"', '"\\udfff\\ud800"', '"\\u0000"', '"' + "x" * 5000 + '"', '"\ufffd"', '"[[[["'])
values = raw_values | hostile_numbers | nested | strings
REPORT_FIELDS = ["value", "hasValue", "truncated", "error", "exitCode", "limit", "peakMemoryBytes", "line", "traceback"]
EVENT_FIELDS = ["id", "tool", "written", "ms", "bytes", "kind", "message", "argumentBytes", "expiresAt", "ok"]
messages = st.builds(
    lambda kind, fields: "{" + ",".join([f'"type":{json.dumps(kind)}', *(f'"{k}":{v}' for k, v in fields)]) + "}\n",
    st.sampled_from(KINDS),
    st.lists(st.tuples(st.sampled_from(REPORT_FIELDS + EVENT_FIELDS), values), max_size=8),
).map(lambda text: text.encode("utf-8", "replace"))
garbage = st.binary(max_size=200) | st.sampled_from(
    [b"\0" * 100, b"\n" * 5000, b"{", b"\xff\xfe{\0}\0\n", b'"' + b'\\"' * 2000 + b"\n", b"x" * 300_000, b"{}\n" * 5000]
)
lines = st.lists(messages | garbage, max_size=20)


class Unlimited:
    """A watchdog of a run without processes."""

    peak_bytes = 0

    def has_kernel_kill(self):
        return False

    async def watch(self, end_run):
        await asyncio.Event().wait()


class NoFiles:
    """Files of a run that has none."""

    has_workspace = is_placing = False
    report = FilesReport()

    def has_work(self, **_):
        return False

    async def finish(self, **_):
        pass


class NoWrappers:
    async def discard(self):
        pass

    def list_servers(self, allow):
        return None


@contextlib.asynccontextmanager
async def hostile_runner() -> AsyncIterator[tuple[RunnerProcess, socket.socket]]:
    """A runner that is the test, and its end of the channel."""
    kept = []

    def spawn(limits, environment, control, outputs):
        kept.extend([*map(os.dup, outputs), socket.socket(fileno=os.dup(control))])
        return 0

    runner = RunnerProcess(
        limits=RunnerLimits(memory_bytes=1, max_tasks=1, storage_bytes=1), environment={}, spawn=spawn
    )
    stdout, stderr, channel = kept
    # There is no process to interrupt.
    runner.interrupt = lambda: None
    try:
        # The test's own children are not the run's.
        with mock.patch.multiple(code_run, kill_descendants=mock.DEFAULT, stop_descendants=mock.DEFAULT):
            yield runner, channel
    finally:
        runner.close()
        channel.close()
        os.close(stdout)
        os.close(stderr)


@contextlib.asynccontextmanager
async def hostile_run(**fields) -> AsyncIterator[tuple[CodeRun, EventLog, socket.socket]]:
    """A run whose runner is the test, its log and the runner's end of the channel."""
    body = {"id": "x", "code": "", "context": {}, "timeoutSeconds": TIMEOUT, "outputBytes": OUTPUT_BYTES, **fields}
    async with hostile_runner() as (runner, channel):
        log = EventLog()
        run = CodeRun(
            request=ExecutionRequest.from_body(json.dumps(body).encode()),
            runner=runner,
            log=log,
            watchdog=Unlimited(),
            wrappers=NoWrappers(),
            files=NoFiles(),
            grace_seconds=GRACE,
        )
        yield run, log, channel


async def read_events(log):
    return [json.loads(line) async for batch in log.follow(1) for line in batch.lines.splitlines()]


def check_end(events):
    """`end` came once and last; a run that was not ended by its code ended within a second of its time."""
    assert [event["type"] for event in events].count("end") == 1
    end = events[-1]
    assert end["type"] == "end"
    assert end["phase"] in PHASES
    assert end["runMs"] < (TIMEOUT + GRACE + 1) * 1000
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    for event in events:
        assert event["type"] != "result" or len(json.dumps(event["value"], ensure_ascii=False)) <= OUTPUT_BYTES * 2
    assert len(json.dumps(end)) < 40_000
    return end


async def run_against(data, *, repeat=False):
    async with hostile_run() as (run, log, channel):
        stopping = threading.Event()

        def write():
            with contextlib.suppress(OSError):
                channel.sendall(data)
                while repeat and data and not stopping.is_set():
                    channel.sendall(data)

        writer = threading.Thread(target=write)
        writer.start()
        try:
            async with asyncio.timeout(paced(30)):
                await run.run()
        finally:
            stopping.set()
            channel.shutdown(socket.SHUT_RDWR)
            writer.join()
        return check_end(await read_events(log))


@pytest.mark.fuzz
@fuzz_settings(60)
@given(lines)
@example([b'{"type":"done","hasValue":true,"value":' + b"[" * 983 + b"]" * 983 + b"}\n"])
@example([b'{"type":"done","hasValue":true,"value":1e999}\n'])
@example([b'{"type":"done","hasValue":true,"hasValue":1,"value":"\\ud800","error":{"type":"\\udfff"}}\n'])
@example([b'{"type":"tool_call","id":"","tool":"","written":[9007199254740991,9007199254740991]}\n' * 1000])
@example([b'{"type":[[]],"traceback":{}}\n', b'{"type":"interrupted","line":1e5,"traceback":"\\u0000"}\n'])
def test_whatever_the_runner_writes_the_run_ends_in_time_with_one_end(data):
    end = asyncio.run(run_against(b"".join(data)))
    assert end["phase"] == "TimedOut" or b"done" in b"".join(data)


@pytest.mark.fuzz
@fuzz_settings(10)
@given(st.lists(messages.filter(lambda line: b'"done"' not in line) | garbage, max_size=5))
@example([b"\n"])
@example([b"{}\n"])
@example([b"[" * 100_000 + b"\n"])
@example([b"x"])
def test_a_flood_that_does_not_end_delays_nothing(data):
    flood = b"".join(data)
    end = asyncio.run(run_against(flood * max(1, 65536 // max(1, len(flood))), repeat=True))
    assert end["reason"] in ("Timeout", "OutputLimit")


def test_a_flood_of_messages_ends_the_run_by_its_size():
    async def check():
        async with hostile_run(timeoutSeconds=100) as (run, log, channel):
            with mock.patch.object(output, "MAX_WRITTEN_BYTES", 100_000):
                task = asyncio.create_task(run.run())
                await asyncio.get_running_loop().sock_sendall(channel, b"{}\n" * 50_000)
                async with asyncio.timeout(paced(20)):
                    await task
            return (await read_events(log))[-1]

    assert asyncio.run(check())["reason"] == "OutputLimit"


async def test_a_turn_of_the_event_loop_reads_no_more_than_its_share():
    class Listener:
        read = 0

        def on_control(self, size):
            self.read += size

        def on_message(self, message):
            pass

    async with hostile_runner() as (runner, channel):
        listener = Listener()
        runner.listen(listener)
        channel.setblocking(False)
        while True:
            try:
                channel.send(b"\n" * 1024)
            except BlockingIOError:
                break
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert 0 < listener.read <= 2 * CONTROL_BYTES


async def test_code_is_killed_and_the_end_is_written_if_reading_its_outcome_fails():
    async with hostile_run() as (run, log, channel):
        channel.sendall(b'{"type":"done"}\n')
        with mock.patch.object(code_run, "decide_outcome", side_effect=RecursionError("deep")):
            await run.run()
        end = (await read_events(log))[-1]
        assert (end["type"], end["phase"], end["reason"]) == ("end", "Failed", "RunnerDied")
        code_run.stop_descendants.assert_called()


async def test_a_run_whose_limits_can_not_be_watched_ends():
    async with hostile_run(timeoutSeconds=100) as (run, log, _):
        with mock.patch.object(Unlimited, "watch", side_effect=OSError("no /proc")):
            async with asyncio.timeout(paced(20)):
                await run.run()
        assert (await read_events(log))[-1]["reason"] == "RunnerDied"
        code_run.kill_descendants.assert_called()


async def test_a_job_that_nobody_reads_still_times_out():
    async with hostile_run(code="x" * 2_000_000) as (run, log, _):
        async with asyncio.timeout(paced(20)):
            await run.run()
        assert (await read_events(log))[-1]["reason"] == "Timeout"


def measure_depth(value):
    if not isinstance(value, (list, dict)):
        return 0
    return 1 + max(map(measure_depth, value.values() if isinstance(value, dict) else value), default=0)


@pytest.mark.fuzz
@fuzz_settings(200)
@given(
    st.recursive(
        st.text(alphabet='[]{}"\\ax', max_size=6) | st.integers(),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text(alphabet='[]{}"\\', max_size=3), inner, max_size=3)
        ),
    ),
    st.integers(0, 6),
)
def test_the_depth_of_json_is_measured_without_parsing(value, limit):
    text = json.dumps(value).encode()
    assert is_deeper(text, limit) == (measure_depth(value) > limit)


def test_an_object_is_read_up_to_the_bound_of_its_depth():
    inner = MAX_DEPTH - 1
    assert parse_object(b'{"a":' + b"[" * inner + b"]" * inner + b"}") is not None
    assert parse_object(b'{"a":' + b"[" * (inner + 1) + b"]" * (inner + 1) + b"}") is None


@pytest.mark.parametrize("number", ["1e999", "-1e400", "NaN", "-Infinity", "9" * 5000])
def test_numbers_that_have_no_json_are_refused(number):
    assert parse_object(b'{"a": %s}' % number.encode()) is None
