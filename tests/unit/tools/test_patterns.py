"""Compiled patterns: the same answers as one by one, at a cost that does not grow with the number of patterns."""

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import rights
from tests.support.fuzz import fuzz_settings
from tests.support.steps import count_steps

from mcp_exec_tools.catalog import Catalog
from mcp_exec_tools.patterns import NamePatterns, ToolPatterns, TooManyPatterns, intersect, matches_any
from mcp_exec_tools.search.index import Index

KINDS: Final = {
    "endings": [f"*.x{number}*" for number in range(256)],
    "names": [f"server-{number}.tool" for number in range(256)],
    "one server": [f"box.x{number}*" for number in range(256)],
    "nested servers": [f"{'b' * number}*.x*" for number in range(256)],
    "nested tools": [f"*.{'x' * number}*" for number in range(1, 257)],
    "nested both": [f"{'b' * (number % 16)}*.{'x' * (number // 16 + 1)}*" for number in range(256)],
}
"""256 patterns each, which match no tool of the catalog below."""


@fuzz_settings(400)
@given(patterns=rights.tool_pattern_lists, names=st.lists(st.tuples(rights.servers, rights.tools), max_size=5))
def test_compiled_patterns_match_what_one_of_them_matches(patterns: list[str], names: list[tuple[str, str]]) -> None:
    compiled = ToolPatterns(patterns)
    for server, tool in names:
        assert compiled.match(server, tool) == matches_any(patterns, server=server, tool=tool)
        servers = [pattern.partition(".")[0] + ".*" for pattern in patterns]
        assert compiled.match_server(server) == matches_any(servers, server=server, tool="any")


@pytest.mark.parametrize("name", ["delete*", "*", "", "**"])
def test_a_star_in_a_name_is_no_pattern(name: str) -> None:
    assert not ToolPatterns(["box.delete"]).match("box", name)
    assert ToolPatterns(["box.delete*"]).match("box", name) == (name == "delete*")
    assert NamePatterns(["delete*", "*"]).find("delete") == ["delete*", "*"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_search_with_256_patterns_takes_about_as_many_steps_as_with_one(kind: str) -> None:
    tools = [{"name": f"tool_{number}", "inputSchema": {"type": "object"}} for number in range(400)]
    index = Index([Catalog.from_tools(f"bbbb-{number}", tools[:100]) for number in range(4)])
    one = count_steps(lambda: index.search("", allow=["*.y*"]))
    many = count_steps(lambda: index.search("", allow=KINDS[kind]))
    assert index.search("", allow=KINDS[kind]) == []
    # at most one step more for each character of a name, and some for each pattern, once
    assert many < one + 256 * 20 + 400 * 60


def test_the_tools_of_a_key_and_those_of_a_url_do_not_multiply() -> None:
    bounds = ToolPatterns(f"{'b' * number}*.*" for number in range(1, 21))
    chosen = [f"*.{'x' * number}*" for number in range(1, 257)]

    def exceed() -> None:
        with pytest.raises(TooManyPatterns, match="more than 256 patterns"):
            intersect(chosen, bounds, limit=256)

    assert len(intersect(chosen[:8], bounds, limit=256)) == 160
    assert count_steps(exceed) < 2 * count_steps(lambda: intersect(chosen[:12], bounds, limit=256))
