"""The operator and supervisors that code has taken the place of: each execution ends, the others go on."""

from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import web
from tests.support.attacks import EVERYWHERE, OK, STREAMS, Play, say
from tests.support.supervisor import FakeSupervisor
from tests.support.world import World

from mcp_exec_operator.core.executions import execution as module
from mcp_exec_operator.core.executions import run

Operating = Callable[..., Any]

ATTACKS = {
    **{name: EVERYWHERE[name] for name in ("no answer", "a closed connection", "a redirect", "a compressed body")},
    **{name: EVERYWHERE[name] for name in ("an endless head", "an endless body")},
    **{name: play for name, play in STREAMS.items() if not name.startswith("endless")},
}
"""Without some floods, which the tests of the client play: here all attacks share an event loop with the operator."""
SILENT = ("no answer", "a byte and then nothing")
"""Attacks that only the deadline of their execution ends soon."""
STRANGERS = {
    "a wrong proof": say(OK + b'content-length: 98\r\n\r\n{"address": "127.0.0.1", "proof": "' + b"a" * 64 + b'"}'),
    "an image of another version": say(b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n"),
    "a redirect": EVERYWHERE["a redirect"],
    "an endless header": EVERYWHERE["an endless header"],
}


def hostile(supervisor: FakeSupervisor, name: str, request: web.Request) -> Play | None:
    """Play the attack that the job names."""
    if name not in ("accept", "events", "state"):
        return None

    async def answer(request: web.Request, over: Any) -> web.StreamResponse:
        if name == "accept":
            supervisor.job = await request.json()
        job = supervisor.job
        if job is None or job["code"] not in ATTACKS:
            return await supervisor.answer(name, request)
        return await ATTACKS[job["code"]](request, over)

    return answer


async def test_every_attack_on_a_stream_ends_its_execution_alone(
    world: World, operating: Operating, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "_RECONNECT_DELAYS", (0.01,) * 3)
    monkeypatch.setattr(module, "_GRACE_SECONDS", 2.0)
    world.attack = hostile
    names = {f"attacked-{number}": name for number, name in enumerate(ATTACKS)}
    world.pool(warm={"min": len(names) + 1}, maxPods=2 * len(names))
    async with operating():
        await world.warm(len(names) + 1)
        for execution, attack in names.items():
            # what has sent a valid event and lasts until its deadline has timed out
            world.execution(execution, attack, timeoutSeconds=1 if attack in SILENT else 60)
        world.execution("honest", "print 1")
        honest = await world.finished("honest")
        assert (honest["phase"], honest.get("output", {}).get("stdout")) == ("Succeeded", "1\n"), honest
        ends = {names[each]: await world.finished(each) for each in names}
        world.execution("later", "print 2")
        assert (await world.finished("later"))["output"]["stdout"] == "2\n"
    reasons = {name: (status["phase"], status["reason"]) for name, status in ends.items()}
    assert reasons == dict.fromkeys(names.values(), ("Failed", "StreamBroken"))
    assert all(len(str(status)) < 20_000 for status in ends.values())


@pytest.mark.parametrize("name", STRANGERS)
async def test_a_pod_with_a_stranger_at_its_address_gets_no_job_and_is_replaced(
    world: World, operating: Operating, name: str
) -> None:
    first: list[str] = []
    tokens: list[str] = []

    def attack(supervisor: FakeSupervisor, route: str, request: web.Request) -> Play | None:
        first[:] = first or [supervisor.pod]
        if supervisor.pod != first[0]:
            return None
        tokens.extend(request.headers.getall("Authorization", []))
        return STRANGERS[name]

    world.attack = attack
    world.pool()
    async with operating() as operator:
        await world.until(lambda: world.condition("Ready").get("reason") == "PodFailed")
        message = world.condition("Ready")["message"]
        assert first[0] in message
        assert "proof" in message
        await world.until(lambda: first[0] not in world.pods())
        world.execution("hello")
        status = await world.finished("hello")
        [failures] = operator.metrics.pod_failures.collect()
    assert status["output"]["stdout"] == "1\n"
    assert status["podName"] != first[0]
    assert tokens == []
    assert sum(each.value for each in failures.samples if each.name.endswith("_total")) == 1
