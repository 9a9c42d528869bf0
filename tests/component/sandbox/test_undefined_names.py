"""Names that code uses and never defines: the error says where they come from."""

import json
from typing import Any

import pytest
from tests.component.sandbox.test_skills import SKILLS
from tests.component.sandbox.test_wrappers import wrappers

LIBRARIES = {"rarelib": [["data", "2.3.1"]], "seaborn": [["data", "0.13"]]}
NO_VARIABLES = "a run has no variables of earlier runs; define it in this code, or run both in one `session`"


@pytest.fixture
def filled(reused: Any) -> Any:
    """A sandbox that has wrappers."""
    reused.clean()
    assert reused.client.put("/v1/wrappers", json=wrappers()).json() == {"hash": "h1"}
    return reused


UNDEFINED = {
    "a server": ("github.create_issue(owner='o')", "github", ": write `from servers import github`"),
    "a server with a hyphen": ("file_system.read_file()", "file_system", ": write `from servers import file_system`"),
    "a tool": ("await create_issue(owner='o')", "create_issue", ": write `from servers.github import create_issue`"),
    "a tool of one word": ("await star()", "star", ": write `from servers.github import star`"),
    "a tool that is not called": (
        "x = [create_issue]",
        "create_issue",
        ": write `from servers.github import create_issue`",
    ),
    "a tool with its server": ("await github_star()", "github_star", ": write `from servers.github import star`"),
    "a tool in a function": ("def f():\n    return star()\nf()", "star", ": write `from servers.github import star`"),
    "a tool in a task": (
        "import asyncio\nasync def f():\n    await star()\nasync with asyncio.TaskGroup() as group:\n"
        "    group.create_task(f())",
        "star",
        ": write `from servers.github import star`",
    ),
    "a tool, while another error is raised": (
        "try:\n    star()\nexcept NameError as error:\n    raise ValueError('no') from error",
        "star",
        ": write `from servers.github import star`",
    ),
    "a misspelled tool": (
        "await creat_issue()",
        "creat_issue",
        ". Did you mean: create_issue? Write `from servers.github import create_issue`",
    ),
    "a tool in another spelling": (
        "await createIssue()",
        "createIssue",
        ". Did you mean: create_issue? Write `from servers.github import create_issue`",
    ),
    "a misspelled server": ("gihub.star()", "gihub", ". Did you mean: github? Write `from servers import github`"),
    "the package of servers": ("servers.github.star()", "servers", ": write `from servers import github`"),
    "a tool of a server that it may not use": ("await post(text='x')", "post", f": {NO_VARIABLES}"),
    "a server that it may not use": ("slack.post(text='x')", "slack", f": {NO_VARIABLES}"),
    "an error of tools": (
        "try:\n    1 / 0\nexcept ToolError:\n    pass",
        "ToolError",
        ": write `from client import ToolError`",
    ),
    "a skill": ("make_report([1])", "make_report", ": write `from skills.make_report import run`"),
    "a skill as a module": ("make_report.run([1])", "make_report", ": write `from skills import make_report`"),
    "a function of skills": ("run_skill('issues')", "run_skill", ": write `from skills import run_skill`"),
    "a library by its usual name": ("np.array([1])", "np", ": write `import numpy as np`"),
    "a library": ("numpy.array([1])", "numpy", ": write `import numpy`"),
    "a module of Python": ("json.dumps(1)", "json", ": write `import json`"),
    "a module of the workspace": (
        "with open('helpers.py', 'w') as file:\n    file.write('x = 1')\nhelpers.x",
        "helpers",
        ": write `import helpers`",
    ),
    "a library of another pool": (
        "rarelib.load()",
        "rarelib",
        ": `rarelib` is missing: pool `data` has rarelib 2.3.1; set poolRef.name to data",
    ),
    "a library of another pool by its usual name": (
        "sns.lineplot()",
        "sns",
        ": `seaborn` is missing: pool `data` has seaborn 0.13; set poolRef.name to data",
    ),
    "a library that no pool has": (
        "cv2.imread('a.png')",
        "cv2",
        ": `cv2` is missing: packages come with the image of the pool, and nothing can be installed in a sandbox",
    ),
    "a variable": ("df.head()", "df", f": {NO_VARIABLES}"),
    "a variable with the name of a module": ("print(len(queue))", "queue", f": {NO_VARIABLES}"),
    "a function of an earlier run": ("summarize(1)", "summarize", f": {NO_VARIABLES}"),
    "a variable that is defined too late": ("print(total)\ntotal = 1", "total", ""),
    "a variable that is deleted": ("total = 1\ndel total\ntotal", "total", ""),
    "a misspelled variable": ("totals = [1]\nprint(total)", "total", ". Did you mean: totals?"),
    "a misspelled builtin": ("prnt(1)", "prnt", ". Did you mean: print?"),
    "a name in a module of the workspace": (
        "with open('helpers.py', 'w') as file:\n    file.write('x = unknown_value')\nimport helpers",
        "unknown_value",
        "",
    ),
    "an error that the code makes itself": ("raise NameError(\"name 'star' is not defined\")", "star", ""),
}


@pytest.mark.parametrize("case", UNDEFINED)
def test_the_error_about_an_undefined_name_says_what_to_write(filled: Any, broker: Any, case: str) -> None:
    code, name, hint = UNDEFINED[case]
    tools = {**broker.job, "allow": ["github.*", "file-system.*"]}
    run = filled.run(code, tools=tools, libraries=LIBRARIES, skills=SKILLS)
    text = f"name {name!r} is not defined{hint}"
    assert run.phase == "Failed"
    assert text in run.error["traceback"]
    if run.error["type"] == "NameError":
        assert run.error["message"] == text
    if hint:
        assert f"{text}\n" in run.error["traceback"]  # no second hint follows
    assert broker.calls == []


def test_in_a_session_a_variable_may_come_from_an_earlier_run(make_sandbox: Any) -> None:
    sandbox, fields = make_sandbox(), {"owner": "a" * 32, "session": True}
    assert sandbox.run("df = 1", **fields).phase == "Succeeded"
    assert sandbox.run("rows.head()", id="uid-2", **fields).error["message"] == "name 'rows' is not defined"
    assert sandbox.run("json.dumps(df)", id="uid-3", **fields).error["message"].endswith(": write `import json`")


def test_without_tools_an_undefined_name_is_explained_alike(reused: Any) -> None:
    assert reused.run("github.star()").error["message"] == f"name 'github' is not defined: {NO_VARIABLES}"


def test_code_that_has_damaged_its_wrappers_still_fails_with_its_own_error(filled: Any, broker: Any) -> None:
    code = "import shutil, linecache\nshutil.rmtree('servers')\nlinecache.cache.clear()\nawait star()"
    run = filled.run(code, tools={**broker.job, "allow": ["github.*"]})
    assert run.error["message"] == "name 'star' is not defined"


def test_wide_code_is_explained_in_bounded_time(filled: Any, broker: Any) -> None:
    code = f"values = {json.dumps([0] * 20_000)}\nawait creat_issue()"
    run = filled.run(code, tools={**broker.job, "allow": ["github.*"]})
    assert "Did you mean: create_issue?" in run.error["message"]
