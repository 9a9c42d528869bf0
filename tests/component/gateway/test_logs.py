"""What the gateway logs contains nothing that code has written, whatever a supervisor answers."""

import asyncio
import logging

import pytest
from aiohttp import web
from tests.component.gateway.test_events import attacked
from tests.support.api_server import FakeApiServer
from tests.support.attacks import Play
from tests.support.quotes import MARKER, QUOTES
from tests.support.supervisor import FakeSupervisor
from tests.support.until import until


@pytest.mark.parametrize("name", QUOTES)
async def test_no_answer_of_a_supervisor_is_quoted(
    api: FakeApiServer, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    hits: list[str] = []

    def attack(supervisor: FakeSupervisor, route: str, request: web.Request) -> Play | None:
        if route not in ("events", "state"):
            return None
        hits.append(route)
        return QUOTES[name]

    async with attacked(api, attack) as scene:
        reading = asyncio.create_task(scene.read().upto())
        await until(lambda: hits)
        scene.say_all()
        scene.finish()
        assert (await reading)[-1]["type"] == "end"
    # the fake supervisor's own server logs to aiohttp's loggers
    logged = [record for record in caplog.records if record.name.startswith("mcp_exec")]
    assert [each.getMessage() for each in logged if MARKER in logging.Formatter().format(each)] == []
