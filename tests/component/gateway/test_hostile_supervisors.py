"""The gateway and supervisors that code has taken the place of: a client's stream ends by the status."""

import asyncio

import pytest
from aiohttp import web
from tests.component.gateway.test_events import STDOUT, attacked, text
from tests.support.api_server import FakeApiServer
from tests.support.attacks import ANSWERS, EVERYWHERE, STREAMS, Play
from tests.support.supervisor import FakeSupervisor
from tests.support.until import until

ROUTES = {"prove": EVERYWHERE, "state": EVERYWHERE | ANSWERS, "events": EVERYWHERE | STREAMS}
TEXTS = ("endless events", "an event again and again", "a stream that stops before its end")
"""Attacks whose text passes for that of the code."""
SLOW = ("no answer", "a body that never comes", "an endless chunk extension")
"""Attacks that hold a request up to its time limit, which is shortest for events."""
ATTACKS = [("events" if name in SLOW else tuple(ROUTES)[at % 3], name) for at, name in enumerate(EVERYWHERE)]
"""Each attack at one route; tests/component/api has each at more of them."""
ATTACKS += [("state", name) for name in ANSWERS] + [("events", name) for name in STREAMS]


@pytest.mark.parametrize(("route", "name"), ATTACKS)
async def test_no_attack_keeps_a_client_from_the_end(api: FakeApiServer, route: str, name: str) -> None:
    hits: list[str] = []

    def attack(supervisor: FakeSupervisor, asked: str, request: web.Request) -> Play | None:
        if asked != route:
            return None
        hits.append(asked)
        return ROUTES[route][name]

    async with attacked(api, attack) as scene:
        scene.say_all()
        reading = asyncio.create_task(scene.read().upto())
        await until(lambda: hits)
        scene.finish()
        frames = await reading
        assert frames[-1]["type"] == "end"
        assert frames[-1]["phase"] == "Succeeded"
        # what an attacker sent before the end, in a valid form, is no more than text of its own execution
        if route != "events" or name not in TEXTS:
            assert text(frames, "stdout") == "".join(STDOUT)
        assert (await scene.gateway.ask("GET", f"/v1/executions/{scene.name}")).json["phase"] == "Succeeded"


async def test_a_stranger_at_a_pods_address_is_logged_once(
    api: FakeApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    hits: list[str] = []

    def attack(supervisor: FakeSupervisor, asked: str, request: web.Request) -> Play | None:
        hits.append(asked)
        return EVERYWHERE["a redirect"]

    async with attacked(api, attack) as scene:
        reading = asyncio.create_task(scene.read().upto())
        await until(lambda: len(hits) > 2)
        scene.finish()
        await reading
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    [message] = [text for text in warnings if "proof" in text]
    assert scene.name in message
    assert set(hits) == {"prove"}
