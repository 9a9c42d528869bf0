"""Sessions and skills in TypeScript: one global scope for the owner's jobs, and modules of reusable code."""

from typing import Any

import pytest
from tests.component.sandbox.conftest import ReusedSandbox
from tests.component.sandbox.test_sessions import OWNER, Session
from tests.support.broker_calls import FakeBrokerCalls


@pytest.fixture
def session(make_sandbox: Any) -> Session:
    return Session(make_sandbox(language="typescript"))


def test_what_earlier_jobs_declared_stays_and_may_be_declared_again(session: Session) -> None:
    first = (
        "import path from 'node:path';\nconst a = 1;\nlet b: number[] = [2];\nvar c = 3;\nclass D { e = 4 }\n"
        "function f() { return 5 }\nasync function later() { return 7 }"
    )
    assert session.run(first).error is None
    assert session.run("enum G { H = 6 }\nG.H").result == 6
    run = session.run("b.push(a);\n[path.sep, a, b, c, new D().e, f(), G.H, await later()]")
    assert (run.error, run.result) == (None, ["/", 1, [2, 1], 3, 4, 5, 6, 7])
    again = (
        "import { sep as path } from 'node:path';\nlet a = 10;\nconst b = 20;\nclass D { e = 40 }\n"
        "const f = () => 50;\nfunction later() { return 70 }\n[path, a, b, new D().e, f(), later()]"
    )
    assert session.run(again).result == ["/", 10, 20, 40, 50, 70]
    assert session.run("function f() { return 51 }\nconst later = 71;\n[f(), later]").result == [51, 71]
    assert session.run("a += 1;\na").result == 11


def test_results_errors_and_output_belong_to_their_job(session: Session) -> None:
    assert (
        session.run("const result = 1;\nfunction fail() {\n  throw new Error('why');\n}\nconsole.log('one')").result
        == 1
    )
    assert not session.run("const x = 2").has_result, "the result of an earlier job"
    failed = session.run("\n\nfail()")
    assert (failed.reason, failed.error["line"]) == ("UserError", 3)
    assert "fail (agent.ts:3:9)\n    at agent-3.ts:3:1" in failed.error["traceback"]
    assert session.run("process.exit(3)").end["exitCode"] == 3
    assert session.run("console.log('again');\nx").result == 2


def test_a_code_that_fails_in_the_middle_keeps_what_came_before(session: Session) -> None:
    assert session.run("const kept = [1];\nkept.push(2);\nthrow new Error('x')").reason == "UserError"
    assert session.run("kept").result == [1, 2]
    assert session.run("const kept = 5;\nkept").result == 5


def test_each_job_has_its_context(session: Session) -> None:
    assert session.run("rows.length", context={"rows": [1, 2]}).result == 2
    assert session.run("const rows = context.rows.concat(5);\nrows", context={"rows": [1]}).result == [1, 5]
    assert session.run("rows", context={"rows": [7]}).result == [7]
    assert session.run("[rows, context]").result == [[7], {}]
    assert session.run("for (var row of rows) {}\nrow").result == 7
    assert session.run("row", context={"row": 8}).result == 8


def test_a_session_survives_a_time_out_of_code_that_waits(session: Session) -> None:
    assert session.run("let kept = 5;").phase == "Succeeded"
    run = session.run("setTimeout(() => { kept = 6 }, 900);\nawait new Promise(() => {})", timeoutSeconds=0.3)
    assert run.reason == "Timeout"
    assert session.run("await new Promise((go) => setTimeout(go, 1000));\nkept").result == 5, "its timers have ended"


def test_garbage_that_is_collected_while_code_waits_for_nothing_does_no_harm(session: Session) -> None:
    churn = "setInterval(() => { globalThis.kept = new Array(100_000).fill({}) }, 1);"
    assert session.run(churn).phase == "Succeeded"
    assert session.run("await new Promise(() => {})", timeoutSeconds=1).reason == "Timeout"
    assert session.run("1 + 1").result == 2


def test_a_session_of_code_that_computes_is_lost_at_its_time_out(session: Session) -> None:
    assert session.run("const kept = 5;").phase == "Succeeded"
    assert session.run("while (true) {}", timeoutSeconds=0.3).reason == "Timeout"
    assert session.report()["alive"] is False
    assert session.post(owner=OWNER, session=True).status_code == 410


