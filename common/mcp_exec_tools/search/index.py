"""Tool search by a description of the task: BM25 over fields (Robertson and Zaragoza, 2009), with synonyms.

It runs in sandboxes and in the gateway. The expensive work is done once, when the index is created.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice, pairwise
from typing import Any, Final, Literal, get_args

from mcp_exec_tools.catalog import Catalog, Schema, assign_modules
from mcp_exec_tools.names import words
from mcp_exec_tools.overlays import apply_overlays, load_shipped
from mcp_exec_tools.patterns import matches_any
from mcp_exec_tools.search.stemming import find_stems, stem
from mcp_exec_tools.search.synonyms import IGNORED, MEANINGS, PHRASES, SERVERS

DetailLevel = Literal["name_only", "with_description", "full"]
LEVELS: Final[tuple[str, ...]] = get_args(DetailLevel)
DEFAULT_LIMIT: Final = 100
MAX_LIMIT: Final = 1000
MAX_QUERY: Final = 1000
"""Maximum length of a query in characters."""
_MAX_TERMS: Final = 40
"""Words and pairs of words of a query that count. Each may match every tool."""

_WORD: Final = re.compile(r"[^\W_]+")
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_IGNORED: Final = frozenset(IGNORED.split())
_DESCRIPTION: Final = 600
"""Number of a description's characters that count. Later ones describe the usage, not the purpose."""
_PARAMETER_DESCRIPTION: Final = 60
_PARAMETERS: Final = 40
_NAME, _SERVER, _KNOWN_AS, _TEXT, _PARAMETER = 8.0, 3.0, 0.7, 1.0, 0.6
"""Weights of a word by the field that contains it."""
_ADDED: Final = 2.0
"""The same as `_NAME` for functions of overlays. Lower, so that tools with the same words come first."""
_K1: Final = 1.2
_B: Final = 0.4
_SYNONYM: Final = 0.8
"""Weight of a synonym relative to the typed word."""
_COVERAGE: Final = 0.7
"""Share of a score that depends on the number of matched query words."""
_EXACT: Final = 100.0
_AS_IS: Final = "="
"""Prefix of a name's word with its ending: `projects` matches `list_projects` better than `pause_project`."""


@lru_cache(maxsize=1)
def _load_synonyms() -> tuple[dict[str, list[str]], dict[tuple[str, str], list[str]]]:
    """Return the synonyms by the stem of a word, and by the stems of a pair of words."""
    meanings: dict[str, list[str]] = {}
    for word, others in MEANINGS.items():
        meanings.setdefault(stem(word), []).extend(find_stems(others))
    phrases = {}
    for two, others in PHRASES.items():
        first, second = find_stems(two)
        phrases[first, second] = find_stems(others)
    return meanings, phrases


@dataclass(frozen=True, kw_only=True)
class _Entry:
    """Function that can be imported: a tool's or an overlay's."""

    server: str
    module: str
    function: str
    name: str
    """The tool's name, from which the function's name is made."""
    needs: tuple[str, ...]
    """Names of the tools that it calls."""
    description: str
    input_schema: Schema
    output_schema: Schema | None
    added: bool
    """Whether it comes from an overlay."""

    def to_json(self, level: str) -> dict[str, Any]:
        result: dict[str, Any] = {"name": self.function, "server": self.server}
        if level == "name_only":
            return result
        result |= {"description": self.description, "import": f"from servers.{self.module} import {self.function}"}
        if level == "full":
            result |= {"input_schema": self.input_schema, "output_schema": self.output_schema}
        return result


def _list_entries(catalog: Catalog, module: str) -> list[_Entry]:
    """List the functions of a server's package, ordered by name."""
    tools = {tool.name: tool for tool in catalog.tools}
    functions = [tool.function for tool in catalog.tools]
    aliases, composed = apply_overlays(load_shipped().values(), tools=tools, functions=functions)
    tool_functions = [(tool.function, tool) for tool in catalog.tools] + [
        (name, tools[tool]) for name, tool in aliases.items()
    ]
    entries = [
        _Entry(
            server=catalog.server,
            module=module,
            function=function,
            name=tool.name if function == tool.function else function,
            needs=(tool.name,),
            description=tool.description,
            input_schema=tool.input_schema,
            output_schema=tool.returned_schema,
            added=function in aliases,
        )
        for function, tool in tool_functions
    ]
    entries += [
        _Entry(
            server=catalog.server,
            module=module,
            function=name,
            name=name,
            needs=overlay_function.needs,
            description=overlay_function.summary,
            input_schema=overlay_function.input_schema,
            output_schema=None,
            added=True,
        )
        for name, overlay_function in composed.items()
    ]
    return sorted(entries, key=lambda entry: entry.name)


@dataclass(frozen=True, kw_only=True)
class _Terms:
    """Words of one tool and their weights."""

    fixed: dict[str, float]
    """Words of the names. Their weight does not depend on the length of the text."""
    text: dict[str, float]
    """Words of the free text. Their weight falls as the text gets longer."""
    length: int

    @classmethod
    def from_entry(cls, entry: _Entry, server: Mapping[str, float]) -> "_Terms":
        fixed = dict(server)
        for word in words(entry.name):
            for term in (stem(word), _AS_IS + word):
                fixed[term] = fixed.get(term, 0.0) + (_ADDED if entry.added else _NAME)
        if entry.added:  # its description repeats those of the tools that it calls, so only the name counts
            return cls(fixed=fixed, text={}, length=0)
        description_words = _WORD.findall(entry.description[:_DESCRIPTION].lower())
        parameter_words = _WORD.findall(_join_parameters(entry.input_schema))
        text = dict.fromkeys(map(stem, parameter_words), _PARAMETER)
        for word, times in Counter(map(stem, description_words)).items():
            text[word] = text.get(word, 0.0) + _TEXT * times
        return cls(fixed=fixed, text=text, length=len(description_words) + len(parameter_words))


