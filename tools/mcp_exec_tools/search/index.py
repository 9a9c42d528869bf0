"""Tool search by a description of the task: BM25 over fields (Robertson and Zaragoza, 2009), with synonyms.

It runs in sandboxes and in the gateway. The expensive work is done once, when the index is created.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, get_args

from mcp_exec_tools.catalog import Catalog, assign_modules
from mcp_exec_tools.languages import check_language
from mcp_exec_tools.names import fold, words
from mcp_exec_tools.patterns import ToolPatterns
from mcp_exec_tools.search.entries import (
    EntryTerms,
    SearchEntry,
    build_postings,
    list_entries,
    stem,
)
from mcp_exec_tools.search.query import (
    MAX_TERMS,
    expand_query,
    find_actions,
    find_wanted_actions,
    load_synonyms,
    replace_phrases,
    split_query,
)
from mcp_exec_tools.search.relatives import Relatives
from mcp_exec_tools.search.shapes import take_values

DetailLevel = Literal["name_only", "with_description", "full"]
LEVELS: Final[tuple[str, ...]] = get_args(DetailLevel)
DEFAULT_LIMIT: Final = 100
MAX_LIMIT: Final = 1000
MAX_QUERY: Final = 1000
"""Maximum length of a query in characters."""

_VERBS: Final = 2
"""The verb of a tool's name is among so many words at its beginning."""
_K1: Final = 1.2
_COVERAGE: Final = 0.7
"""Share of a score that depends on the number of matched query words."""
_EXACT: Final = 100.0


