"""Rates of progress: what the runner sends, and what the supervisor writes."""

import asyncio
import json

import pytest

from mcp_exec_sandbox.supervisor.execution.events import (
    INTERVAL_SECONDS,
    LONG_INTERVAL_SECONDS,
    EventLog,
    ProgressEvents,
)
from mcp_exec_sandbox.tools.progress import ProgressReporter


def test_a_reporter_sends_a_burst_and_then_the_newest_report_of_each_interval():
    sent, now = [], [0.0]
    reporter = ProgressReporter(sent.append, clock=lambda: now[0])
    for number in range(100):
        reporter.report(number, None, "")
    assert [event["done"] for event in sent] == list(range(20))
    reporter.flush()
    assert sent[-1]["done"] == 99
    now[0] += 1.0
    reporter.report(100, 100, "done")
    assert sent[-1] == {"type": "progress", "done": 100, "total": 100, "text": "done"}


async def read(log: EventLog) -> list[dict]:
    log.append("end")
    lines = b"".join([batch.lines async for batch in log.follow(1)])
    return [json.loads(line) for line in lines.splitlines()][:-1]


async def test_the_supervisor_writes_one_event_an_interval_and_the_newest_at_the_end(monkeypatch):
    monkeypatch.setattr("mcp_exec_sandbox.supervisor.execution.events.INTERVAL_SECONDS", 1000)
    log = EventLog()
    events = ProgressEvents(log)
    for number in range(50):
        events.add({"done": number, "total": 50, "text": ""})
    events.finish()
    assert [event["done"] for event in await read(log)] == [0, 49]


async def test_the_supervisor_bounds_the_number_of_events_but_keeps_the_newest(monkeypatch):
    monkeypatch.setattr("mcp_exec_sandbox.supervisor.execution.events.MAX_PROGRESS_EVENTS", 1)
    log = EventLog()
    events = ProgressEvents(log)
    for number in range(5):
        events.add({"done": number, "total": None, "text": ""})
        events._end_interval()  # noqa: SLF001 - instead of a wait
    events.finish()
    assert [event["done"] for event in await read(log)] == [0, 4]


async def test_a_run_that_has_reported_half_of_the_events_reports_less_often(monkeypatch):
    module = "mcp_exec_sandbox.supervisor.execution.events"
    monkeypatch.setattr(f"{module}.MAX_PROGRESS_EVENTS", 4)
    loop, waits = asyncio.get_running_loop(), []
    monkeypatch.setattr(loop, "call_later", lambda seconds, _: waits.append(seconds))
    events = ProgressEvents(EventLog())
    for number in range(4):
        events.add({"done": number, "total": None, "text": ""})
    assert waits == [INTERVAL_SECONDS, LONG_INTERVAL_SECONDS, LONG_INTERVAL_SECONDS, LONG_INTERVAL_SECONDS]


async def test_numbers_that_no_client_could_read_are_refused_and_end_nothing():
    beyond = (10**400, -(10**400), 2**53 + 1, float("nan"), float("inf"), True, "1", None)
    log = EventLog()
    events = ProgressEvents(log)
    for number in beyond:
        events.add({"done": number, "total": None, "text": ""})
        events.add({"done": 1, "total": number, "text": ""} if number is not None else {})
    events.finish()
    assert await read(log) == []
    reporter = ProgressReporter(lambda event: None)
    for number in (10**5000, float("nan"), float("inf"), "1", None, []):
        with pytest.raises(TypeError, match="done must be a number, not"):
            reporter.report(number, None, "")