def test_what_a_job_leaves_running_stands_still_between_jobs(session: Session) -> None:
    run = session.run(
        "let ticks = 0;\nsetInterval(() => ticks++, 1);\nawait new Promise((go) => setTimeout(go, 50));\nticks"
    )
    assert run.phase == "Succeeded"
    assert session.report()["alive"]
    assert session.run("await new Promise((go) => setTimeout(go, 50));\nticks > 1").result is True


SKILLS = {
    "sources": {
        "totals-v1": {
            "code": "export function run(rows: number[]): number { return rows.reduce((a, b) => a + b, 0) }",
            "tools": [],
        },
        "totals-v2": {
            "code": "import { run as one } from 'skills/totals-v1';\n"
            "export const run = (rows: number[]) => one(rows) * 2;",
            "tools": [],
        },
        "opener-v1": {
            "code": "import { callMcpTool } from 'client';\nexport const run = (title: string) =>\n"
            "  callMcpTool('github.open', { title });",
            "tools": ["github.open"],
        },
        "broken-v1": {"code": "export function run() {\n  throw new Error('inside');\n}", "tools": []},
    },
    "modules": {
        "totals_v1": "totals-v1",
        "totals_v2": "totals-v2",
        "totals": "totals-v2",
        "opener": "opener-v1",
        "broken": "broken-v1",
    },
    "catalog": [{"name": "totals", "description": "Add up the total.", "inputSchema": {"type": "object"}}],
}


@pytest.mark.parametrize("name", ["skills/totals", "skills/totals-v2", "skills/totals_v2"])
def test_a_skill_is_a_module(typescript: ReusedSandbox, name: str) -> None:
    code = f"import {{ run }} from '{name}';\nimport {{ runSkill }} from 'skills';\n"
    code += "[run([1, 2]), await runSkill('totals', [3])]"
    assert typescript.run(code, skills=SKILLS).result == [6, 6]


def test_a_skill_calls_its_tools_if_the_execution_may(typescript: ReusedSandbox, broker: FakeBrokerCalls) -> None:
    code = "import { run } from 'skills/opener';\nawait run('t')"
    assert typescript.run(code, skills=SKILLS, tools=broker.job).result == {"title": "t"}
    refused = typescript.run(code, skills=SKILLS, tools={**broker.job, "allow": ["github.close"]})
    assert "skill opener-v1 needs the tools github.open" in refused.error["message"]


def test_an_error_of_a_skill_has_its_line(typescript: ReusedSandbox) -> None:
    run = typescript.run("import { run } from 'skills/broken';\n\nrun()", skills=SKILLS)
    assert (run.error["message"], run.error["line"]) == ("inside", 3)
    assert "run (skills/broken-v1.ts:2:9)" in run.error["traceback"]


def test_an_unknown_skill_is_named(typescript: ReusedSandbox) -> None:
    run = typescript.run("import { run } from 'skills/nothing';\nrun()", skills=SKILLS)
    assert "there is no skill nothing" in run.error["message"]


def test_skills_are_found_and_saved(typescript: ReusedSandbox) -> None:
    code = """
import { saveSkill, searchSkills } from "skills";
const words = { tools: ["a.b"], tags: ["x"] };
saveSkill("double", "export function run(value: number) { return 2 * value }", "Double  a number.", words);
saveSkill("triple", (value: number) => value * 3, "Triple a number.");
try { saveSkill("bad", "function run() {}", "No export.") } catch (error) { console.log(error.message) }
try { saveSkill("Bad Name", "export const run = 1", "x") } catch (error) { console.log(error.message) }
(await searchSkills("total")).map((skill) => [skill.name, skill.import])
"""
    run = typescript.run(code, skills=SKILLS)
    assert run.result == [["totals", 'import { run } from "skills/totals"']]
    saved = [event for event in run.events if event["type"] == "skill"]
    assert [(each["name"], each["tools"], each["tags"]) for each in saved] == [
        ("double", ["a.b"], ["x"]),
        ("triple", [], []),
    ]
    assert saved[0]["description"] == "Double a number."
    assert "exports no function `run`" in run.stdout
    assert "lower-case letters" in run.stdout
