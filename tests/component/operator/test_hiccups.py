"""An API server that throttles, fails or loses answers, as it does when it restarts or its etcd stumbles."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.support.api_server import Fault
from tests.support.world import World

from mcp_exec_operator.core.pods import cache

Operating = Callable[..., Any]
MORE_THAN_RETRIES = 5


@pytest.mark.parametrize("what", [429, 500, 503, 504, "lost before"])
async def test_writes_that_fail_for_a_while_are_made_once_and_late(
    world: World, operating: Operating, monkeypatch: pytest.MonkeyPatch, what: Any
) -> None:
    monkeypatch.setattr(cache, "UNCERTAIN_SECONDS", 0.3)  # of a creation whose answer is lost
    world.pool()
    async with operating() as operator:
        await world.warm(1)
        world.faults += [Fault("PUT", "/only/status", what)] * MORE_THAN_RETRIES
        world.faults += [Fault("POST", "/pods", what), Fault("GET", "/pods", what), Fault("GET", "/sandboxpools", what)]
        uid = world.execution("only")
        status = await world.finished("only")
        used = status["podName"]
        await world.until(lambda: used not in world.pods() and len(world.pods()) == 1 and not world.faults)
        await world.warm(1)
        assert operator.part.resync.done.is_set()
    assert (status["phase"], status["output"]["stdout"], world.ran) == ("Succeeded", "1\n", [uid])


async def test_resyncs_that_fail_are_counted_and_made_up_for(world: World, operating: Operating) -> None:
    world.pool()
    async with operating() as operator:
        await world.warm(1)
        lists = len(world.asked("GET", "/codeexecutions"))
        world.faults += [Fault("GET", "/codeexecutions", 500)] * MORE_THAN_RETRIES
        await world.until_asked(lambda: len(world.asked("GET", "/codeexecutions")) > lists + MORE_THAN_RETRIES)
        world.execution("only")
        assert (await world.finished("only"))["phase"] == "Succeeded"
        (failures,) = operator.metrics.resync_failures.collect()
        assert failures.samples[0].value >= 1
