"""A sandbox key that somebody has read: nothing that it has signed outlasts its withdrawal, and nothing renews it."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.component.operator.conftest import Operator
from tests.component.operator.test_key_rotation import is_of, step
from tests.component.operator.test_shipped_skills import SKL, found, write_skill
from tests.support.skills import make_skill, review
from tests.support.world import KEY, KEY_SECRET, NAMESPACE, SBS, SECRETS, World

from mcp_exec_api.constants import ANNOTATION_CALLER_PROOF
from mcp_exec_api.meta import micro_time, now
from mcp_exec_api.skill import SkillSpec
from mcp_exec_common.broker.attestations import Attestor
from mcp_exec_common.broker.skill_proofs import build_shipped
from mcp_exec_common.sandbox_keys import SandboxKeys
from mcp_exec_operator.cluster.keys.rotation import ANNOTATION_ROTATE, ANNOTATION_SINCE
from mcp_exec_operator.features.skills.feature import SkillsFeature

Operating = Callable[..., Any]
Object = dict[str, Any]
THIEF = Attestor(keys=SandboxKeys(KEY))
OTHER = b"the key after the leak"


def forge_shipped(world: World, name: str) -> None:
    """Create a skill as the release does, with the key that leaked."""
    spec = SkillSpec(name=name, version=1, description="d", code="def run():\n    return 'EVIL'\n")
    world.put(SKL, build_shipped(spec, namespace=NAMESPACE, attestor=THIEF, moment=now()))


def forge_approval(world: World, name: str, *, at: str = "") -> None:
    """Approve a draft as the gateway does, with the key that leaked."""
    stored = world.collections[SKL][f"{name}-v1"]
    forged = review(stored, by="security-team", at=at)
    world.put(SKL, stored | {"spec": {**stored["spec"], "review": forged}})


async def withdraw(world: World, operator: Operator) -> None:
    """Rotate as after a leak, and let the operator renew what it renews."""
    world.merge(SECRETS, KEY_SECRET, {"metadata": {"annotations": {ANNOTATION_ROTATE: "compromised"}}})
    manager = operator.manager
    for _ in range(2):
        await manager.keys.check(manager.sandbox_keys)
        await manager.keys.renew_proofs(manager.sandbox_keys)


def proven(world: World, name: str) -> Object:
    conditions = world.collections[SKL][name].get("status", {}).get("conditions", ())
    return next((each for each in conditions if each["type"] == "Proven"), {})


@pytest.mark.parametrize("previous", ["nothing", "a new key is published", "the former key is still accepted"])
async def test_skills_that_a_thief_has_shipped_and_approved_are_refused_whatever_was_under_way(
    world: World, operating: Operating, previous: str
) -> None:
    world.pool()
    async with operating(create_sandbox_key=True) as operator:
        if previous != "nothing":
            await step(world, operator, rotate=True)
        if previous == "the former key is still accepted":
            await step(world, operator, minutes=5)
        former = world.sandbox_keys()
        # it deletes what the release does not bring, once at its start
        await world.until(lambda: not operator.feature(SkillsFeature).shipped.pending)
        world.put(SKL, make_skill("mine", author="eve"))
        forge_shipped(world, "evil")
        forge_approval(world, "mine")
        await world.until(lambda: found(world) == {"mine-v1": "Approved", "evil-v1": "Approved"})
        await withdraw(world, operator)
        assert len(world.sandbox_keys()) == 1
        assert not set(world.sandbox_keys()) & set(former)
        await world.until(lambda: found(world) == {"mine-v1": "Draft", "evil-v1": "Draft"})
        assert "security-team" in proven(world, "mine-v1")["message"]
        assert proven(world, "evil-v1")["reason"] == "NotProven"
        world.execution("uses", "print from skills.evil import run", caller="team-a")
        assert "skills" not in await world.finished("uses")
    async with operating(create_sandbox_key=True) as operator:  # nor by the next one
        await operator.manager.keys.renew_proofs(operator.manager.sandbox_keys)
        assert found(world) == {"mine-v1": "Draft", "evil-v1": "Draft"}
        assert ANNOTATION_ROTATE not in world.collections[SECRETS][KEY_SECRET]["metadata"]["annotations"]


async def test_the_releases_own_skills_are_approved_again_under_their_names(
    world: World, operating: Operating, tmp_path: Path
) -> None:
    world.pool()
    write_skill(tmp_path, "report")
    write_skill(tmp_path, "withdrawn")
    async with operating(create_sandbox_key=True, skills_folder=str(tmp_path)) as operator:
        await world.until(lambda: found(world) == {"report-v1": "Approved", "withdrawn-v1": "Approved"})
        stored = world.collections[SKL]["withdrawn-v1"]
        world.put(SKL, stored | {"spec": {**stored["spec"], "review": review(stored, "Deprecate")}})
        await world.until(lambda: found(world)["withdrawn-v1"] == "Deprecated")
        before = world.collections[SKL]["report-v1"]["metadata"]["annotations"][ANNOTATION_CALLER_PROOF]
        await withdraw(world, operator)
        await world.until(
            lambda: world.collections[SKL]["report-v1"]["metadata"]["annotations"][ANNOTATION_CALLER_PROOF] != before
        )
        await world.until(lambda: found(world) == {"report-v1": "Approved", "withdrawn-v1": "Deprecated"})
        await world.until(lambda: world.collections[SKL]["withdrawn-v1"]["status"].get("author") == "release:mcp-exec")
        world.execution("uses", "print from skills.report import run", caller="")
        assert (await world.finished("uses"))["skills"]["used"] == ["report-v1"]


async def test_executions_that_wait_or_run_with_the_key_are_cancelled_and_its_pods_replaced_at_once(
    world: World, operating: Operating
) -> None:
    world.pool(warm={"min": 2}, maxPods=3)
    async with operating(create_sandbox_key=True) as operator:
        await world.warm(2)
        world.execution("runs", "wait", caller="team-a")
        await world.until(lambda: world.status("runs").get("phase") == "Running")
        world.execution("runs-too", "wait")
        world.execution("and-this", "wait")
        await world.until(lambda: world.status("and-this").get("phase") == "Running")
        world.execution("waits", caller="team-a")
        await world.until(lambda: world.status("waits").get("phase") == "Pending")
        old = set(world.pods())
        await withdraw(world, operator)
        for name in ("runs", "runs-too", "and-this", "waits"):
            end = await world.finished(name)
            assert (end["phase"], "key" in str(end["conditions"])) == ("Cancelled", True), name
        await world.until(lambda: not old & set(world.pods()), what="pods of the former key are gone")
        await world.warm(2)
        assert all(is_of(world.sandbox_keys()[0], pod) for pod in world.pods().values())
        world.execution("after")
        assert (await world.finished("after"))["phase"] == "Succeeded"


@pytest.mark.parametrize("restarts", [False, True], ids=["same leader", "next leader"])
async def test_sessions_are_lost_with_a_reason_and_start_afresh_with_a_proof_of_the_new_key(
    world: World, operating: Operating, restarts: bool
) -> None:
    world.pool()
    given = {"create_sandbox_key": True}
    async with operating(**given) as operator:
        world.execution("first", session="s", caller="team-a")
        first = await world.finished("first")
        (name,) = world.collections[SBS]
        await world.until(lambda: world.session_status(name).get("phase") == "Ready")
        await withdraw(world, operator)
        await world.until(lambda: world.session_status(name).get("phase") == "Lost")
        assert world.session_status(name)["reason"] == "KeyWithdrawn"
        await world.until(lambda: first["podName"] not in world.pods())
        if not restarts:
            await use_again(world, name)
    if restarts:
        async with operating(**given):
            await use_again(world, name)


async def use_again(world: World, name: str) -> None:
    uid = world.collections[SBS][name]["metadata"]["uid"]
    world.execution("second", session="s", caller="team-a")
    second = await world.finished("second")
    assert (second["reason"], "key" in str(second["conditions"])) == ("SessionLost", True)
    world.execution("third", session="s", caller="team-a")
    assert (await world.finished("third"))["phase"] == "Succeeded"
    again = world.collections[SBS][name]
    assert again["metadata"]["uid"] != uid
    assert Attestor(keys=SandboxKeys(*world.sandbox_keys())).read_caller(again) == "team-a"


async def test_a_session_that_a_thief_has_made_for_somebody_serves_nobody(world: World, operating: Operating) -> None:
    world.pool()
    async with operating(create_sandbox_key=True) as operator:
        world.execution("real", session="data", caller="team-a")
        await world.finished("real")
        (name,) = world.collections[SBS]
        world.remove(SBS, name)
        await withdraw(world, operator)
        world.session(name, caller="team-a", key=KEY, name="data", idleTimeoutSeconds=60)
        await world.until(lambda: world.session_status(name).get("reason") == "Invalid")
        assert world.session_status(name).get("caller") is None


async def test_a_rotation_renews_what_was_made_before_it_and_nothing_that_the_former_key_signs_later(
    world: World, operating: Operating
) -> None:
    world.pool()
    async with operating(create_sandbox_key=True) as operator:
        for name in ("before", "after", "dated-back"):
            world.put(SKL, make_skill(name, author="eve"))
        forge_approval(world, "before")
        session = world.session("s-1", caller="team-a", name="s")
        await step(world, operator, rotate=True)
        await step(world, operator, minutes=5)
        new, _ = world.sandbox_keys()
        await world.until(lambda: not operator.feature(SkillsFeature).shipped.pending)
        since = now() - timedelta(minutes=20)
        world.merge(SECRETS, KEY_SECRET, {"metadata": {"annotations": {ANNOTATION_SINCE: micro_time(since)}}})
        forge_shipped(world, "evil")
        forge_approval(world, "after")
        forge_approval(world, "dated-back", at=micro_time(since - timedelta(days=1)))
        world.session("s-2", caller="team-a", key=KEY, name="t")
        await operator.manager.keys.renew_proofs(operator.manager.sandbox_keys)
        await step(world, operator, days=8)
        assert world.sandbox_keys() == (new,)
        await world.until(
            lambda: (
                found(world)
                == {"before-v1": "Approved", "after-v1": "Draft", "dated-back-v1": "Draft", "evil-v1": "Draft"}
            )
        )
        verifier = Attestor(keys=SandboxKeys(new))
        assert verifier.read_caller(world.collections[SBS][session["metadata"]["name"]]) == "team-a"
        assert verifier.read_caller(world.collections[SBS]["s-2"]) == "claimed:team-a"


async def test_what_a_process_signs_with_the_former_key_before_it_has_read_the_new_one_is_renewed(
    world: World, operating: Operating
) -> None:
    async with operating(create_sandbox_key=True) as operator:
        await step(world, operator, rotate=True)
        await step(world, operator, minutes=5)
        world.put(SKL, make_skill("late", author="eve"))
        forge_approval(world, "late")
        await step(world, operator, minutes=6)
        await step(world, operator, days=8)
        assert len(world.sandbox_keys()) == 1
        await world.until(lambda: found(world) == {"late-v1": "Approved"})


async def test_an_owner_who_replaces_the_key_in_one_step_withdraws_it_in_the_same_way(
    world: World, operating: Operating
) -> None:
    world.pool()
    async with operating(create_sandbox_key=False) as operator:
        await world.until(lambda: not operator.feature(SkillsFeature).shipped.pending)
        forge_shipped(world, "evil")
        world.execution("runs", "wait", caller="team-a")
        await world.until(lambda: found(world) == {"evil-v1": "Approved"})
        await world.until(lambda: world.status("runs").get("phase") == "Running")
        world.put_keys({"key": OTHER})
        await operator.manager.keys.check(operator.manager.sandbox_keys)
        await operator.manager.keys.renew_proofs(operator.manager.sandbox_keys)
        assert (await world.finished("runs"))["phase"] == "Cancelled"
        await world.until(lambda: found(world) == {"evil-v1": "Draft"})


async def test_the_annotation_on_a_secret_of_somebody_else_is_reported_as_without_effect(
    world: World, operating: Operating, caplog: pytest.LogCaptureFixture
) -> None:
    async with operating(create_sandbox_key=False) as operator:
        await withdraw(world, operator)
        assert world.sandbox_keys() == (KEY,)
    assert caplog.text.count("has no effect") == 1


async def test_another_value_of_the_annotation_rotates_nothing_and_is_reported(
    world: World, operating: Operating, caplog: pytest.LogCaptureFixture
) -> None:
    async with operating(create_sandbox_key=True) as operator:
        world.merge(SECRETS, KEY_SECRET, {"metadata": {"annotations": {ANNOTATION_ROTATE: "comprimised"}}})
        for _ in range(3):
            await operator.manager.keys.check(operator.manager.sandbox_keys)
        assert world.sandbox_keys() == (KEY,)
    assert "now or compromised" in caplog.text
