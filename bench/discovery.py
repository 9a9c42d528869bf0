"""Quality of the tool search, compared with plain substrings and flat BM25, over real servers' catalogs.

Queries are in bench/data, each with the tools that answer it. One of queries.json is held out if its SHA-256, as a
number, is odd; the rule is older than the search. Nothing is tuned with held-out queries, nor with those of
unseen.json, which were written in the words of users before the ranking was changed for such queries.
hit@N: one of the query's tools is among the first N. MRR: the mean of 1/rank of the first of them, 0 if none is found.

    python bench/discovery.py --json discovery.json --misses
    python bench/discovery.py --ablation    # which entries of the table of synonyms change no query's rank
"""

import argparse
import hashlib
import json
import math
import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import percentile, table, write_json

from mcp_exec_tools.catalog import Catalog
from mcp_exec_tools.search import entries as search_entries
from mcp_exec_tools.search import index as search_query
from mcp_exec_tools.search import synonyms
from mcp_exec_tools.search.index import Index

ROOT = Path(__file__).parents[1]
QUERIES = ROOT / "bench" / "data" / "queries.json"
UNSEEN = ROOT / "bench" / "data" / "unseen.json"
CATALOGS = (ROOT / "servers" / "catalogs", ROOT / "tests" / "data" / "catalogs")
"""Catalogs of the servers whose wrappers ship, and of two more."""
SERVERS = frozenset(
    {"context7", "everything", "fetch", "filesystem", "git", "github", "memory", "sequential-thinking", "slack-npm"}
    | {"supabase", "time"}
)
DEMO = frozenset({"calculator", "database", "expenses", "sheets", "trips", "weather"})
ARCHIVED, OFFICIAL = "github", "github-official"
TABLES = ("ACTIONS", "MEANINGS", "PHRASES", "SAME", "SAME_PHRASES", "SERVERS")
"""Tables of synonyms."""
DEPTH = 100
Search = Callable[[str], Sequence[str]]
"""Search function: from a query to tools as SERVER.TOOL, best first."""


@dataclass(frozen=True, kw_only=True)
class DiscoveryQuery:
    """A query and the tools that answer it."""

    text: str
    tools: frozenset[str]
    held_out: bool
    """Whether the query is not used for tuning."""


def is_held_out(text: str) -> bool:
    """Return whether a query is held out."""
    return int(hashlib.sha256(text.encode()).hexdigest(), 16) % 2 == 1


def queries() -> list[DiscoveryQuery]:
    """Read all queries."""
    found = json.loads(QUERIES.read_text())
    return [
        DiscoveryQuery(
            text=each["query"],
            tools=frozenset(each["tools"]),
            held_out=part == "queries" and is_held_out(each["query"]),
        )
        for part in ("queries", "more to tune by")
        for each in found[part]
    ]


def catalogs(servers: frozenset[str] = SERVERS) -> list[Catalog]:
    """Read the catalogs of servers."""
    found = [json.loads(path.read_text()) for folder in CATALOGS for path in sorted(folder.glob("*.json"))]
    return [Catalog.from_tools(each["server"], each["tools"]) for each in found if each["server"] in servers]


@dataclass(frozen=True, kw_only=True)
class QuerySet:
    """Queries, and the catalogs that they are asked of."""

    queries: Sequence[DiscoveryQuery]
    catalogs: Sequence[Catalog]


def query_sets() -> dict[str, QuerySet]:
    """Return all queries. Of GitHub's two servers an execution has one, so each has queries of its own."""
    asked, demo = queries(), json.loads(QUERIES.read_text())["to tune by, with the demo servers"]
    unseen = json.loads(UNSEEN.read_text())
    with_demo, with_official = catalogs(SERVERS | DEMO), catalogs((SERVERS | DEMO | {OFFICIAL}) - {ARCHIVED})
    return {
        "tune": QuerySet(queries=[query for query in asked if not query.held_out], catalogs=catalogs()),
        "tune, demo servers": QuerySet(queries=_parse(demo), catalogs=with_demo),
        "held out": QuerySet(queries=[query for query in asked if query.held_out], catalogs=catalogs()),
        "unseen": QuerySet(queries=_parse(unseen["queries"]), catalogs=with_demo),
        "unseen, GitHub's current server": QuerySet(queries=_parse(unseen["official"]), catalogs=with_official),
    }


