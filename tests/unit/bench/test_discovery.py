"""How well tools are found, by queries that nothing was tuned by."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import ablation
import discovery
import embedding_search
import pytest
import queries

from mcp_exec_tools.catalog import Catalog

Build = Callable[[Sequence[Catalog]], discovery.Search]


Sets = dict[str, queries.QuerySet]


@pytest.fixture(scope="module")
def sets() -> Sets:
    return queries.query_sets()


def count(sets: Sets, prefix: str = "", *, are_held_out: bool | None = None) -> int:
    """Count the different queries of some sets. A failing test must not print those that nobody looks at."""
    texts = {query.text for name, each in sets.items() if name.startswith(prefix) for query in each.queries}
    return sum(are_held_out in (None, queries.is_held_out(text)) for text in texts)


def count_unknown_tools(asked: queries.QuerySet) -> int:
    """Count the tools of queries that cannot be found."""
    there = {f"{found['server']}.{found['name']}" for found in discovery.Index(asked.catalogs).search("", limit=1000)}
    there |= {f"{catalog.server}.{tool.name}" for catalog in asked.catalogs for tool in catalog.tools}
    return len({tool for query in asked.queries for tool in query.tools} - there)


def measure(asked: queries.QuerySet, build: Build) -> dict[str, Any]:
    return discovery.quality(discovery.list_ranks(asked, build))


def test_queries_are_many_differ_and_name_what_can_be_called(sets: Sets) -> None:
    # Each GitHub server, and the demo servers, have three queries that other sets have too.
    kinds = {"tune": 739, "held out": 91, "unseen": 189, "requests looked at": 90, "requests counted": 100}
    assert {kind: count(sets, kind) for kind in kinds} == kinds
    assert count(sets) == sum(kinds.values())
    assert {name: count_unknown_tools(each) for name, each in sets.items()} == dict.fromkeys(sets, 0)


def test_nothing_is_tuned_by_queries_that_are_only_counted(sets: Sets) -> None:
    for_tuning = {name for name, each in sets.items() if each.is_for_tuning}
    assert not any(name.startswith(("held out", "unseen", "requests counted")) for name in for_tuning)
    assert count(sets, "requests looked at", are_held_out=True) == 0
    assert count(sets, "requests counted", are_held_out=False) == count(sets, "held out", are_held_out=False) == 0


def test_made_tools_are_distinct_and_answer_no_query(sets: Sets) -> None:
    larger = sets["unseen"].extend(1250)
    tools = [(catalog.server, tool.name, tool.description) for catalog in larger.catalogs for tool in catalog.tools]
    assert len(set(tools)) == larger.size == 1250
    made = {server for server, _, _ in tools} - {each.server for each in sets["unseen"].catalogs}
    assert len(made) > 40
    assert sets["unseen"].extend(10).size == sets["unseen"].size
    with pytest.raises(ValueError, match="can be made"):
        sets["unseen"].extend(5000)


def test_unseen_queries_find_their_tool_more_often_than_by_the_plain_ways(sets: Sets) -> None:
    ours, flat = (measure(sets["unseen"], build) for build in (discovery.build_product_search, discovery.flat_bm25))
    assert (ours["hit@1"] >= 0.72, ours["hit@5"] >= 0.9) == (True, True), ours
    assert ours["MRR"] > flat["MRR"] + 0.2


def test_counted_requests_find_their_tool_also_among_many_others(sets: Sets) -> None:
    few, many, most = discovery.compare_sizes(sets, {"ours": discovery.build_product_search}).values()
    assert (few["hit@1"] >= 0.52, few["hit@5"] >= 0.82) == (True, True), few
    assert few["hit@5"] >= many["hit@5"] - 0.02 >= 0.72
    assert few["hit@5"] >= most["hit@5"] >= 0.72


@pytest.fixture
def forgets_stems() -> Iterator[None]:
    """Clear the caches of stems and synonyms after a test that changes the tables."""
    yield
    ablation.forget_synonyms()


def test_the_ablation_tells_entries_with_effect_from_those_without(
    forgets_stems: None, monkeypatch: pytest.MonkeyPatch, sets: Sets
) -> None:
    same = {"repository": "repo", "nowhere": "nothing"}
    monkeypatch.setattr(ablation.entries, "SAME", same)
    monkeypatch.setattr(ablation, "TABLES", {"SAME": same})
    rows = ablation.ablate_words({"held out": sets["held out"]})
    effects = {row["entry"]: row["better"] + row["worse"] for row in rows}
    assert effects.keys() == same.keys()
    assert effects["repository"] > 0
    assert effects["nowhere"] == 0


def test_the_ablation_leaves_out_each_part_alone(forgets_stems: None, sets: Sets) -> None:
    asked = {"tune, demo servers": sets["tune, demo servers"]}
    rows = ablation.ablate_parts(asked)
    assert rows["without MEANINGS"]["MRR"] < rows["whole"]["MRR"] - 0.05
    assert rows["without values of parameters"] != rows["without MEANINGS"]
    assert discovery.quality(ablation.list_all_ranks(asked)) == rows["whole"]


def test_what_is_asked_for_is_among_the_first_five(sets: Sets) -> None:
    found = measure(sets["held out"], discovery.build_product_search)
    assert found["hit@5"] >= 0.94
    assert found["hit@1"] >= 0.78
    assert found["none"] == 0


def test_the_plain_ways_are_measured_and_are_worse(sets: Sets) -> None:
    rows = discovery.compare({"held out": sets["held out"]}, discovery.WAYS)
    ours, plain, flat = (row["MRR"] for row in rows.values())
    assert ours > flat > plain
    catalogs = sets["held out"].catalogs
    assert discovery.substring(catalogs)("git_log") == ["git.git_log"]
    assert discovery.flat_bm25(catalogs)("convertTime")[0] == "time.convert_time"


def test_queries_are_asked_of_as_many_tools_as_are_named(sets: Sets) -> None:
    rows = discovery.compare_sizes(sets, {"flat BM25": discovery.flat_bm25})
    assert list(rows) == [f"{size} tools, flat BM25" for size in ("145 and 159", "500", "1250")]
    assert {row["queries"] for row in rows.values()} == {74}


def test_joined_searches_rank_first_what_both_have_near_the_top() -> None:
    joined = embedding_search.fuse(lambda query: ["a", "b", "c"], lambda query: ["b", "d", query])
    assert joined("e") == ["b", "a", "d", "c", "e"]