class Index:
    """Search index of the tools of some servers."""

    def __init__(self, catalogs: Iterable[Catalog], *, modules: Mapping[str, str] | None = None) -> None:
        """Build the index.

        Args:
            catalogs: the tools of the servers.
            modules: package name of each server. Needed if the catalogs are not all servers of the execution.
        """
        self._entries: list[SearchEntry] = []
        self._exact: dict[str, list[int]] = {}
        self._servers: dict[str, str] = {}
        self._names: list[frozenset[str]] = []
        self._actions: list[frozenset[str]] = []
        terms: list[EntryTerms] = []
        ordered = sorted(catalogs, key=lambda catalog: catalog.server)
        packages = assign_modules(ordered) if modules is None else modules
        for catalog in ordered:
            server_name = fold(catalog.server)
            self._servers.setdefault(server_name, catalog.server)
            for entry in list_entries(catalog, packages[catalog.server]):
                for spelling in (fold(entry.name), server_name + fold(entry.name)):
                    self._exact.setdefault(spelling, []).append(len(self._entries))
                self._entries.append(entry)
                self._names.append(frozenset(stem(word) for word in words(entry.name)))
                self._actions.append(frozenset() if entry.added else find_actions(words(entry.name)[:_VERBS]))
                terms.append(EntryTerms.from_entry(entry))
        self._postings = build_postings(terms)
        self._relatives = Relatives(self._postings, load_synonyms().meanings)

    def search(
        self,
        query: str,
        *,
        detail_level: str = "name_only",
        limit: int = DEFAULT_LIMIT,
        allow: Iterable[str] | None = None,
        language: str = "python",
    ) -> list[dict[str, Any]]:
        """Return the tools that match the query, best first. An empty query lists all tools by server and name.

        Functions of overlays are found like tools. A query that is only a server's name lists its tools, then the
        tools of other servers that have it in their names. Each result has `name` (of the function) and `server`.

        Args:
            query: words, or the name of a tool or server.
            detail_level: `with_description` adds `description` and `import`; `full` also adds `signature`,
                `input_schema` and `output_schema`, which is None if it is unknown.
            limit: maximum number of results.
            allow: patterns such as `github.create_*`. Tools that none of them matches are left out, and functions
                that need such a tool. None allows all.
            language: language of the names, imports and signatures: that of the code that uses them.

        Raises ValueError if the level, the limit, the query or the language is invalid.
        """
        _check_arguments(query, detail_level, limit)
        check_language(language)
        patterns = None if allow is None else ToolPatterns(allow)
        results: list[dict[str, Any]] = []
        for number in self._rank(query):
            entry = self._entries[number]
            if _is_allowed(entry, patterns):
                results.append(entry.to_json(detail_level, language=language))
                if len(results) == limit:
                    break
        return results

    def find(self, name: str, *, allow: Iterable[str] | None = None, language: str = "python") -> dict[str, Any] | None:
        """Return the tool with this name, as `search` does with the level `full`, or None.

        The name may have any spelling, with its server or without; of several tools the first server's is meant.
        Raises ValueError if there is no such language.
        """
        check_language(language)
        patterns = None if allow is None else ToolPatterns(allow)
        for number in self._exact.get(fold(name.removeprefix("mcp__")), ()):
            if _is_allowed(self._entries[number], patterns):
                return self._entries[number].to_json("full", language=language)
        return None

    def _rank(self, query: str) -> list[int]:
        if not query.strip():
            return list(range(len(self._entries)))
        normalized = fold(query.removeprefix("mcp__"))
        scores = self._score(query)
        for number in self._exact.get(normalized, ()) if normalized else ():
            scores[number] = scores.get(number, 0.0) + _EXACT
        server = self._servers.get(normalized) if normalized else None
        if server is not None:
            return self._rank_server(server, scores)
        # Entries are ordered by server and name, so their numbers break ties.
        return sorted(scores, key=lambda number: (-round(scores[number], 9), number))

    def _rank_server(self, server: str, scores: Mapping[int, float]) -> list[int]:
        server_stems, server_stem = {stem(word) for word in words(server)}, stem(server.lower())
        own = [number for number, entry in enumerate(self._entries) if entry.server == server]
        others = [
            number
            for number in sorted(scores, key=lambda number: (-round(scores[number], 9), number))
            if self._entries[number].server != server
            and (server_stems <= self._names[number] or server_stem in self._names[number])
        ]
        return own + others

    def _score(self, query: str) -> dict[int, float]:
        totals: dict[int, float] = {}
        covered: dict[int, int] = {}
        text, values = take_values(query)
        query_words = replace_phrases(split_query(text, self._postings))
        groups = expand_query(query_words, values, self._relatives.find)[:MAX_TERMS]
        for group in groups:
            best: dict[int, float] = {}
            for term, weight in group.items():
                rows = self._postings.get(term, ())
                # inverse document frequency: a rare term is more specific
                weight *= math.log(1 + (len(self._entries) - len(rows) + 0.5) / (len(rows) + 0.5))
                for number, amount in rows:
                    value = weight * amount / (_K1 + amount)
                    if value > best.get(number, 0.0):
                        best[number] = value
            for number, value in best.items():
                totals[number] = totals.get(number, 0.0) + value
                covered[number] = covered.get(number, 0) + 1
        wanted = find_wanted_actions(query_words)
        for number in totals:  # the action is one more word that a tool has or has not
            covered[number] += not wanted.isdisjoint(self._actions[number])
        share = _COVERAGE / (len(groups) + 1)
        return {number: total * (1 - _COVERAGE + share * covered[number]) for number, total in totals.items()}


def _is_allowed(entry: SearchEntry, patterns: ToolPatterns | None) -> bool:
    """Return whether the patterns match all tools that the entry needs; None matches all."""
    return patterns is None or all(patterns.match(entry.server, tool) for tool in entry.needs)


def _check_arguments(query: object, detail_level: object, limit: object) -> None:
    if not isinstance(query, str):
        raise ValueError(f"query must be a string, not {type(query).__name__}")
    if len(query) > MAX_QUERY:
        raise ValueError(f"query has {len(query)} characters, allowed are {MAX_QUERY}")
    if detail_level not in LEVELS:
        raise ValueError(f"detail_level must be one of {', '.join(LEVELS)}, not {detail_level!r}")
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MAX_LIMIT:
        raise ValueError(f"limit must be an integer from 1 to {MAX_LIMIT}, not {limit!r}")
