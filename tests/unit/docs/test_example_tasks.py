"""The code of examples/tasks, without a cluster."""

import ast
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TASKS = sorted(
    path for path in (ROOT / "examples" / "tasks").glob("*.py") if "    run_task(task)\n" in path.read_text()
)

PROGRAMS = {"announcements": "slack"}
"""Servers that another one's program serves, with a policy of its own."""


def codes(path: Path) -> list[str]:
    """Return the code that the task sends: the long texts of the module, without its docstring."""
    _, *rest = ast.parse(path.read_text()).body
    constants = [node.value for part in rest for node in ast.walk(part) if isinstance(node, ast.Constant)]
    return [text for text in constants if isinstance(text, str) and "\n" in text]


def imported_tools(code: str) -> list[tuple[str, str]]:
    tree = compile(code, "<task>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST, dont_inherit=True)
    found = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
    return [
        (node.module.removeprefix("servers."), each.name)
        for node in found
        if node.module and node.module.startswith("servers.")
        for each in node.names
    ]


def test_there_are_the_eight_the_workflows_and_the_comparisons() -> None:
    names = {path.stem for path in TASKS}
    assert {name[:2] for name in names if name[0] == "0"} == {f"{number:02}" for number in range(1, 9)}
    assert {name for name in names if name[0] != "0"} == {
        "workflow_github_issue", "workflow_data_filtering", "workflow_plan_trip", "workflow_polling", "multi_server",
        "workflow_issue_triage", "token_efficiency", "skills_reuse", "session", "basic_supabase",
        "two_agents", "ask_approval",
    }  # fmt: skip


@pytest.mark.parametrize("path", TASKS, ids=lambda path: path.stem)
def test_a_task_calls_tools_that_exist(path: Path) -> None:
    for code in codes(path):
        for server, tool in imported_tools(code):
            catalog = json.loads((ROOT / "servers" / "catalogs" / f"{PROGRAMS.get(server, server)}.json").read_text())
            assert tool in {each["name"].replace("-", "_") for each in catalog["tools"]}, f"{server}.{tool}"


@pytest.mark.parametrize("server", ["github", "supabase"])
def test_a_stand_in_has_tools_of_the_real_server(server: str) -> None:
    tree = ast.parse((ROOT / "examples" / "tasks" / f"{server}_server.py").read_text())
    tools = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef) and node.decorator_list}
    catalog = json.loads((ROOT / "servers" / "catalogs" / f"{server}.json").read_text())
    schemas = {each["name"]: each["inputSchema"] for each in catalog["tools"]}
    assert tools.keys() <= schemas.keys()
    for name, function in tools.items():
        assert {each.arg for each in function.args.args} <= schemas[name]["properties"].keys(), name
