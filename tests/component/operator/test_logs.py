"""What the operator logs, and the Events that it creates, contain nothing that code has written."""

import json
import logging
from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import web
from tests.support.attacks import Play
from tests.support.quotes import MARKER, QUOTES
from tests.support.supervisor import FakeSupervisor
from tests.support.world import EVENTS, World

from mcp_exec_api.reasons.execution import Reason
from mcp_exec_operator.core.executions import run

Operating = Callable[..., Any]
ERROR = {"type": MARKER, "message": MARKER, "traceback": MARKER, "line": 1}
ENDS = {
    "failed": {"phase": "Failed", "reason": "UserError", "error": ERROR},
    "in-time": {"phase": "TimedOut", "reason": "Timeout", "error": ERROR},
    "odd": {"phase": "Failed", "reason": "SandboxLost", "error": ERROR},
}


def quote(supervisor: FakeSupervisor, name: str, request: web.Request) -> Play | None:
    """Answer as the job names, to its own request and to those that follow it."""
    if name not in ("accept", "events", "state", "cancel"):
        return None

    async def answer(request: web.Request, over: Any) -> web.StreamResponse:
        if name == "accept":
            supervisor.job = await request.json()
        if supervisor.job is None or supervisor.job["code"] not in QUOTES:
            return await supervisor.answer(name, request)
        return await QUOTES[supervisor.job["code"]](request, over)

    return answer


async def test_the_line_of_a_failed_execution_says_why(
    world: World, operating: Operating, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    world.pool()
    async with operating(bind_timeout_seconds=2):
        await world.warm(1)
        world.execution("nowhere", poolRef={"name": "no-such-pool"})
        why = (await world.finished("nowhere"))["error"]["message"]
        world.execution("wrong", f"say {json.dumps([{'kind': 'end', 'runMs': 1, **ENDS['failed']}])}")
        await world.finished("wrong")
    lines = {vars(each)["execution"]: vars(each) for each in caplog.records if each.msg == "execution %s"}
    assert lines["nowhere"]["error"] == why
    assert lines["wrong"]["error"] == Reason.USER_ERROR.meaning, "the message is the code's own"


async def test_neither_logs_nor_events_quote_the_code(
    world: World, operating: Operating, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(run, "_RECONNECT_DELAYS", (0.01,) * 3)
    caplog.set_level(logging.DEBUG)
    world.attack = quote
    quotes = {f"quote-{number}": name for number, name in enumerate(QUOTES)}
    world.pool(warm={"min": 4}, maxPods=40)
    async with operating():
        await world.warm(4)
        for name, end in ENDS.items():
            said = [{"kind": kind, "text": MARKER} for kind in ("stdout", "stderr")]
            world.execution(name, f"say {json.dumps([*said, {'kind': 'end', 'runMs': 1, **end}])}")
        for execution, name in quotes.items():
            world.execution(execution, name, timeoutSeconds=1)
        for name in ENDS:
            assert MARKER in str(await world.finished(name)), "the status has what the code wrote"
        for name in quotes:
            assert (await world.finished(name))["phase"] == "Failed"
    logged = [record for record in caplog.records if MARKER in logging.Formatter().format(record)]
    assert [record.getMessage() for record in logged] == []
    assert MARKER not in json.dumps(world.collections.get(EVENTS, {}), default=str)
