"""How well tools are found, by queries that nothing was tuned by."""

import discovery
import pytest


@pytest.fixture(scope="module")
def held_out() -> list[discovery.DiscoveryQuery]:
    return [query for query in discovery.queries() if query.held_out]


def test_queries_are_many_and_each_names_tools_that_there_are(held_out: list[discovery.DiscoveryQuery]) -> None:
    asked = discovery.queries()
    assert len(asked) >= 120
    assert len(held_out) == 91
    assert len({query.text for query in asked}) == len(asked)
    there = {f"{each.server}.{tool.name}" for each in discovery.catalogs() for tool in each.tools}
    assert {tool for query in asked for tool in query.tools} <= there


def test_what_is_asked_for_is_among_the_first_five(held_out: list[discovery.DiscoveryQuery]) -> None:
    found = discovery.quality(held_out, discovery.build_product_search(discovery.catalogs()))
    assert found["hit@5"] >= 0.95
    assert found["hit@1"] >= 0.75
    assert found["none"] == 0


def test_the_plain_ways_are_measured_and_are_worse(held_out: list[discovery.DiscoveryQuery]) -> None:
    catalogs = discovery.catalogs()
    ours, flat, plain = (
        discovery.quality(held_out, search(catalogs))["MRR"]
        for search in (discovery.build_product_search, discovery.flat_bm25, discovery.substring)
    )
    assert ours > flat > plain
    assert discovery.substring(catalogs)("git_log") == ["git.git_log"]
    assert discovery.flat_bm25(catalogs)("convertTime")[0] == "time.convert_time"
