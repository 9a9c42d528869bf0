"""Skills at the operator: who gets which code, states, use, drafts of code, and what is refused."""

import json
from collections.abc import Callable
from typing import Any

from tests.support.skills import CODE, make_skill, review
from tests.support.world import NAMESPACE, World

from mcp_exec_api.constants import ANNOTATION_CREATED_BY, SKILLS
from mcp_exec_common.kube.client import custom_resource_path
from mcp_exec_operator.features.skills.feature import SkillsFeature

Operating = Callable[..., Any]
Object = dict[str, Any]
SKL = custom_resource_path(SKILLS, namespace=NAMESPACE)
OTHERS = custom_resource_path(SKILLS, namespace="others")


def put(world: World, skill: Object, *, approved: bool = False) -> Object:
    path = custom_resource_path(SKILLS, namespace=skill["metadata"]["namespace"])
    stored = world.put(path, skill)
    if approved:
        stored = world.put(path, stored | {"spec": {**stored["spec"], "review": review(stored)}})
    return stored


def status_of(world: World, name: str) -> Object:
    return world.collections[SKL][name].get("status") or {}


async def run(world: World, name: str, code: str = "", **fields: Any) -> tuple[Object, Object | None]:
    """Run an execution. Return its status and the field `skills` of its job, or None if it did not run."""
    before = len(world.ran)
    world.execution(name, code, **fields)
    status = await world.finished(name)
    if len(world.ran) == before:
        return status, None
    return status, next(job for job in world.jobs if job["id"] == world.ran[-1]).get("skills")


async def test_approved_skills_that_code_names_travel_with_its_job(world: World, operating: Operating) -> None:
    world.pool(warm={"min": 2})
    put(world, make_skill("make-report", 1, author="bob"), approved=True)
    put(world, make_skill("make-report", 2, author="bob", code="import skills.helper\ndef run(): ..."), approved=True)
    put(world, make_skill("helper", author="bob", code=CODE, tools=["a.b"]), approved=True)
    put(world, make_skill("unused", author="bob"), approved=True)
    async with operating():
        status, skills = await run(world, "one", "print from skills.make_report import run", caller="eve")
        assert skills is not None
        assert skills["modules"] == {"make_report": "make-report-v2", "helper": "helper-v1"}
        assert skills["sources"]["helper-v1"] == {"code": CODE, "tools": ["a.b"]}
        assert status["skills"] == {"used": ["helper-v1", "make-report-v2"]}
        _, skills = await run(world, "old", "print import skills.make_report_v1", caller="eve")
        assert skills is not None
        assert skills["modules"] == {"make_report_v1": "make-report-v1"}
        _, skills = await run(world, "search", "print search_skills('x')", caller="eve")
        assert skills is not None
        assert [entry["name"] for entry in skills["catalog"]] == ["helper", "make_report", "unused"]
        status, skills = await run(world, "none", "print skills are nice", caller="eve")
        assert skills is None
        assert "skills" not in status
        _, skills = await run(world, "listed", "print 1", caller="eve", skills=["unused"])
        assert skills is not None
        assert skills["modules"] == {"unused": "unused-v1"}


async def test_a_reference_runs_a_skill_with_the_context_as_arguments(world: World, operating: Operating) -> None:
    world.pool()
    put(world, make_skill("make-report", 3, author="bob"), approved=True)
    async with operating():
        status, skills = await run(world, "ref", "", skillRef={"name": "make-report"}, context={"a": 1})
        assert skills is not None
        assert world.jobs[-1]["code"] == "from skills.make_report import run\nrun(**context)\n"
        assert status["skills"]["used"] == ["make-report-v3"]
        status, skills = await run(world, "missing", "", skillRef={"name": "nothing", "version": 2})
    assert skills is None
    assert status["reason"] == "Rejected"
    assert (
        "spec.skillRef: there is no skill nothing-v2 in python that this execution may use"
        in status["error"]["message"]
    )


