"""Check of tool names."""

import pytest

from mcp_exec_client.cli.backends.checks import check_tool_name

KNOWN = {("github", "create_issue"), ("github", "list_issues"), ("my-docs", "get_page"), ("supabase", "execute_sql")}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("github.create_issue", "is a tool of github"),
        ("mcp__github__create_issue", "is a tool of github"),
        ("my-docs.get-page", "is a tool of my-docs; its Python name is get_page"),
        ("supabase.executeSql", "is a tool of supabase; its Python name is execute_sql"),
        ("github.*", "matches 2 tools"),
        ("*.*", "matches 4 tools"),
    ],
)
def test_names_and_patterns_of_tools_are_good(name: str, message: str) -> None:
    check = check_tool_name(name, KNOWN)
    assert (check.valid, check.message) == (True, message)


@pytest.mark.parametrize(
    ("name", "message", "hint"),
    [
        ("github.creat_issue", "github has no such tool among its 2", "did you mean github.create_issue?"),
        ("create_issue", "not a tool name", "did you mean github.create_issue?"),
        ("servers.github.create_issue", "there is no server servers", "did you mean github.create_issue?"),
        ("githab.create_issue", "there is no server githab", "did you mean github.create_issue"),
        ("mcp__githab__create_issue", "with tools: github, my-docs, supabase", "did you mean github.create_issue"),
        ("github:create_issue", "not a tool name", "did you mean github.create_issue"),
        ("gitlab.*", "matches 0 tools", "write SERVER.TOOL"),
        ("x", "not a tool name", "write SERVER.TOOL"),
        ("github.zzzzzzzzzzzz", "github has no such tool", "find it: GET /api/v1/mcp/tools/search"),
        ("x" * 100_000, "not a tool name", "write SERVER.TOOL"),
    ],
)
def test_other_names_get_suggestions(name: str, message: str, hint: str) -> None:
    check = check_tool_name(name, KNOWN)
    assert not check.valid
    assert message in check.message
    assert hint in check.hint


def test_without_known_tools_nothing_is_suggested() -> None:
    check = check_tool_name("github.create_issue", set())
    assert (check.valid, check.message) == (False, "there is no server github; servers with tools: none")
