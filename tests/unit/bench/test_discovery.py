"""How well tools are found, by queries that nothing was tuned by."""

from collections.abc import Iterator

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


def test_unseen_queries_are_many_differ_from_all_others_and_name_what_can_be_called() -> None:
    sets = discovery.query_sets()
    unseen = {query.text for name in sets if name.startswith("unseen") for query in sets[name].queries}
    others = {query.text for name in sets if not name.startswith("unseen") for query in sets[name].queries}
    assert len(unseen) >= 150
    assert not unseen & others
    for each in sets.values():
        there = {
            f"{found['server']}.{found['name']}" for found in discovery.Index(each.catalogs).search("", limit=1000)
        }
        there |= {f"{catalog.server}.{tool.name}" for catalog in each.catalogs for tool in catalog.tools}
        assert {tool for query in each.queries for tool in query.tools} <= there


def test_unseen_queries_find_their_tool_more_often_than_by_the_plain_ways() -> None:
    unseen = discovery.query_sets()["unseen"]
    ours, flat = (
        discovery.quality(unseen.queries, build(unseen.catalogs))
        for build in (discovery.build_product_search, discovery.flat_bm25)
    )
    assert (ours["hit@1"] >= 0.62, ours["hit@5"] >= 0.83) == (True, True), ours
    assert ours["MRR"] > flat["MRR"] + 0.2


@pytest.fixture
def forgets_stems() -> Iterator[None]:
    """Clear the caches of stems and synonyms after a test that changes the tables."""
    yield
    discovery.forget_synonyms()


def test_the_ablation_tells_entries_with_effect_from_those_without(
    forgets_stems: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    same = {"repo": "repository", "nothing": "nowhere"}
    monkeypatch.setattr(discovery.synonyms, "SAME", same)
    monkeypatch.setattr(discovery.search_entries, "SAME", same)
    monkeypatch.setattr(discovery, "TABLES", ("SAME",))
    rows = discovery.ablate({"held out": discovery.query_sets()["held out"]})
    effects = {row["word"]: row["better"] + row["worse"] for row in rows}
    assert effects.keys() == same.keys()
    assert effects["repo"] > 0
    assert effects["nothing"] == 0


def test_what_is_asked_for_is_among_the_first_five(held_out: list[discovery.DiscoveryQuery]) -> None:
    found = discovery.quality(held_out, discovery.build_product_search(discovery.catalogs()))
    assert found["hit@5"] >= 0.94
    assert found["hit@1"] >= 0.78
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