def _parse(found: Sequence[dict[str, Any]]) -> list[DiscoveryQuery]:
    return [DiscoveryQuery(text=each["query"], tools=frozenset(each["tools"]), held_out=True) for each in found]


def build_product_search(found: Sequence[Catalog]) -> Search:
    """Build the product's search."""
    built = Index(found)
    names = {(each.server, tool.function): f"{each.server}.{tool.name}" for each in found for tool in each.tools}

    def search(query: str) -> Sequence[str]:
        hits = [(hit["server"], hit["name"]) for hit in built.search(query, limit=DEPTH)]
        # A function that an overlay adds is no tool of the catalog, and uses a place.
        return [names.get(hit, ".".join(hit)) for hit in hits]

    return search


def _texts(found: Sequence[Catalog]) -> dict[str, str]:
    """Return all searchable text of each tool in one piece."""
    return {
        f"{each.server}.{tool.name}": " ".join(
            [each.server, tool.name, tool.description, *tool.input_schema.get("properties", {})]
        ).lower()
        for each in found
        for tool in each.tools
    }


def substring(found: Sequence[Catalog]) -> Search:
    """Build a search for tools whose text contains every word of the query, in order of names."""
    texts = sorted(_texts(found).items())
    return lambda query: [name for name, text in texts if all(word in text for word in query.lower().split())][:DEPTH]


def flat_bm25(found: Sequence[Catalog]) -> Search:
    """Build a BM25 search over one field of all text, with words split at camelCase and underscores only."""
    counts = {name: Counter(re.findall(r"[a-z0-9]+", text)) for name, text in sorted(_texts(found).items())}
    average = sum(map(Counter.total, counts.values())) / len(counts)
    among = Counter(word for each in counts.values() for word in each)

    def score(each: Counter[str], wanted: Sequence[str]) -> float:
        norm = 1.2 * (0.25 + 0.75 * each.total() / average)
        return sum(
            math.log(1 + (len(counts) - among[word] + 0.5) / (among[word] + 0.5))
            * each[word]
            * 2.2
            / (each[word] + norm)
            for word in wanted
            if word in each
        )

    def search(query: str) -> Sequence[str]:
        wanted = re.findall(r"[a-z0-9]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", query).lower())
        scores = {name: score(each, wanted) for name, each in counts.items()}
        return sorted((name for name in scores if scores[name] > 0), key=lambda name: (-scores[name], name))[:DEPTH]

    return search


WAYS = {"mcp-exec": build_product_search, "substring": substring, "flat BM25": flat_bm25}


def rank(query: DiscoveryQuery, search: Search) -> int | None:
    """Return the rank of the first of the query's tools, from 1, or None if none is found."""
    return next((place for place, tool in enumerate(search(query.text), 1) if tool in query.tools), None)


def quality(found: Sequence[DiscoveryQuery], search: Search) -> dict[str, Any]:
    """Compute hit@1, hit@5, MRR and the number of queries without a hit."""
    ranks = [rank(query, search) for query in found]
    return {
        "queries": len(ranks),
        "hit@1": round(sum(place == 1 for place in ranks) / len(ranks), 3),
        "hit@5": round(sum(place is not None and place <= 5 for place in ranks) / len(ranks), 3),
        "MRR": round(sum(1 / place for place in ranks if place) / len(ranks), 3),
        "none": sum(place is None for place in ranks),
    }


