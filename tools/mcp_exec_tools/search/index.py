"""Tool search by a description of the task: BM25 over fields (Robertson and Zaragoza, 2009), with synonyms.

It runs in sandboxes and in the gateway. The expensive work is done once, when the index is created.
"""

import math
import re
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final, Literal, get_args

from mcp_exec_tools.catalog import Catalog, assign_modules
from mcp_exec_tools.names import fold, matches_any, words
from mcp_exec_tools.search.entries import (
    AS_IS,
    EntryTerms,
    SearchEntry,
    build_postings,
    find_stems,
    list_entries,
    stem,
    weigh_server_words,
)
from mcp_exec_tools.search.synonyms import ACTIONS, IGNORED, MEANINGS, PHRASES, POLITE, SAME_PHRASES

MAX_TERMS: Final = 40
"""Words and pairs of words of a query that count. Each may match every tool."""
_WORD: Final = re.compile(r"[^\W_]+")
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_IGNORED: Final = frozenset(IGNORED.split())
_POLITE: Final = frozenset(POLITE.split())
_DEFAULT_ACTIONS: Final = frozenset({"read", "list", "search"})
"""Kinds of action that a query without a verb at its beginning wants."""
_RELATED: Final = 0.6
"""Weight of a word of the same family relative to the typed word."""
_SYNONYM: Final = 0.8
"""Weight of a synonym relative to the typed word."""


@dataclass(frozen=True, kw_only=True)
class _Synonyms:
    meanings: Mapping[str, list[str]]
    """Stems of the synonyms, by the stem of a word."""
    phrases: Mapping[tuple[str, ...], list[str]]
    """Stems of the synonyms, by the stems of a pair of words."""
    same_phrases: Mapping[tuple[str, ...], list[str]]
    """Words that replace a pair of words, by its stems."""
    actions: Mapping[str, list[str]]
    """Kinds of action by the stem of a verb."""


@lru_cache(maxsize=1)
def _load_synonyms() -> _Synonyms:
    meanings: dict[str, list[str]] = {}
    for word, others in MEANINGS.items():
        meanings.setdefault(stem(word), []).extend(find_stems(others))
    actions: dict[str, list[str]] = {}
    for action, verbs in ACTIONS.items():
        for verb in find_stems(verbs):
            actions.setdefault(verb, []).append(action)
    return _Synonyms(
        meanings=meanings,
        phrases={tuple(find_stems(pair)): find_stems(others) for pair, others in PHRASES.items()},
        same_phrases={tuple(find_stems(pair)): others.split() for pair, others in SAME_PHRASES.items()},
        actions=actions,
    )


def split_query(query: str, known_stems: Container[str]) -> list[str]:
    """Split a query into words. A camelCase word is split too, unless it is a known word, such as GitHub."""
    result: list[str] = []
    for word in _WORD.findall(query):
        parts = [word] if stem(word.lower()) in known_stems else _CAMEL.split(word)
        result.extend(part.lower() for part in parts)
    return result


def replace_phrases(query_words: list[str]) -> list[str]:
    """Replace pairs of words that mean other words."""
    same = _load_synonyms().same_phrases
    result: list[str] = []
    for word in query_words:
        if result and (replacement := same.get((stem(result[-1]), stem(word)))):
            result[-1:] = replacement
        else:
            result.append(word)
    return result


def expand_query(query_words: list[str], find_relatives: Callable[[str], list[str]]) -> list[dict[str, float]]:
    """Return, for each word of the query and each known pair of words, the matching terms and their weights."""
    synonyms = _load_synonyms()
    stems = [stem(word) for word in query_words]
    terms = {stem(word): word for word in query_words if word not in _IGNORED} or dict(
        zip(stems, query_words, strict=True)
    )
    groups: list[dict[str, float]] = []
    for term, word in list(terms.items())[:MAX_TERMS]:
        relatives = find_relatives(term)
        group = {meaning: _RELATED * _SYNONYM for each in relatives for meaning in synonyms.meanings.get(each, ())}
        group |= dict.fromkeys(relatives, _RELATED) | dict.fromkeys(synonyms.meanings.get(term, ()), _SYNONYM)
        groups.append(group | {term: 1.0, AS_IS + word: 1.0})
    for pair in dict.fromkeys(pairwise(stems)):
        if pair in synonyms.phrases:
            groups.extend({synonym: _SYNONYM} for synonym in synonyms.phrases[pair] if synonym not in terms)
    return groups


def find_wanted_actions(query_words: list[str]) -> frozenset[str]:
    """Return the kinds of action that a query wants, by its first word: `remove a label`, `which labels exist`."""
    first = [word for word in query_words if word not in _POLITE][:1]
    return find_actions(first) or (_DEFAULT_ACTIONS if len(query_words) > 1 else frozenset())


def find_actions(found: list[str]) -> frozenset[str]:
    """Return the kinds of action that the words mean."""
    actions = _load_synonyms().actions
    return frozenset(action for word in found for action in actions.get(stem(word), ()))


