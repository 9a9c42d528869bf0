"""Patterns of an execution that match no tool are named, with the names that may be meant."""

import pytest
from tests.support.steps import count_steps

from mcp_exec_api.code_findings import MAX_NOTE_CHARACTERS
from mcp_exec_api.sandbox_pool import PoolTools
from mcp_exec_operator.features.tools.unmatched import ToolNames, describe_unmatched

NAMES = ToolNames({"github": ("create_issue", "create_pull_request", "list_issues"), "slack": ("post",), "down": None})
EVERYTHING = PoolTools()


def describe(*patterns: str, names: ToolNames = NAMES, pool: PoolTools = EVERYTHING, names_all: bool = True) -> str:
    return describe_unmatched(patterns, names=names, pool=pool, may_name_all=names_all)


@pytest.mark.parametrize(
    "patterns",
    [
        [],
        ["github.*"],
        ["github.create_issue", "slack.post"],
        ["github.create*"],
        ["git*.list_issues"],
        ["*.*"],
        ["*.nothing"],  # asks for whatever there is
        ["down.anything"],  # its tools are not known
        ["jira.*", "github.*"],  # others do match, and no name is near
        ["githab.*", "github.*"],  # the near name is in use
    ],
)
def test_nothing_is_said_of_patterns_that_may_be_right(patterns: list[str]) -> None:
    assert describe(*patterns) == ""


@pytest.mark.parametrize(
    ("patterns", "said"),
    [
        (["nope.*"], "no tool matches nope.* of spec.tools; the servers here are down, github and slack"),
        (["gihtub.*"], "no tool matches gihtub.* of spec.tools; did you mean github?"),
        (["GitHub.create_issue"], "no tool matches GitHub.create_issue of spec.tools; did you mean github?"),
        (["gihtub.*", "slack.post"], "no tool matches gihtub.* of spec.tools; did you mean github?"),
        (
            ["github.create_isue"],
            "no tool matches github.create_isue of spec.tools; did you mean github.create_issue?",
        ),
        (
            ["gihtub.*", "slakc.post"],
            "no tool matches gihtub.* and slakc.post of spec.tools; did you mean github or slack?",
        ),
        (["gith*.nope"], "no tool matches gith*.nope of spec.tools"),
        (
            ["a.*", "b.*", "c.*", "d.*", "e.*"],
            "no tool matches a.*, b.*, c.* and 2 more of spec.tools; the servers here are down, github and slack",
        ),
    ],
)
def test_patterns_without_a_tool_are_named_with_what_may_be_meant(patterns: list[str], said: str) -> None:
    assert describe(*patterns) == said


def test_a_namespace_without_servers_says_so() -> None:
    assert describe("github.*", names=ToolNames({})) == (
        "no tool matches github.* of spec.tools; this namespace has no ToolServer"
    )


@pytest.mark.parametrize(
    "pool", [PoolTools(allow=["slack.*"]), PoolTools(deny=["github.*"]), PoolTools(allow=["slack.*"], deny=["down.*"])]
)
def test_servers_that_the_pool_excludes_are_not_named(pool: PoolTools) -> None:
    assert "github" not in describe("gihtub.*", "github.create_isue", pool=pool).replace("github.create_isue", "")


def test_no_server_is_named_to_callers_who_may_not_use_all() -> None:
    said = "no tool matches gihtub.* of spec.tools"
    assert describe("gihtub.*", names_all=False) == said
    assert describe("gihtub.*", names=ToolNames({}), names_all=False) == said
    assert describe("gihtub.*", "slack.post", names_all=False) == ""


def test_however_long_the_names_are_the_text_fits_into_a_note() -> None:
    names = ToolNames({"s" * 63: ("t" * 128,), "s" * 62: ("u" * 128,)})
    said = describe(*(f"{'s' * 64}.{letter * 100}" for letter in "abc"), names=names)
    assert len(said) <= MAX_NOTE_CHARACTERS
    assert said.startswith("no tool matches sss")


def test_many_patterns_and_tools_take_bounded_steps() -> None:
    patterns = [f"github.a{number}*" for number in range(256)]

    def names(tools: int) -> ToolNames:
        return ToolNames({"github": tuple(f"b{number}" for number in range(tools))})

    few, many = names(500), names(50_000)
    assert count_steps(lambda: describe(*patterns, names=many)) < 2 * count_steps(
        lambda: describe(*patterns, names=few)
    )