async def test_a_draft_runs_for_its_author_and_user_alone(world: World, operating: Operating) -> None:
    world.pool(warm={"min": 3})
    put(world, make_skill("mine", author="bob", user="u1"))
    put(world, make_skill("public", author="eve"), approved=True)
    put(world, make_skill("public", 2, author="bob"))
    put(world, make_skill("of-nobody"))
    put(world, make_skill("by-kubectl", author="k8s/ann@example.com"))
    forged = make_skill("forged", author="bob")
    forged["metadata"]["annotations"].clear()
    put(world, forged)
    async with operating():
        cases: list[tuple[str, Object, bool]] = [
            ("mine", {"caller": "bob", "user": "u1"}, True),
            ("mine", {"caller": "bob", "user": "u2"}, False),
            ("mine", {"caller": "bob"}, False),
            ("mine", {"caller": "eve", "user": "u1"}, False),
            ("mine", {"caller": "bob", "user": "u1", "forged": True}, False),
            ("mine", {"user": "u1"}, False),
            ("forged", {"caller": "bob"}, False),
            ("forged", {}, False),
            ("of-nobody", {"account": ""}, False),
            ("of-nobody", {}, False),
            ("by-kubectl", {}, True),
            ("by-kubectl", {"user": "u1"}, False),
            ("by-kubectl", {"account": "eve@example.com"}, False),
            ("by-kubectl", {"account": ""}, False),
            ("by-kubectl", {"caller": "bob"}, False),
        ]
        for number, (name, fields, allowed) in enumerate(cases):
            status, skills = await run(world, f"e{number}", "", skillRef={"name": name}, **fields)
            assert (skills is not None) == allowed, (name, fields, status)
        _, skills = await run(world, "newest", "", skillRef={"name": "public"}, caller="bob")
        assert skills is not None
        assert list(skills["sources"]) == ["public-v1"], "a draft never hides an approved version"


async def test_an_account_that_was_written_before_policies_protected_it_has_no_draft(
    world: World, operating: Operating
) -> None:
    """Whoever could write the annotation named the account of somebody else."""
    world.pool()
    put(world, make_skill("forged", author="k8s/ann@example.com"))
    async with operating(accounts_proven=False):
        await world.until(lambda: status_of(world, "forged-v1").get("author") == "claimed:k8s/ann@example.com")
        _, without = await run(world, "without", "print skills.forged")
    async with operating():
        _, skills = await run(world, "with", "print skills.forged")
    assert (without, skills) == (None, None)
    assert status_of(world, "forged-v1")["author"] == "claimed:k8s/ann@example.com"


async def test_a_number_that_an_account_chose_blocks_no_name(world: World, operating: Operating) -> None:
    world.pool()
    put(world, make_skill("learned", 99999, author="k8s/eve@example.com"))
    async with operating():
        status, _ = await run(world, "saves", saving({"name": "learned"}), caller="bob")
    assert status["skills"]["saved"] == ["learned-v1"]


async def test_a_skill_adds_no_tool_to_an_execution(world: World, operating: Operating) -> None:
    world.pool()
    put(world, make_skill("issues", author="bob", tools=["github.list_issues"]), approved=True)
    async with operating():
        status, skills = await run(world, "ref", "", skillRef={"name": "issues"})
    assert skills is None
    assert status["error"]["message"] == (
        "spec.tools: skill issues-v1 needs github.list_issues, which spec.tools does not allow"
    )


async def test_a_skill_of_another_namespace_is_as_if_it_were_not(world: World, operating: Operating) -> None:
    world.pool()
    put(world, make_skill("theirs", namespace="others", author="bob"), approved=True)
    async with operating(namespaces=("agents", "others")):
        found = [(await run(world, f"uses-{name}", "", skillRef={"name": name}))[0] for name in ("theirs", "absent")]
    messages = [status["error"]["message"] for status in found]
    assert messages[0].replace("theirs", "absent") == messages[1]