DetailLevel = Literal["name_only", "with_description", "full"]
LEVELS: Final[tuple[str, ...]] = get_args(DetailLevel)
DEFAULT_LIMIT: Final = 100
MAX_LIMIT: Final = 1000
MAX_QUERY: Final = 1000
"""Maximum length of a query in characters."""

_VERBS: Final = 2
"""The verb of a tool's name is among so many words at its beginning."""
_PREFIX: Final = 5
"""Words of one family agree in so many letters: `secure`, `security`."""
_PART: Final = 4
"""Least number of letters of a part of a compound: `sheet` in `spreadsheet`."""
_LONGEST: Final = 30
"""Maximum number of letters of a word whose family and parts are looked up."""
_MAX_RELATED: Final = 6
"""Related words of a word that count. Each may match every tool."""
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
            server = weigh_server_words(catalog.server)
            server_name = fold(catalog.server)
            self._servers.setdefault(server_name, catalog.server)
            for entry in list_entries(catalog, packages[catalog.server]):
                for spelling in (fold(entry.name), server_name + fold(entry.name)):
                    self._exact.setdefault(spelling, []).append(len(self._entries))
                self._entries.append(entry)
                self._names.append(frozenset(stem(word) for word in words(entry.name)))
                self._actions.append(frozenset() if entry.added else find_actions(words(entry.name)[:_VERBS]))
                terms.append(EntryTerms.from_entry(entry, server))
        self._postings = build_postings(terms)
        self._families: dict[str, list[str]] = {}
        for term in self._postings:
            if len(term) >= _PREFIX and term.isalpha():
                self._families.setdefault(term[:_PREFIX], []).append(term)

    def search(
        self,
        query: str,
        *,
        detail_level: str = "name_only",
        limit: int = DEFAULT_LIMIT,
        allow: Iterable[str] | None = None,
    ) -> list[dict[str, Any]]:
        """Return the tools that match the query, best first. An empty query lists all tools by server and name.

        Functions of overlays are found like tools. A query that is only a server's name lists its tools, then the
        tools of other servers that have it in their names. Each result has `name` (of the Python function) and
        `server`.

        Args:
            query: words, or the name of a tool or server.
            detail_level: `with_description` adds `description` and `import`; `full` also adds `signature`,
                `input_schema` and `output_schema`, which is None if it is unknown.
            limit: maximum number of results.
            allow: patterns such as `github.create_*`. Tools that none of them matches are left out, and functions
                that need such a tool. None allows all.

        Raises ValueError if the level, the limit or the query is invalid.
        """
        _check_arguments(query, detail_level, limit)
        patterns = None if allow is None else list(allow)
        results: list[dict[str, Any]] = []
        for number in self._rank(query):
            entry = self._entries[number]
            if _is_allowed(entry, patterns):
                results.append(entry.to_json(detail_level))
                if len(results) == limit:
                    break
        return results

    def find(self, name: str, *, allow: Iterable[str] | None = None) -> dict[str, Any] | None:
        """Return the tool with this name, as `search` does with the level `full`, or None.

        The name may have any spelling, with its server or without; of several tools the first server's is meant.
        """
        patterns = None if allow is None else list(allow)
        for number in self._exact.get(fold(name.removeprefix("mcp__")), ()):
            if _is_allowed(self._entries[number], patterns):
                return self._entries[number].to_json("full")
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
        query_words = replace_phrases(split_query(query, self._postings))
        groups = expand_query(query_words, self._find_relatives)[:MAX_TERMS]
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

    def _find_relatives(self, term: str) -> list[str]:
        """Return indexed words of an unknown word's family, and the parts of a compound that are indexed."""
        if term in self._postings or not _PREFIX <= len(term) <= _LONGEST:
            return []
        family = self._families.get(term[:_PREFIX], ())[:_MAX_RELATED]
        parts = [part for cut in range(_PART, len(term) - 1) for part in (term[:cut], term[len(term) - cut :])]
        return list(dict.fromkeys([*family, *(part for part in map(stem, parts) if part in self._postings)]))[
            :_MAX_RELATED
        ]


def _is_allowed(entry: SearchEntry, patterns: list[str] | None) -> bool:
    """Return whether the patterns match all tools that the entry needs; None matches all."""
    return patterns is None or all(matches_any(patterns, server=entry.server, tool=tool) for tool in entry.needs)


def _check_arguments(query: object, detail_level: object, limit: object) -> None:
    if not isinstance(query, str):
        raise ValueError(f"query must be a string, not {type(query).__name__}")
    if len(query) > MAX_QUERY:
        raise ValueError(f"query has {len(query)} characters, allowed are {MAX_QUERY}")
    if detail_level not in LEVELS:
        raise ValueError(f"detail_level must be one of {', '.join(LEVELS)}, not {detail_level!r}")
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MAX_LIMIT:
        raise ValueError(f"limit must be an integer from 1 to {MAX_LIMIT}, not {limit!r}")
