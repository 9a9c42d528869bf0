"""What each part of the tool search, and each word of its synonyms, is worth for the queries for tuning.

    python bench/ablation.py            # each part
    python bench/ablation.py --words    # each word of the tables of synonyms, which takes some minutes

Queries that nothing is tuned by take no part.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Any
from unittest.mock import patch

from discovery import DEPTH, Rows, build_product_search, list_ranks, quality
from harness import parser, table, write_json
from queries import QuerySet, query_sets

from mcp_exec_tools.search import entries, index, query, relatives
from mcp_exec_tools.search.phrases import PHRASES, SAME_PHRASES
from mcp_exec_tools.search.synonyms import ACTIONS, MEANINGS, SAME

TABLES: Mapping[str, dict[str, str]] = {
    "ACTIONS": ACTIONS,
    "MEANINGS": MEANINGS,
    "PHRASES": PHRASES,
    "SAME": SAME,
    "SAME_PHRASES": SAME_PHRASES,
}
"""Tables of synonyms."""
PARTS: Mapping[str, Callable[[], AbstractContextManager[object]]] = {
    "values apart from words": lambda: patch.object(index, "take_values", lambda text: (text, [])),
    "misspelled words": lambda: patch.object(relatives.Relatives, "_find_spellings", lambda *_: []),
    "families and compounds too": lambda: patch.object(relatives.Relatives, "find", lambda *_: []),
    "values of parameters": lambda: patch.object(entries, "_VALUES", 0),
    "descriptions of parameters": lambda: patch.object(entries, "_PARAMETER_DESCRIPTION", 0),
    "kind of action": lambda: patch.object(index, "find_wanted_actions", lambda words: frozenset()),
    "share of words found": lambda: patch.object(index, "_COVERAGE", 0.0),
    "ignored words": lambda: patch.object(query, "_IGNORED", frozenset()),
    **{name: partial(patch.dict, table_of, clear=True) for name, table_of in TABLES.items()},
}
"""Parts of the search, and how each is left out."""


def forget_synonyms() -> None:
    """Clear what was read from the tables of synonyms, after a change."""
    query.load_synonyms.cache_clear()
    entries.stem.cache_clear()
    entries._load_same.cache_clear()  # noqa: SLF001 - only this benchmark changes the tables


def list_all_ranks(sets: Mapping[str, QuerySet]) -> list[int | None]:
    """Return the rank of each query's tool, with the search as it is now."""
    forget_synonyms()
    return [place for each in sets.values() for place in list_ranks(each, build_product_search)]


def ablate_parts(sets: Mapping[str, QuerySet]) -> Rows:
    """Return the quality of the whole search, and without each of its parts."""
    rows = {"whole": quality(list_all_ranks(sets))}
    for name, leave_out in PARTS.items():
        with leave_out():
            rows[f"without {name}"] = quality(list_all_ranks(sets))
    forget_synonyms()
    return rows


def ablate_words(sets: Mapping[str, QuerySet]) -> list[dict[str, Any]]:
    """Leave out each word of the tables in turn, and return how many queries it ranks better and worse."""
    before, rows = list_all_ranks(sets), []
    for name, table_of in TABLES.items():
        separator = ", " if name == "PHRASES" else " "
        for key, words in list(table_of.items()):
            for word in words.split(separator):
                table_of[key] = separator.join(each for each in words.split(separator) if each != word)
                pairs = [
                    (place or DEPTH, old or DEPTH) for place, old in zip(list_all_ranks(sets), before, strict=True)
                ]
                better, worse = sum(place > old for place, old in pairs), sum(place < old for place, old in pairs)
                rows.append({"table": name, "entry": key, "word": word, "better": better, "worse": worse})
            table_of[key] = words
    forget_synonyms()
    return rows


def print_words(rows: list[dict[str, Any]]) -> None:
    """Print the words that do more harm than good."""
    without = [row for row in rows if not row["better"] and not row["worse"]]
    harmful = [row for row in rows if row["worse"] > row["better"]]
    print(f"{len(rows)} words, {len(without)} without effect, {len(harmful)} that rank more queries worse than better")
    for row in harmful:
        print(f"{row['better']:3} {row['worse']:3} {row['table']} {row['entry']}: {row['word']}")


def main() -> None:
    """Run the command."""
    options = parser(__doc__)
    options.add_argument("--words", action="store_true", help="measure each word of the tables of synonyms instead")
    arguments = options.parse_args()
    sets = {name: each for name, each in query_sets().items() if each.is_for_tuning}
    if arguments.words:
        words = ablate_words(sets)
        print_words(words)
        write_json(arguments.json, {"words": words})
        return
    requests = {name: each for name, each in sets.items() if name.startswith("requests looked at, english")}
    older = {name: each for name, each in sets.items() if name.startswith("tune")}
    parts = {"requests looked at, in English": ablate_parts(requests), "older queries for tuning": ablate_parts(older)}
    print("\n\n".join(f"{name}\n{table(rows)}" for name, rows in parts.items()))
    write_json(arguments.json, {"parts": parts})


if __name__ == "__main__":
    main()