async def test_the_status_shows_state_interface_findings_and_problems(world: World, operating: Operating) -> None:
    world.pool()
    put(world, make_skill("good", author="bob", code="def run(a: int): eval('1')"))
    put(world, make_skill("empty", author="bob", code="x = 1"))
    misnamed = make_skill("named", author="bob")
    misnamed["metadata"]["name"] = "other"
    put(world, misnamed)
    async with operating():
        await world.until(
            lambda: all(status_of(world, name).get("conditions") for name in ("good-v1", "empty-v1", "other"))
        )
        good = status_of(world, "good-v1")
        stored = world.collections[SKL]["good-v1"]
        put(world, stored | {"spec": {**stored["spec"], "review": review(stored)}})
        await world.until(lambda: status_of(world, "good-v1")["state"] == "Approved")
        stored = world.collections[SKL]["good-v1"]
        first = stored["spec"]["review"]
        put(world, stored | {"spec": {**stored["spec"], "review": review(stored, "Deprecate", by="cat")}})
        await world.until(lambda: status_of(world, "good-v1")["state"] == "Deprecated")
        stored = world.collections[SKL]["good-v1"]
        put(world, stored | {"spec": {**stored["spec"], "review": first}})
        _, skills = await run(world, "pinned", "print import skills.good_v1", caller="eve")
        assert skills is not None, "a deprecated version runs for those who name it"
        _, skills = await run(world, "unpinned", "print import skills.good", caller="eve")
        assert skills is None, "an old approval that is written again does not count"
        assert status_of(world, "good-v1")["state"] == "Deprecated"
    assert good["author"] == "bob"
    assert good["parameters"]["properties"] == {"a": {"type": "integer"}}
    assert [finding["rule"] for finding in good["codeFindings"]] == ["DynamicCode"]
    assert status_of(world, "good-v1")["reviewedBy"] == "cat"
    assert "no function `run`" in status_of(world, "empty-v1")["conditions"][0]["message"]
    assert "must have the name named-v1" in status_of(world, "other")["conditions"][0]["message"]


async def test_a_changed_spec_is_used_by_nobody(world: World, operating: Operating) -> None:
    world.pool()
    put(world, make_skill("changed", author="bob"), approved=True)
    async with operating():
        await world.until(lambda: status_of(world, "changed-v1").get("state") == "Approved")
        stored = world.collections[SKL]["changed-v1"]
        put(world, stored | {"spec": {**stored["spec"], "code": "def run(): 'evil'"}})
        await world.until(lambda: status_of(world, "changed-v1")["state"] == "Draft")
        for caller in ("bob", "eve"):
            _, skills = await run(world, f"of-{caller}", "", skillRef={"name": "changed"}, caller=caller)
            assert skills is None
    assert "changed after creation" in status_of(world, "changed-v1")["conditions"][0]["message"]


async def test_uses_and_successes_are_counted_and_written_together(world: World, operating: Operating) -> None:
    world.pool(warm={"min": 3})
    put(world, make_skill("counted", author="bob"), approved=True)
    async with operating() as operator:
        for number, word in enumerate(("print", "print", "raise UserError")):
            await run(world, f"e{number}", f"{word} skills.counted", caller="eve")
        await operator.feature(SkillsFeature).controller.flush()
        writes = operator.writes()["skill-status"]
        await operator.feature(SkillsFeature).controller.flush()
        assert operator.writes()["skill-status"] == writes, "nothing new is no write"
    status = status_of(world, "counted-v1")
    assert (status["uses"], status["successes"]) == (3, 2)
    assert status["lastUsedAt"]


async def test_uses_are_written_when_the_operator_stops(world: World, operating: Operating) -> None:
    world.pool()
    put(world, make_skill("counted", author="bob"), approved=True)
    async with operating():
        await run(world, "one", "print skills.counted", caller="eve")
    assert status_of(world, "counted-v1")["uses"] == 1


def saving(*skills: Object, end: bool = True) -> str:
    events: list[Object] = [{"kind": "skill", "description": "d", "code": CODE, **skill} for skill in skills]
    end_event = {"kind": "end", "phase": "Succeeded", "reason": "", "error": None, "stdoutBytes": 0, "runMs": 0.5}
    return "say " + json.dumps([*events, end_event] if end else events)


