"""The clock of a run while its calls wait for approvals: only what the broker confirms stops it."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.component.operator.test_tools import PENDING, broker, equipped
from tests.support.broker import FakeBroker
from tests.support.world import CEX, World

from mcp_exec_common.kube.objects import Object
from mcp_exec_operator.core.executions import execution
from mcp_exec_operator.features.tools import part

Operating = Callable[..., Any]
__all__ = ["broker", "equipped"]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask the broker often."""
    monkeypatch.setattr(part, "_POLL_SECONDS", 0.04)
    monkeypatch.setattr(part, "_MIN_SECONDS", 0.02)


def say(state: str, waited: float, remaining: float, process: str = "p1") -> Object:
    """Return the broker's answer about an execution with one approval."""
    approval = PENDING if state == "Pending" else {**PENDING, "state": state}
    wait = {"process": process, "waitedSeconds": waited, "remainingSeconds": remaining}
    return {"toolCalls": {"total": 1}, "approvals": [approval], "waits": [wait]}


async def start(world: World, broker: FakeBroker, answer: Object, **fields: Any) -> str:
    """Start an execution whose call waits, and return its uid once the sandbox knows."""
    await world.warm(1)
    uid = world.execution("one", "ask", tools=["github.*"], **fields)
    broker.calls[uid] = answer
    await world.until(lambda: world.ran)
    await world.until(lambda: world.supervisor_of("one").extensions)
    return uid


async def test_the_clock_stands_still_while_a_call_waits_and_the_wait_is_measured_on_its_own(
    world: World, broker: FakeBroker, equipped: Operating
) -> None:
    world.pool()
    async with equipped():
        uid = await start(world, broker, say("Pending", 0.5, 599.5))
        assert world.supervisor_of("one").extensions[0] == 600
        await world.until(lambda: world.status("one").get("reason") == "AwaitingApproval")
        broker.calls[uid] = say("Approved", 3, 0)
        await world.until(lambda: world.supervisor_of("one").extensions[-1] == 3)
        await world.until(lambda: not world.status("one").get("reason"))
        assert world.status("one")["durations"]["approval"] == 3000
        world.release.set()
        status = await world.finished("one")
    assert (status["phase"], status.get("reason", "")) == ("Succeeded", "")
    assert (status["durations"]["approval"], status["durations"]["run"]) == (3000, 0)
    # the binding, the wait, its end, and the end of the execution
    assert world.steps.done.count("after PUT one") == 4


async def test_the_operators_own_deadline_moves_with_the_waits(
    world: World, broker: FakeBroker, equipped: Operating, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execution, "_GRACE_SECONDS", -0.5)
    world.pool()
    async with equipped():
        uid = await start(world, broker, say("Pending", 0.0, 600), timeoutSeconds=1)
        asked = len(broker.asked)
        await world.until(lambda: len(broker.asked) > asked + 20)  # more than half a second
        assert world.status("one")["phase"] == "Running"
        broker.calls[uid] = say("Denied", 0.1, 0)
        status = await world.finished("one")
    assert (status["phase"], status["durations"]["approval"]) == ("TimedOut", 100)


async def test_a_forged_wait_does_not_extend_a_run_beyond_its_own_limit(
    world: World, broker: FakeBroker, equipped: Operating
) -> None:
    world.pool()
    async with equipped():
        uid = await start(world, broker, say("Pending", 10, 600), approvalTimeoutSeconds=60)
        assert world.supervisor_of("one").extensions[0] == 60
        broker.calls[uid] = {"toolCalls": {"total": 1}, "approvals": []}
        world.supervisor_of("one").say(
            "approval", id="approval-00000000000f0f0f", tool="github.create_issue", expiresAt=None
        )
        await world.until(lambda: world.supervisor_of("one").extensions[-1] == 10)
        world.release.set()
        status = await world.finished("one")
    assert status["durations"]["approval"] == 10_000


async def test_an_operator_that_restarts_goes_on_with_the_wait(
    world: World, broker: FakeBroker, equipped: Operating
) -> None:
    world.pool()
    async with equipped():
        uid = await start(world, broker, say("Pending", 1, 599))
        await world.until(lambda: world.status("one").get("reason") == "AwaitingApproval")
        extensions = world.supervisor_of("one").extensions
    sent = len(extensions)
    broker.calls[uid] = say("Pending", 20, 580)
    async with equipped():
        await world.until(lambda: len(extensions) > sent)
        assert extensions[-1] == 600
        broker.calls[uid] = say("Approved", 25, 0)
        await world.until(lambda: not world.status("one").get("reason"))
        world.release.set()
        status = await world.finished("one")
    assert (status["phase"], status["durations"]["approval"]) == ("Succeeded", 25_000)
    assert world.ran == [uid]


async def test_a_broker_that_restarts_withdraws_the_approval_and_forgets_no_time(
    world: World, broker: FakeBroker, equipped: Operating
) -> None:
    world.pool()
    async with equipped():
        uid = await start(world, broker, say("Pending", 30, 570))
        await world.until(lambda: world.status("one").get("reason") == "AwaitingApproval")
        broker.broken = True
        extensions = world.supervisor_of("one").extensions
        asked = len(broker.asked)
        await world.until(lambda: len(broker.asked) > asked + 2)
        assert (extensions[-1], world.status("one")["reason"]) == (600, "AwaitingApproval")
        broker.calls[uid] = {"toolCalls": {"total": 0}, "approvals": []}
        broker.broken = False
        await world.until(lambda: extensions[-1] == 30)
        await world.until(lambda: not world.status("one").get("reason"))
        assert [each["state"] for each in world.status("one")["approvals"]] == ["Withdrawn"]
        broker.calls[uid] = say("Pending", 5, 595, process="p2")
        world.supervisor_of("one").say(
            "approval", id="approval-0000000000000002", tool="github.create_issue", expiresAt=None
        )
        await world.until(lambda: extensions[-1] == 600)
        broker.calls[uid] = say("Approved", 6, 0, process="p2")
        await world.until(lambda: extensions[-1] == 36)
        world.release.set()
        status = await world.finished("one")
    assert status["durations"]["approval"] == 36_000


async def test_a_run_that_is_cancelled_while_a_call_waits_ends_at_once(
    world: World, broker: FakeBroker, equipped: Operating
) -> None:
    world.pool()
    async with equipped():
        uid = await start(world, broker, say("Pending", 1, 599))
        world.merge(CEX, "one", {"spec": {"cancelRequested": True}})
        world.supervisor_of("one").say("end", phase="Cancelled", reason="Cancelled", runMs=1500)
        status = await world.finished("one")
    assert (status["phase"], status["reason"]) == ("Cancelled", "Cancelled")
    assert broker.closed == [uid]
