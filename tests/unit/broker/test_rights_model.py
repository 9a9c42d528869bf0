"""The broker's decisions against a naive model, with names that are odd, alike or spelled in other ways."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from tests.support import rights
from tests.support.fuzz import fuzz_settings

from mcp_exec_api.meta import ToolPattern
from mcp_exec_api.sandbox_pool import PoolTools
from mcp_exec_api.tool_server import Action, Policy, PolicyRule, ToolServerSpec
from mcp_exec_broker.core.access.policy import evaluate, is_callable
from mcp_exec_broker.core.errors import ErrorReason
from mcp_exec_tools.catalog import Catalog
from mcp_exec_tools.names import snake_case, split_tool
from mcp_exec_tools.patterns import ToolPatterns, matches_any
from mcp_exec_tools.search.index import Index

pytestmark = pytest.mark.fuzz

actions = st.sampled_from([action.value for action in Action])
hints = st.dictionaries(
    st.sampled_from(["destructiveHint", "readOnlyHint"]), st.sampled_from([True, False, None, 1, "true"])
)
rules = st.lists(st.tuples(st.lists(rights.tool_parts, min_size=1, max_size=3), actions), max_size=3)
lists = st.lists(rights.tool_parts, max_size=3)
situations = st.fixed_dictionaries(
    {
        "server": rights.servers,
        "tool": rights.tools,
        "hints": hints,
        "execution": rights.tool_pattern_lists,
        "pool_allow": rights.tool_pattern_lists | st.just(["*.*"]),
        "pool_deny": rights.tool_pattern_lists | st.just([]),
        "server_allow": lists | st.just(["*"]),
        "server_deny": lists | st.just([]),
        "rules": rules,
        "destructive": actions,
        "default": actions,
    }
)


def build_spec(situation: dict[str, Any]) -> ToolServerSpec:
    return ToolServerSpec(
        url="http://mcp.test/mcp",
        allow=situation["server_allow"],
        deny=situation["server_deny"],
        policy=Policy(
            rules=[PolicyRule(tools=names, action=Action(action)) for names, action in situation["rules"]],
            destructive=Action(situation["destructive"]),
            default=Action(situation["default"]),
        ),
    )


def decide(situation: dict[str, Any], tool: str) -> str:
    decision = evaluate(
        server=situation["server"],
        tool=tool,
        annotations=situation["hints"],
        spec=build_spec(situation),
        allowed=situation["execution"],
        pool=PoolTools(allow=situation["pool_allow"], deny=situation["pool_deny"]),
    )
    return "NotAllowed" if decision.reason is ErrorReason.NOT_ALLOWED else decision.action.value


@fuzz_settings(400)
@given(situation=situations)
def test_a_call_is_decided_as_the_documentation_says(situation: dict[str, Any]) -> None:
    assert decide(situation, situation["tool"]) == rights.decide(**situation)


@fuzz_settings(150)
@given(situation=situations)
def test_a_server_is_reachable_if_any_of_its_tools_may_be_and_shows_no_tool_that_is_always_refused(
    situation: dict[str, Any],
) -> None:
    outcome = rights.decide(**situation)
    if outcome != "NotAllowed":
        assert ToolPatterns(situation["execution"]).match_server(situation["server"])
    shown = is_callable(build_spec(situation), situation["tool"], situation["hints"])
    everything = situation | {"execution": ["*.*"], "pool_allow": ["*.*"], "pool_deny": []}
    assert shown == (rights.decide(**everything) in ("Allow", "Approve"))
    assert shown or outcome in ("NotAllowed", "Deny")


catalogs = st.lists(rights.tools.filter(bool), min_size=1, max_size=8, unique=True)


@fuzz_settings(150)
@given(names=catalogs, requested=rights.tools, situation=situations)
def test_another_spelling_gives_no_other_rights_than_the_tools_own_name(
    names: list[str], requested: str, situation: dict[str, Any]
) -> None:
    catalog = Catalog.from_tools(situation["server"], [{"name": name} for name in names])
    for name in names:
        assert catalog.spellings[name].name == name, "a real name always means its tool"
    found = catalog.spellings.get(requested) or catalog.spellings.get(snake_case(requested))
    if found is not None:
        assert found.name in names
        assert decide(situation, found.name) == rights.decide(**{**situation, "tool": found.name})


@fuzz_settings(150)
@given(names=catalogs, server=rights.servers, allow=rights.tool_pattern_lists)
def test_search_shows_exactly_the_tools_that_the_patterns_name(names: list[str], server: str, allow: list[str]) -> None:
    catalog = Catalog.from_tools(server, [{"name": name} for name in names])
    found = Index([catalog]).search("", detail_level="name_only", limit=100, allow=allow)
    shown = {tool["name"] for tool in found}
    expected = {
        tool.function
        for tool in catalog.tools
        if any(rights.pattern_matches(each, server, tool.name) for each in allow)
    }
    assert shown == expected


@fuzz_settings(300)
@given(
    pattern=rights.tool_patterns | st.text(alphabet="ab.*-_/\n é", max_size=8), server=rights.servers, tool=rights.tools
)
def test_only_well_formed_patterns_are_accepted_and_a_star_counts_at_the_end_alone(
    pattern: str, server: str, tool: str
) -> None:
    try:
        TypeAdapter(ToolPattern).validate_python(pattern)
    except ValidationError:
        return
    server_part, dot, tool_part = pattern.partition(".")
    assert dot
    for part in (server_part, tool_part):
        assert part
        assert "*" not in part[:-1]
        assert part.isascii()
        assert part.isprintable()
    expected = rights.pattern_matches(pattern, server, tool)
    assert matches_any([pattern], server=server, tool=tool) == expected
    assert ToolPatterns([pattern]).match(server, tool) == expected


@fuzz_settings(150)
@given(name=st.text(alphabet="ab._*é ", max_size=12) | st.builds("mcp__{}__{}".format, rights.servers, rights.tools))
def test_a_name_is_split_at_the_first_separator_and_never_loses_a_character(name: str) -> None:
    try:
        server, tool = split_tool(name)
    except ValueError:
        return
    assert server
    assert tool
    if name.startswith("mcp__"):
        assert name == f"mcp__{server}__{tool}"
        assert "__" not in server
    else:
        assert name == f"{server}.{tool}"
        assert "." not in server
