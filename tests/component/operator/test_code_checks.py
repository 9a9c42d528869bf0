"""Code checks before an execution gets a pod: findings are reported or refuse the execution."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.support.world import World

Operating = Callable[..., Any]

STRICT = {"mode": "Strict"}
EVAL = {
    "rule": "DynamicCode",
    "severity": "High",
    "line": 1,
    "message": "eval: executes text as code; write the code itself",
}


def counted(operator: Any) -> dict[tuple[str, str, str], float]:
    return {
        (sample.labels["pool"], sample.labels["rule"], sample.labels["mode"]): sample.value
        for sample in operator.metrics.code_findings.collect()[0].samples
        if sample.name.endswith("_total")
    }


async def test_a_strict_pool_rejects_code_before_any_pod_is_taken(world: World, operating: Operating) -> None:
    world.pool(codeCheck=STRICT)
    async with operating(resync_seconds=60) as operator:
        await world.warm(1)
        (pod,) = world.pods()
        world.execution("bad", "print (eval('1'))")
        status = await world.finished("bad")
        world.execution("good", "print (1)")
        assert (await world.finished("good"))["podName"] == pod
        assert counted(operator) == {("default", "DynamicCode", "Strict"): 1}
    assert (status["phase"], status["reason"]) == ("Failed", "Rejected")
    assert status["error"]["message"] == (
        "spec.code: pool default rejects it: line 1: eval: executes text as code; write the code itself (DynamicCode)"
    )
    assert status["codeFindings"] == [EVAL]
    assert "podName" not in status
    assert len(world.ran) == 1


async def test_a_message_names_the_first_findings_and_the_status_has_all(world: World, operating: Operating) -> None:
    world.pool(codeCheck={"mode": "Strict", "allowedImports": ["json"]})
    async with operating():
        world.execution("bad", "import json, re\nimport os\nimport math\neval('1')\n")
        status = await world.finished("bad")
    assert [(each["rule"], each["line"]) for each in status["codeFindings"]] == [
        ("DynamicCode", 4),
        ("ImportNotAllowed", 1),
        ("ImportNotAllowed", 2),
        ("ImportNotAllowed", 3),
    ]
    message = status["error"]["message"]
    assert "line 2: import of os: the pool allows json (ImportNotAllowed); and 1 more" in message


async def test_a_pool_that_warns_runs_the_code_and_tells_without_another_write(
    world: World, operating: Operating
) -> None:
    world.pool(codeCheck={"mode": "Warn"})
    async with operating(resync_seconds=60) as operator:
        await world.warm(1)
        before = operator.writes()
        world.execution("odd", "print (eval('1'))")
        status = await world.finished("odd")
        after = operator.writes()
        assert counted(operator) == {("default", "DynamicCode", "Warn"): 1}
    assert status["phase"] == "Succeeded"
    assert status["codeFindings"] == [EVAL]
    assert {what: after[what] - before.get(what, 0) for what in ("bind", "finish")} == {"bind": 1, "finish": 1}


@pytest.mark.parametrize(
    ("spec", "code"), [({}, "print (eval('1'))"), ({"mode": "Off"}, "print (eval('1'))"), (STRICT, "print 1")]
)
async def test_nothing_is_said_of_code_that_is_not_looked_at_or_has_nothing(
    world: World, operating: Operating, spec: dict[str, Any], code: str
) -> None:
    world.pool(codeCheck=spec)
    async with operating():
        world.execution("plain", code)
        status = await world.finished("plain")
    assert status["phase"] == "Succeeded"
    assert "codeFindings" not in status


async def test_what_waits_for_a_pool_that_turns_out_strict_is_rejected_and_leaves_its_pod(
    world: World, operating: Operating
) -> None:
    async with operating():
        world.execution("early", "print (eval('1'))")
        await world.until(lambda: world.status("early").get("phase") == "Pending")
        world.pool(codeCheck=STRICT)
        status = await world.finished("early")
        await world.warm(1)
        world.execution("good", "print (1)")
        assert (await world.finished("good"))["phase"] == "Succeeded"
    assert (status["reason"], status["codeFindings"]) == ("Rejected", [EVAL])
    assert len(world.ran) == 1
