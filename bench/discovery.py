"""Quality of the tool search, compared with plain substrings and flat BM25, over real servers' catalogs.

Queries are in bench/data/queries.json, each with the tools that answer it. A query is held out if its SHA-256, as a
number, is odd; the rule is older than the search. Nothing is tuned with held-out queries, and they stayed the same
when tuning queries were added.
hit@N: one of the query's tools is among the first N. MRR: the mean of 1/rank of the first of them, 0 if none is found.

    python bench/discovery.py --json discovery.json --misses
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
from mcp_exec_tools.search.index import Index

ROOT = Path(__file__).parents[1]
QUERIES = ROOT / "bench" / "data" / "queries.json"
CATALOGS = (ROOT / "servers" / "catalogs", ROOT / "tests" / "data" / "catalogs")
"""Catalogs of the servers whose wrappers ship, and of two more."""
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


def catalogs() -> list[Catalog]:
    """Read all catalogs."""
    found = [json.loads(path.read_text()) for folder in CATALOGS for path in sorted(folder.glob("*.json"))]
    return [Catalog.from_tools(each["server"], each["tools"]) for each in found]


def build_product_search(found: Sequence[Catalog]) -> Search:
    """Build the product's search."""
    index = Index(found)
    names = {(each.server, tool.function): f"{each.server}.{tool.name}" for each in found for tool in each.tools}

    def search(query: str) -> Sequence[str]:
        hits = [(hit["server"], hit["name"]) for hit in index.search(query, limit=DEPTH)]
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
        index = Index(many)
        made.append((time.process_time() - start) * 1000)
    took = []
    for query in asked:
        start = time.process_time()
        index.search(query.text, limit=10)
        took.append((time.process_time() - start) * 1000)
    return {
        "tools": sum(len(each.tools) for each in many),
        "index, first": round(made[0], 2),
        "index, p50": round(percentile(made, 0.5), 2),
        "query, p50": round(percentile(took, 0.5), 3),
        "query, p99": round(percentile(took, 0.99), 3),
    }


def main() -> None:
    """Run the command."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--json", type=Path, metavar="FILE", help="file for all figures")
    options.add_argument(
        "--misses", action="store_true", help="print the tuning queries that the product's search misses"
    )
    arguments = options.parse_args()
    asked, found = queries(), catalogs()
    searches = {"mcp-exec": build_product_search(found), "substring": substring(found), "flat BM25": flat_bm25(found)}
    halves = {
        "tune": [query for query in asked if not query.held_out],
        "held out": [query for query in asked if query.held_out],
    }
    rows = {f"{half}, {name}": quality(halves[half], search) for half in halves for name, search in searches.items()}
    print(table(rows))
    timing = speed(found, asked)
    print("\nmilliseconds\n" + table({"mcp-exec": timing}))
    if arguments.misses:
        for query in halves["tune"]:
            place = rank(query, searches["mcp-exec"])
            if place is None or place > 1:
                print(place, query.text, "->", sorted(query.tools), "got", searches["mcp-exec"](query.text)[:5])
    write_json(arguments.json, {"rows": rows, "milliseconds": timing})


if __name__ == "__main__":
    main()
