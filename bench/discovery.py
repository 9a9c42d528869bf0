"""Quality of the tool search, compared with plain substrings and flat BM25, over real servers' catalogs.

hit@N: one of the query's tools is among the first N. MRR: the mean of 1/rank of the first of them, 0 if none is found.

    python bench/discovery.py --json discovery.json --misses
    python bench/discovery.py --model    # next to a model's embeddings, and both joined

Misses are of the queries for tuning only. Of the others only figures are printed.
"""

import math
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from embedding_search import EmbeddingModel, fuse
from harness import parser, percentile, table, write_json
from queries import DiscoveryQuery, QuerySet, query_sets

from mcp_exec_tools.catalog import Catalog
from mcp_exec_tools.search.index import Index

SIZES = (500, 1250)
"""Numbers of tools that queries are also asked of."""
COUNTED = ("requests counted, english", "requests counted, english, GitHub's current server")
"""Sets that were written before the ranking was changed and never looked at."""
DEPTH = 100
Search = Callable[[str], Sequence[str]]
"""Search function: from a query to tools as SERVER.TOOL, best first."""
Rows = dict[str, dict[str, Any]]


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


def list_ranks(asked: QuerySet, build: Callable[[Sequence[Catalog]], Search]) -> list[int | None]:
    """Return the rank of each query's tool."""
    search = build(asked.catalogs)
    return [rank(query, search) for query in asked.queries]


def quality(ranks: Sequence[int | None]) -> dict[str, Any]:
    """Compute hit@1, hit@5, MRR and the number of queries without a hit."""
    return {
        "queries": len(ranks),
        "hit@1": round(sum(place == 1 for place in ranks) / len(ranks), 3),
        "hit@5": round(sum(place is not None and place <= 5 for place in ranks) / len(ranks), 3),
        "MRR": round(sum(1 / place for place in ranks if place) / len(ranks), 3),
        "none": sum(place is None for place in ranks),
    }


def compare(sets: Mapping[str, QuerySet], ways: Mapping[str, Callable[[Sequence[Catalog]], Search]]) -> Rows:
    """Return the quality of each way for each set."""
    return {
        f"{name}, {way}": {"tools": each.size, **quality(list_ranks(each, build))}
        for name, each in sets.items()
        for way, build in ways.items()
    }


def compare_sizes(sets: Mapping[str, QuerySet], ways: Mapping[str, Callable[[Sequence[Catalog]], Search]]) -> Rows:
    """Return the quality of each way for the counted queries in English, with the real tools and with made ones too."""
    rows = {}
    for size in (0, *SIZES):
        asked = [sets[name].extend(size) for name in COUNTED]
        for way, build in ways.items():
            ranks = [place for each in asked for place in list_ranks(each, build)]
            tools = " and ".join(dict.fromkeys(str(each.size) for each in asked))
            rows[f"{tools} tools, {way}"] = {**quality(ranks)}
    return rows


def speed(found: Sequence[Catalog], asked: Iterable[DiscoveryQuery]) -> dict[str, float]:
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


def print_model(sets: Mapping[str, QuerySet], target: Path | None) -> None:
    """Print the quality of the product's search, a model's, and both joined, and what the model costs."""
    before = memory_megabytes()
    model = EmbeddingModel()
    model.embed(["how much memory does one query take"])
    memory = memory_megabytes() - before
    ways = {
        "mcp-exec": build_product_search,
        "model": model.build_search,
        "both": lambda found: fuse(build_product_search(found), model.build_search(found)),
    }
    others = {name: each for name, each in sets.items() if not each.is_for_tuning and name not in COUNTED}
    sizes, rows = compare_sizes(sets, ways), compare(others, ways)
    print("requests counted, in English\n" + table(sizes) + "\n\n" + table(rows))
    took = model.time_queries(query.text for each in sets.values() for query in each.queries)
    costs = {
        "query, p50 ms": round(percentile(took, 0.5), 2),
        "query, p99 ms": round(percentile(took, 0.99), 2),
        "model, MB": round(model.path.stat().st_size / 1e6, 1),
        "packages, MB": round(model.count_package_bytes() / 1e6, 1),
        "memory, MB": round(memory, 1),
    }
    print("\n" + table({"model": costs}))
    write_json(target, {"sizes": sizes, "rows": rows, "model": costs})


def memory_megabytes() -> float:
    """Return the memory of this process that is resident."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def print_misses(sets: Mapping[str, QuerySet]) -> None:
    """Print the queries for tuning whose tool is not the first result."""
    for each in sets.values():
        search = build_product_search(each.catalogs)
        for query in each.queries if each.is_for_tuning else ():
            if (place := rank(query, search)) is None or place > 1:
                print(place, query.text, "->", sorted(query.tools), "got", search(query.text)[:5])


def main() -> None:
    """Run the command."""
    options = parser(__doc__)
    options.add_argument(
        "--misses", action="store_true", help="print the tuning queries that the product's search misses"
    )
    options.add_argument(
        "--model", action="store_true", help="compare with a model's embeddings instead (see embedding_search.py)"
    )
    arguments = options.parse_args()
    sets = query_sets()
    if arguments.model:
        print_model(sets, arguments.json)
        return
    rows, sizes = compare(sets, WAYS), compare_sizes(sets, WAYS)
    print(table(rows))
    print("\nrequests counted, in English\n" + table(sizes))
    timing = speed(sets["tune"].catalogs, [query for each in sets.values() for query in each.queries])
    print("\nmilliseconds\n" + table({"mcp-exec": timing}))
    if arguments.misses:
        print_misses(sets)
    write_json(arguments.json, {"rows": rows, "sizes": sizes, "milliseconds": timing})


if __name__ == "__main__":
    main()
