"""Skills in a sandbox: import, search, call by name, save, and what is refused."""

from typing import Any

import pytest
from tests.component.sandbox.conftest import SandboxProcess
from tests.support.broker_calls import FakeBrokerCalls

from mcp_exec_sandbox.supervisor.execution.job_request import RequestedSkills
from mcp_exec_sandbox.supervisor.json_object import InvalidRequest

REPORT = '''"""Reports."""
import asyncio

async def run(rows, title="Report"):
    """Make a report."""
    await asyncio.sleep(0)
    return f"{title}: {len(rows)}"

def fail():
    raise LookupError("no row")
'''
SKILLS: dict[str, Any] = {
    "sources": {
        "make-report-v2": {"code": REPORT, "tools": []},
        "issues-v1": {"code": "def run(): return 1", "tools": ["github.list_issues"]},
        "nested-v1": {"code": "from skills.make_report import run as make\nasync def run(): return await make([1])"}
        | {"tools": []},
    },
    "modules": {
        "make_report": "make-report-v2",
        "make_report_v2": "make-report-v2",
        "issues": "issues-v1",
        "nested": "nested-v1",
    },
    "catalog": [
        {"name": "make_report", "description": "Make a report from rows.", "inputSchema": {"type": "object"}},
        {"name": "issues", "description": "List issues of a repository.", "inputSchema": {"type": "object"}},
    ],
}


def test_skills_are_imported_called_searched_and_explained(sandbox: SandboxProcess) -> None:
    code = """
import os, inspect, traceback, sys
from skills.make_report import run
from skills.make_report_v2 import run as second, fail
from skills import nested, run_skill, search_skills
os.mkdir("skills")
with open("skills/own.py", "w") as file:
    file.write("value = 7")
from skills import own
answers = {
    "run": await run([1, 2]),
    "second": await second([], title="T"),
    "nested": await nested.run(),
    "named": await run_skill("make-report", rows=[1]),
    "own": own.value,
    "source": inspect.getsource(run).splitlines()[0],
    "found": [(each["name"], each["kind"], each["import"]) for each in search_skills("report")],
    "tool_search": [each["name"] for each in search_tools("make a report", "with_description") if "kind" in each],
    "found_full": search_skills("report", "full")[0]["signature"],
}
for number, line in enumerate(["import skills.make_reprot", "from skills import issuess", "import skills.issues"]):
    try:
        exec(line)
    except ImportError as error:
        answers[f"error{number}"] = str(error)
try:
    fail()
except LookupError:
    answers["traceback"] = traceback.format_exc()
answers
"""
    run = sandbox.run(code, skills=SKILLS)
    assert run.phase == "Succeeded", run.error
    answers = run.result
    assert [answers[name] for name in ("run", "second")] == ["Report: 2", "T: 0"]
    assert [answers[name] for name in ("nested", "named", "own")] == ["Report: 1", "Report: 1", 7]
    assert answers["source"] == 'async def run(rows, title="Report"):'
    assert answers["found"] == [["make_report", "skill", "from skills.make_report import run"]]
    assert answers["tool_search"] == ["make_report"]
    assert answers["found_full"] == "run()"
    assert "Did you mean: make_report" in answers["error0"]
    assert "Did you mean: issues" in answers["error1"]
    assert "needs the tools github.list_issues, which this execution may not call" in answers["error2"]
    assert 'raise LookupError("no row")' in answers["traceback"]


def test_a_skill_runs_if_the_execution_may_call_its_tools(sandbox: SandboxProcess, broker: FakeBrokerCalls) -> None:
    tools = {**broker.job, "allow": ["github.*"]}
    assert sandbox.run("from skills.issues import run\nrun()", skills=SKILLS, tools=tools).result == 1


def test_saved_skills_are_events_and_bad_ones_are_refused(sandbox: SandboxProcess) -> None:
    code = """
from skills import save_skill
def run(a):
    return a
save_skill("my-skill", "def run(): ...", "Does\\n  a thing.", tools=["a.b"], tags=["x"])
save_skill("other", run, "Does another thing.")
problems = []
for arguments in [("Bad_Name", "def run(): ...", "d"), ("a", "x = 1", "d"), ("a", "def run(): ...", "")]:
    try:
        save_skill(*arguments)
    except ValueError as error:
        problems.append(str(error).partition(":")[0])
try:
    save_skill("a", "def run(): ...\\n#" + "x" * 70_000, "d")
except ValueError as error:
    problems.append(str(error).partition(";")[0])
for number in range(4):
    try:
        save_skill(f"s{number}", "def run(): ...", "d")
    except ValueError as error:
        problems.append(str(error))
problems
"""
    run = sandbox.run(code)
    events = [event for event in run.events if event["type"] == "skill"]
    assert [event["name"] for event in events] == ["my-skill", "other", "s0", "s1", "s2"]
    first = {key: events[0][key] for key in ("code", "description", "tools", "tags")}
    assert first == {"code": "def run(): ...", "description": "Does a thing.", "tools": ["a.b"], "tags": ["x"]}
    assert events[1]["code"] == "def run(a):\n    return a\n"
    assert run.result == ["name", "code", "description", "code: it has 70016 bytes", "one execution can save 5 skills"]


def test_forged_messages_of_saved_skills_are_checked_and_bounded(sandbox: SandboxProcess) -> None:
    code = """
import json, os
def send(**fields):
    message = {"type": "skill", "name": "a", "code": "c", "description": "d", "tools": [], "tags": [], **fields}
    os.write(3, b"\\n" + json.dumps(message).encode() + b"\\n")
for bad in [{"name": 1}, {"code": None}, {"description": []}, {"tools": "x"}, {"tools": [1]}, {"tags": ["x" * 300]},
            {"tools": ["x"] * 65}, {"code": "x" * 66_000}]:
    send(**bad)
for number in range(20):
    send(name="n" * 100, description="d" * 2000)
"""
    events = [event for event in sandbox.run(code).events if event["type"] == "skill"]
    assert [(len(event["name"]), len(event["description"])) for event in events] == [(64, 1024)] * 5


@pytest.mark.parametrize(
    "skills",
    [
        [],
        {"other": 1},
        {"sources": []},
        {"sources": {"A": {"code": "", "tools": []}}},
        {"sources": {"a": {"code": 1, "tools": []}}},
        {"sources": {"a": {"code": ""}}},
        {"sources": {"a": {"code": "", "tools": [1]}}},
        {"sources": {f"a{number}": {"code": "", "tools": []} for number in range(65)}},
        {"sources": {"a": {"code": "x" * 1_048_577, "tools": []}}},
        {"modules": {"a": "missing"}},
        {"modules": {"a.b": "a"}},
        {"modules": {"a": ["x"]}},
        {"catalog": [1]},
        {"catalog": [{"name": 1}]},
    ],
)
def test_malformed_skills_of_a_job_are_refused(skills: Any) -> None:
    with pytest.raises(InvalidRequest, match="skills"):
        RequestedSkills.from_field(skills)


def test_a_job_with_malformed_skills_is_refused_and_the_sandbox_stays_idle(sandbox: SandboxProcess) -> None:
    response = sandbox.start("1", skills={"other": 1})
    assert (response.status_code, response.read()) == (400, b'{"error": "skills.other: unknown field"}')
    assert sandbox.client.get("/v1/execution").json()["state"] == "idle"
