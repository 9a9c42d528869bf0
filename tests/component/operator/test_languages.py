"""Languages: an execution runs only in a pool of its language, with the wrappers and the skills of that language."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from tests.component.operator.brokers import SERVICE, running_broker
from tests.component.operator.test_skills import put, run
from tests.component.operator.test_tools import add_server, job_of
from tests.support.broker import FakeBroker
from tests.support.skills import make_skill
from tests.support.world import PODS, SBP, World

from mcp_exec_broker.features.records.tables import EXECUTIONS, check_row

Operating = Callable[..., Any]
SKILL = "export async function run({ a = 1 }) { return a; }"


@pytest.fixture
async def broker(world: World) -> AsyncIterator[FakeBroker]:
    async with running_broker(world) as made:
        yield made


def add_pool(world: World, name: str, language: str, **spec: Any) -> None:
    given = {"image": "sandbox", "language": language, "warm": {"min": 1}} | spec
    world.put(SBP, {"metadata": {"name": name, "generation": 1}, "spec": given})


def in_pool(name: str) -> dict[str, Any]:
    return {"poolRef": {"name": name}}


async def test_an_execution_runs_in_a_pool_of_its_language_whose_pods_have_been_told_it(
    world: World, operating: Operating
) -> None:
    add_pool(world, "scripts", "typescript")
    async with operating():
        world.execution("one", language="typescript", **in_pool("scripts"))
        world.execution("other", **in_pool("scripts"))
        assert (await world.finished("one"))["phase"] == "Succeeded"
        assert (await world.finished("other"))["phase"] == "Succeeded", "without a language, it is that of the pool"
        (container, *_) = next(iter(world.collections[PODS].values()))["spec"]["containers"]
    assert {"name": "MCP_EXEC_LANGUAGE", "value": "typescript"} in container["env"]


async def test_an_execution_of_another_language_than_its_pool_is_refused_with_the_pools_that_there_are(
    world: World, operating: Operating
) -> None:
    world.pool()
    add_pool(world, "scripts", "typescript")
    async with operating():
        world.execution("one", language="typescript")
        world.execution("two", language="python", **in_pool("scripts"))
        first, second = await world.finished("one"), await world.finished("two")
    assert (first["phase"], first["reason"]) == ("Failed", "LanguageNotOffered")
    assert first["error"]["message"] == (
        "spec.language: pool default runs python, not typescript; the pools are default (python), scripts (typescript)"
    )
    assert second["error"]["message"].startswith("spec.language: pool scripts runs typescript, not python;")
    assert world.ran == []
    assert "podName" not in first


async def test_an_execution_that_waited_for_its_pool_is_refused_once_the_pool_has_another_language(
    world: World, operating: Operating
) -> None:
    async with operating():
        world.execution("one", language="typescript")
        await world.until(lambda: world.status("one").get("reason") == "PoolNotFound")
        world.pool()
        status = await world.finished("one")
    assert (status["reason"], world.ran) == ("LanguageNotOffered", [])


async def test_the_record_of_an_execution_has_the_language_of_its_pool(
    world: World, broker: FakeBroker, operating: Operating
) -> None:
    world.pool()
    add_pool(world, "scripts", "typescript")
    broker.rows = {}
    async with operating(broker_service=SERVICE, records=True):
        for name, pool in (("plain", "default"), ("script", "scripts")):
            world.execution(name, **in_pool(pool))
            await world.finished(name)
        await world.until(lambda: len((broker.rows or {}).get("executions", [])) == 2)
    stored = {row["name"]: check_row(EXECUTIONS, row)["language"] for row in broker.rows["executions"]}
    assert stored == {"plain": "python", "script": "typescript"}


@pytest.mark.parametrize("mode", ["Warn", "Strict"])
async def test_a_pool_that_checks_code_runs_nothing_that_its_rules_cannot_read(
    world: World, operating: Operating, mode: str
) -> None:
    add_pool(world, "default", "typescript", codeCheck={"mode": mode})
    async with operating():
        world.execution("one", "1 + 1")
        status = await world.finished("one")
    assert (status["phase"], status["reason"]) == ("Failed", "LanguageNotChecked")
    message = "pool default checks code before it runs, and has no rules for typescript"
    assert (status["error"]["message"], world.ran) == (message, [])


async def test_pods_get_the_wrappers_of_their_language_which_are_made_once_a_pod_runs_it(
    world: World, broker: FakeBroker, operating: Operating
) -> None:
    world.pool()
    add_server(world)
    async with operating(broker_service=SERVICE):
        await world.until(lambda: [each.wrappers for each in world.supervisors.values()] == ["one"])
        assert set(broker.languages) == {"python"}
        add_pool(world, "scripts", "typescript")
        await world.until(lambda: [each.wrappers for each in world.supervisors.values()] == ["one", "one"])
        assert set(broker.languages) == {"python", "typescript"}
        world.execution("one", "wait", tools=["github.*"], **in_pool("scripts"))
        assert (await job_of(world, "one"))["tools"]["wrappers"] == "one"


async def test_an_execution_sees_the_skills_of_its_language_only(world: World, operating: Operating) -> None:
    world.pool()
    add_pool(world, "scripts", "typescript")
    put(world, make_skill("report", 1, author="bob"), approved=True)
    put(world, make_skill("report", 2, author="bob", language="typescript", code=SKILL), approved=True)
    put(world, make_skill("chart", author="bob"), approved=True)
    scripts = in_pool("scripts")
    async with operating():
        _, found = await run(world, "old", "print from skills.report import run")
        assert found is not None
        assert found["modules"] == {"report": "report-v1"}
        _, found = await run(world, "new", 'print import { run } from "skills/report"; searchSkills("")', **scripts)
        assert found is not None
        assert found["modules"] == {"report": "report-v2"}
        assert found["sources"]["report-v2"]["code"] == SKILL
        assert [entry["name"] for entry in found["catalog"]] == ["report"]
        status, found = await run(world, "wrong", "", skillRef={"name": "chart"}, language="typescript", **scripts)
    assert (status["reason"], found) == ("Rejected", None)
    assert status["error"]["message"].startswith("spec.skillRef: there is no skill chart in typescript that")


async def test_a_skill_runs_by_the_statements_of_its_language(world: World, operating: Operating) -> None:
    add_pool(world, "default", "typescript")
    put(world, make_skill("report", author="bob", language="typescript", code=SKILL), approved=True)
    async with operating():
        world.execution("one", "", skillRef={"name": "report"}, language="typescript")
        await world.until(lambda: world.jobs)
    assert world.jobs[0]["code"] == 'import { run } from "skills/report";\nawait run(context);\n'