def _join_parameters(schema: Mapping[str, Any]) -> str:
    """Return the names and descriptions of the parameters, in lower case."""
    properties = schema.get("properties")
    pieces: list[str] = []
    for name, parameter in islice(properties.items(), _PARAMETERS) if isinstance(properties, Mapping) else ():
        pieces.append(_split_name(name))
        description = parameter.get("description") if isinstance(parameter, Mapping) else None
        if isinstance(description, str):
            pieces.append(description[:_PARAMETER_DESCRIPTION])
    return " ".join(pieces).lower()


@lru_cache(maxsize=2048)
def _split_name(name: str) -> str:
    return " ".join(words(name))


class Index:
    """Search index of the tools of some servers."""

    def __init__(self, catalogs: Iterable[Catalog], *, modules: Mapping[str, str] | None = None) -> None:
        """Build the index.

        Args:
            catalogs: the tools of the servers.
            modules: package name of each server. Needed if the catalogs are not all servers of the execution.
        """
        self._entries: list[_Entry] = []
        self._exact: dict[str, list[int]] = {}
        self._servers: dict[str, str] = {}
        self._names: list[frozenset[str]] = []
        terms: list[_Terms] = []
        ordered = sorted(catalogs, key=lambda catalog: catalog.server)
        packages = assign_modules(ordered) if modules is None else modules
        for catalog in ordered:
            server = _weigh_server_words(catalog.server)
            server_name = _normalize(catalog.server)
            self._servers.setdefault(server_name, catalog.server)
            for entry in _list_entries(catalog, packages[catalog.server]):
                for spelling in (_normalize(entry.name), server_name + _normalize(entry.name)):
                    self._exact.setdefault(spelling, []).append(len(self._entries))
                self._entries.append(entry)
                self._names.append(frozenset(stem(word) for word in words(entry.name)))
                terms.append(_Terms.from_entry(entry, server))
        self._postings = _build_postings(terms)

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
            detail_level: `with_description` adds `description` and `import`; `full` also adds `input_schema` and
                `output_schema`, which is None if it is unknown.
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
            if patterns is None or all(matches_any(patterns, server=entry.server, tool=tool) for tool in entry.needs):
                results.append(entry.to_json(detail_level))
                if len(results) == limit:
                    break
        return results

    def _rank(self, query: str) -> list[int]:
        if not query.strip():
            return list(range(len(self._entries)))
        normalized = _normalize(query.removeprefix("mcp__"))
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
        groups = _expand_query(_split_query(query, self._postings))[:_MAX_TERMS]
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
        share = _COVERAGE / max(len(groups), 1)
        return {number: total * (1 - _COVERAGE + share * covered[number]) for number, total in totals.items()}


def _check_arguments(query: object, detail_level: object, limit: object) -> None:
    if not isinstance(query, str):
        raise ValueError(f"query must be a string, not {type(query).__name__}")
    if len(query) > MAX_QUERY:
        raise ValueError(f"query has {len(query)} characters, allowed are {MAX_QUERY}")
    if detail_level not in LEVELS:
        raise ValueError(f"detail_level must be one of {', '.join(LEVELS)}, not {detail_level!r}")
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MAX_LIMIT:
        raise ValueError(f"limit must be an integer from 1 to {MAX_LIMIT}, not {limit!r}")


def _weigh_server_words(server: str) -> dict[str, float]:
    weights: dict[str, float] = {}
    for word in words(server):
        for synonym in find_stems(SERVERS.get(word, "")):
            weights.setdefault(synonym, _KNOWN_AS)
    return weights | {stem(word): _SERVER for word in words(server)}


def _normalize(name: str) -> str:
    """Return the name in lower case without separators."""
    return "".join(words(name))


def _split_query(query: str, known_stems: Container[str]) -> list[str]:
    """Split a query into words. A camelCase word is split too, unless it is a known word, such as GitHub."""
    result: list[str] = []
    for word in _WORD.findall(query):
        parts = [word] if stem(word.lower()) in known_stems else _CAMEL.split(word)
        result.extend(part.lower() for part in parts)
    return result


def _expand_query(query_words: list[str]) -> list[dict[str, float]]:
    """Return, for each word of the query and each known pair of words, the matching terms and their weights."""
    meanings, phrases = _load_synonyms()
    stems = [stem(word) for word in query_words]
    terms = {stem(word): word for word in query_words if word not in _IGNORED} or dict(
        zip(stems, query_words, strict=True)
    )
    groups = [
        dict.fromkeys(meanings.get(term, ()), _SYNONYM) | {term: 1.0, _AS_IS + word: 1.0}
        for term, word in terms.items()
    ]
    for pair in dict.fromkeys(pairwise(stems)):
        if pair in phrases:
            groups.extend({synonym: _SYNONYM} for synonym in phrases[pair] if synonym not in terms)
    return groups


def _build_postings(terms: list[_Terms]) -> dict[str, list[tuple[int, float]]]:
    """Return the numbers of the entries with each term, and the term's weight in each."""
    average = (sum(entry_terms.length for entry_terms in terms) / len(terms) if terms else 0.0) or 1.0
    postings: defaultdict[str, list[tuple[int, float]]] = defaultdict(list)
    for number, entry_terms in enumerate(terms):
        norm, fixed = 1.0 / (1 - _B + _B * entry_terms.length / average), entry_terms.fixed
        for term, weight in fixed.items():
            postings[term].append((number, weight + norm * entry_terms.text.pop(term, 0.0)))
        for term, weight in entry_terms.text.items():
            postings[term].append((number, weight * norm))
    return dict(postings)
