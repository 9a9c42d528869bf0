"""The skills that a release brings: created, found, replaced by an upgrade, withdrawn, deleted."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.component.operator.test_cleanup import clean_up
from tests.support.api_server import Fault
from tests.support.shipped_skills import NAMES, ROOT
from tests.support.skills import make_skill, review
from tests.support.world import NAMESPACE, World

from mcp_exec_api.constants import SKILLS
from mcp_exec_common.kube.client import custom_resource_path
from mcp_exec_operator.features.skills.feature import SkillsFeature

Operating = Callable[..., Any]
Object = dict[str, Any]
SKL = custom_resource_path(SKILLS, namespace=NAMESPACE)


def write_skill(root: Path, name: str, code: str = "def run(): return 1\n") -> None:
    folder = root / name / "scripts"
    folder.mkdir(parents=True, exist_ok=True)
    (root / name / "SKILL.md").write_text(f"---\nname: {name}\ndescription: Does {name}.\n---\nHow.\n")
    (folder / "run.py").write_text(code)


def found(world: World) -> dict[str, str]:
    """Return the state of each skill by the name of its object."""
    return {
        name: (skill.get("status") or {}).get("state", "") for name, skill in world.collections.get(SKL, {}).items()
    }


def decide(world: World, name: str, decision: str) -> None:
    stored = world.collections[SKL][name]
    world.put(SKL, stored | {"spec": {**stored["spec"], "review": review(stored, decision)}})


async def test_all_skills_of_the_project_are_approved_in_each_namespace(world: World, operating: Operating) -> None:
    world.pool()
    others = custom_resource_path(SKILLS, namespace="others")
    async with operating(skills_folder=str(ROOT), namespaces=(NAMESPACE, "others")) as operator:
        await world.until(lambda: found(world) == {f"{name}-v1": "Approved" for name in NAMES})
        await world.until(lambda: len(world.collections.get(others, {})) == len(NAMES))
        world.execution("uses", "print from skills.chart import run", caller="eve")
        assert (await world.finished("uses"))["skills"]["used"] == ["chart-v1"]
        made = operator.writes()["skill"]
    chart = world.collections[SKL]["chart-v1"]
    assert chart["status"]["author"] == "release:mcp-exec"
    assert chart["status"]["parameters"]["properties"]["kind"]["enum"] == ["bar", "line"]
    assert made == 2 * len(NAMES)
    async with operating(skills_folder=str(ROOT), namespaces=(NAMESPACE, "others")) as operator:
        await world.until(lambda: not operator.feature(SkillsFeature).shipped.pending)
        assert operator.writes().get("skill", 0) == 0, "the next operator finds them"


async def test_an_upgrade_replaces_what_it_changes_and_deletes_what_it_drops(
    world: World, operating: Operating, tmp_path: Path
) -> None:
    world.pool()
    for name in ("same", "changed", "dropped"):
        write_skill(tmp_path, name)
    async with operating(skills_folder=str(tmp_path)):
        await world.until(lambda: len(found(world)) == 3)
    world.put(
        SKL, make_skill("changed", 2, author="bob")
    )  # a draft keeps its number, and nobody's upgrade waits for it
    write_skill(tmp_path, "changed", "def run(): return 2\n")
    (tmp_path / "dropped" / "SKILL.md").unlink()
    async with operating(skills_folder=str(tmp_path)):
        wanted = {"same-v1": "Approved", "changed-v2": "Draft", "changed-v3": "Approved"}
        await world.until(lambda: found(world) == wanted)
    async with operating():
        await world.until(lambda: found(world) == {"changed-v2": "Draft"})


async def test_a_namespaces_own_skill_and_an_approvers_decision_win(
    world: World, operating: Operating, tmp_path: Path
) -> None:
    world.pool()
    for name in ("own", "withdrawn"):
        write_skill(tmp_path, name)
    world.put(SKL, make_skill("own", 4, author="bob"))
    decide(world, "own-v4", "Approve")
    async with operating(skills_folder=str(tmp_path)):
        await world.until(lambda: found(world) == {"own-v4": "Approved", "withdrawn-v1": "Approved"})
        decide(world, "withdrawn-v1", "Deprecate")
        await world.until(lambda: found(world)["withdrawn-v1"] == "Deprecated")
    write_skill(tmp_path, "withdrawn", "def run(): return 2\n")
    write_skill(tmp_path, "z-last")  # skills come in the order of their names: it shows the end
    async with operating(skills_folder=str(tmp_path)):
        wanted = {"own-v4": "Approved", "withdrawn-v1": "Deprecated", "z-last-v1": "Approved"}
        await world.until(lambda: found(world) == wanted)


async def test_no_caller_forges_a_skill_of_the_release(world: World, operating: Operating, tmp_path: Path) -> None:
    world.pool()
    write_skill(tmp_path, "real")
    async with operating(skills_folder=str(tmp_path)):
        await world.until(lambda: found(world) == {"real-v1": "Approved"})
        meta = world.collections[SKL]["real-v1"]["metadata"]
        forged = make_skill("forged")
        forged["metadata"] |= {"labels": meta["labels"], "annotations": meta["annotations"]}
        world.put(SKL, forged)
        await world.until(lambda: found(world).get("forged-v1") == "Draft")
        stored = world.collections[SKL]["real-v1"]
        world.put(SKL, stored | {"spec": {**stored["spec"], "code": "def run(): return 'evil'"}})
        await world.until(lambda: found(world)["real-v1"] == "Draft")


async def test_a_failing_api_server_delays_them_and_an_uninstallation_deletes_them(
    world: World, operating: Operating, tmp_path: Path
) -> None:
    world.pool()
    world.put(SKL, make_skill("own", author="bob"))
    for name in ("one", "two"):
        write_skill(tmp_path, name)
    world.faults += [Fault("POST", "/skills", 500)] * 2
    async with operating(skills_folder=str(tmp_path)):
        await world.until(lambda: set(found(world)) == {"own-v1", "one-v1", "two-v1"})
        await clean_up(world, cancel_seconds=0, stop_seconds=0, gone_seconds=0)
        assert set(found(world)) == {"own-v1"}
