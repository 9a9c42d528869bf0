"""What is said of a tool's name."""

import pytest

from mcp_exec_client.tool_names import judge

KNOWN = {("github", "create_issue"), ("github", "list_issues"), ("my-docs", "get_page"), ("supabase", "execute_sql")}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("github.create_issue", "is a tool of github"),
        ("mcp__github__create_issue", "is a tool of github"),
        ("my-docs.get-page", "is a tool of my-docs; in Python it is called get_page"),
        ("supabase.executeSql", "is a tool of supabase; in Python it is called execute_sql"),
        ("github.*", "speaks of 2 tools"),
        ("*.*", "speaks of 4 tools"),
    ],
)
def test_names_and_patterns_of_tools_are_good(name: str, said: str) -> None:
    judgement = judge(name, KNOWN)
    assert (judgement.good, judgement.said) == (True, said)


@pytest.mark.parametrize(
    ("name", "said", "hint"),
    [
        ("github.creat_issue", "github has no such tool among its 2", "did you mean github.create_issue?"),
        ("create_issue", "this is no name of a tool", "did you mean github.create_issue?"),
        ("servers.github.create_issue", "no server servers has tools", "did you mean github.create_issue?"),
        ("githab.create_issue", "no server githab has tools", "did you mean github.create_issue"),
        ("mcp__githab__create_issue", "those that have: github, my-docs, supabase", "did you mean github.create_issue"),
        ("github:create_issue", "this is no name of a tool", "did you mean github.create_issue"),
        ("gitlab.*", "speaks of 0 tools", "write SERVER.TOOL"),
        ("x", "this is no name of a tool", "write SERVER.TOOL"),
        ("github.zzzzzzzzzzzz", "github has no such tool", "find it: GET /api/v1/mcp/tools/search"),
        ("x" * 100_000, "this is no name of a tool", "write SERVER.TOOL"),
    ],
)
def test_of_other_names_is_said_what_was_probably_meant(name: str, said: str, hint: str) -> None:
    judgement = judge(name, KNOWN)
    assert not judgement.good
    assert said in judgement.said
    assert hint in judgement.hint


def test_where_no_tools_are_known_nothing_is_guessed() -> None:
    judgement = judge("github.create_issue", set())
    assert (judgement.good, judgement.said) == (False, "no server github has tools; those that have: -")