def speed(found: Sequence[Catalog], asked: Sequence[DiscoveryQuery]) -> dict[str, float]:
    """Return milliseconds of CPU time to index about 350 tools, and to answer each query."""
    copies = math.ceil(350 / sum(len(each.tools) for each in found))
    many = [Catalog(server=f"{each.server}-{copy}", tools=each.tools) for copy in range(copies) for each in found]
    made = []
    for _ in range(5):
        start = time.process_time()
        built = Index(many)
        made.append((time.process_time() - start) * 1000)
    took = []
    for query in asked:
        start = time.process_time()
        built.search(query.text, limit=10)
        took.append((time.process_time() - start) * 1000)
    return {
        "tools": sum(len(each.tools) for each in many),
        "index, first": round(made[0], 2),
        "index, p50": round(percentile(made, 0.5), 2),
        "query, p50": round(percentile(took, 0.5), 3),
        "query, p99": round(percentile(took, 0.99), 3),
    }


def forget_synonyms() -> None:
    """Clear what was read from the tables of synonyms, after a change."""
    search_query._load_synonyms.cache_clear()  # noqa: SLF001 - only this benchmark changes the tables
    search_entries.stem.cache_clear()


def list_ranks(sets: dict[str, QuerySet]) -> list[int | None]:
    """Return the rank of each query's tool, with the tables of synonyms as they are now."""
    forget_synonyms()
    return [
        rank(query, search)
        for each in sets.values()
        for search in [build_product_search(each.catalogs)]
        for query in each.queries
    ]


def ablate(sets: dict[str, QuerySet]) -> list[dict[str, Any]]:
    """Leave out each entry of the tables in turn, and return how many queries it ranks better and worse."""
    before, rows = list_ranks(sets), []
    for name in TABLES:
        table_of = getattr(synonyms, name)
        for word, others in list(table_of.items()):
            del table_of[word]
            pairs = [(place or DEPTH, old or DEPTH) for place, old in zip(list_ranks(sets), before, strict=True)]
            better, worse = sum(place > old for place, old in pairs), sum(place < old for place, old in pairs)
            rows.append({"table": name, "word": word, "meaning": others, "better": better, "worse": worse})
            table_of[word] = others
    list_ranks(sets)
    return rows


def print_ablation(target: Path | None) -> None:
    """Print the entries without effect, and those that do more harm than good."""
    rows = ablate(query_sets())
    without = [row for row in rows if not row["better"] and not row["worse"]]
    harmful = [row for row in rows if row["worse"] > row["better"]]
    print(
        f"{len(rows)} entries, {len(without)} without effect, {len(harmful)} that rank more queries worse than better"
    )
    for row in without + harmful:
        print(f"{row['better']:3} {row['worse']:3} {row['table']} {row['word']}: {row['meaning']}")
    write_json(target, {"entries": rows})


def main() -> None:
    """Run the command."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--json", type=Path, metavar="FILE", help="file for all figures")
    options.add_argument(
        "--misses", action="store_true", help="print the tuning queries that the product's search misses"
    )
    options.add_argument("--ablation", action="store_true", help="measure each entry of the tables of synonyms instead")
    arguments = options.parse_args()
    if arguments.ablation:
        print_ablation(arguments.json)
        return
    sets, rows = query_sets(), {}
    for name, each in sets.items():
        for way, build in WAYS.items():
            rows[f"{name}, {way}"] = quality(each.queries, build(each.catalogs))
    print(table(rows))
    timing = speed(catalogs(), queries())
    print("\nmilliseconds\n" + table({"mcp-exec": timing}))
    for name in ("tune", "tune, demo servers") if arguments.misses else ():
        search = build_product_search(sets[name].catalogs)
        for query in sets[name].queries:
            if (place := rank(query, search)) is None or place > 1:
                print(place, query.text, "->", sorted(query.tools), "got", search(query.text)[:5])
    write_json(arguments.json, {"rows": rows, "milliseconds": timing})


if __name__ == "__main__":
    main()