async def test_code_saves_drafts_of_its_caller(world: World, operating: Operating) -> None:
    world.pool(warm={"min": 3})
    async with operating():
        code = saving({"name": "learned", "tags": ["x"]}, {"name": "Bad_"}, {"name": "x", "code": "1"})
        status, _ = await run(world, "saves", code, caller="bob", user="u1")
        assert status["skills"]["saved"] == ["learned-v1"]
        assert [text.partition(":")[0] for text in status["skills"]["refused"]] == ["Bad_", "x"]
        draft = world.collections[SKL]["learned-v1"]
        assert draft["spec"]["user"] == "u1"
        assert draft["spec"]["provenance"]["execution"] == "saves"
        assert draft["spec"]["provenance"]["executionUid"] == world.ran[-1]
        _, skills = await run(world, "uses", "print skills.learned", caller="bob", user="u1")
        assert skills is not None
        status, _ = await run(world, "claims", saving({"name": "stolen"}), caller="bob", forged=True)
        refused = "the caller of the execution is not proven, so the draft would be nobody's"
        assert status["skills"]["refused"] == [f"stolen: {refused}"]
        status, _ = await run(world, "nobody", saving({"name": "of-nobody"}), account="")
        assert status["skills"] == {"refused": [f"of-nobody: {refused}"]}
        status, _ = await run(world, "account", saving({"name": "by-account"}), account="eve@example.com")
        assert status["skills"]["saved"] == ["by-account-v1"]
        kept = world.collections[SKL]["by-account-v1"]["metadata"]
        assert kept["annotations"][ANNOTATION_CREATED_BY] == "eve@example.com"
        _, skills = await run(world, "its-own", "print skills.by_account", account="eve@example.com")
        assert skills is not None
        for number, others in enumerate(({"account": "ann@example.com"}, {"account": ""}, {"caller": "eve"})):
            _, skills = await run(world, f"others-{number}", "print skills.by_account", **others)
            assert skills is None, others
        status, _ = await run(world, "again", saving({"name": "learned"}), caller="eve")
        assert status["skills"]["saved"] == ["learned-v2"]
        status, _ = await run(world, "many", saving(*({"name": f"n{number}"} for number in range(9))), caller="eve")
        assert len(status["skills"]["saved"]) == 5
        status, _ = await run(world, "twice", saving({"name": "same"}, {"name": "same"}), caller="eve")
        assert set(status["skills"]["saved"]) <= {"same-v1", "same-v2"}


async def test_a_planted_draft_does_not_run_in_place_of_its_owners(world: World, operating: Operating) -> None:
    world.pool(warm={"min": 2})
    put(world, make_skill("report", author="ann"))
    async with operating():
        status, _ = await run(world, "hostile", saving({"name": "report", "code": f"{CODE}# planted"}), caller="ann")
        assert status["skills"]["saved"] == ["report-v2"]
        _, skills = await run(world, "next", "print skills.report", caller="ann")
        assert skills is not None
        assert list(skills["sources"]) == ["report-v1"]
        _, skills = await run(world, "named", "print skills.report_v2", caller="ann")
        assert skills is not None
        assert list(skills["sources"]) == ["report-v2"]


async def test_a_pool_that_rejects_code_rejects_it_in_skills(world: World, operating: Operating) -> None:
    world.pool(codeCheck={"mode": "Strict"})
    put(world, make_skill("risky", author="bob", code="def run(): eval('1')"), approved=True)
    async with operating():
        status, skills = await run(world, "strict", "print skills.risky", caller="bob")
    assert skills is None
    assert status["error"]["message"].startswith("skill risky-v1: spec.code: pool default rejects it")


async def test_skills_that_are_too_large_together_are_refused(world: World, operating: Operating) -> None:
    world.pool()
    for number in range(3):
        put(world, make_skill(f"large{number}", author="bob", code=f"{CODE}#" + "x" * 200_000), approved=True)
    async with operating():
        code = "print skills.large0 skills.large1 skills.large2"
        status, skills = await run(world, "large", code, caller="bob")
    assert skills is None
    assert "too many skills, or too large ones" in status["error"]["message"]


async def test_the_next_operator_creates_no_draft_again(world: World, operating: Operating) -> None:
    world.pool()
    async with operating():
        await world.warm(1)
        world.execution("saves", saving({"name": "once"}, end=False), caller="bob")
        await world.until(lambda: "once-v1" in world.collections.get(SKL, {}))
    async with operating():
        supervisor = world.supervisor_of("saves")
        supervisor.say("end", phase="Succeeded", reason="", error=None, stdoutBytes=0, runMs=0.5)
        status = await world.finished("saves")
    assert status["skills"]["saved"] == ["once-v1"]
    assert sorted(world.collections[SKL]) == ["once-v1"]
