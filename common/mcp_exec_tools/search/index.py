"""Finds tools by what somebody wants to do: BM25 over their fields (Robertson and Zaragoza, 2009), with other words.

It runs inside sandboxes as it does in the gateway: everything that takes time is done once, when the index is made.
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
"""The longest query, in characters."""

_WORD: Final = re.compile(r"[^\W_]+")
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_IGNORED: Final = frozenset(IGNORED.split())
_DESCRIPTION: Final = 600
"""Characters of a description that count: further on stands how, and no longer what for."""
_PARAMETER_DESCRIPTION: Final = 60
_PARAMETERS: Final = 40
_NAME, _SERVER, _KNOWN_AS, _TEXT, _PARAMETER = 8.0, 3.0, 0.7, 1.0, 0.6
"""How much a word counts by where it stands."""
_ADDED: Final = 2.0
"""As `_NAME`, for what an overlay adds: tools with the same words come first."""
_K1: Final = 1.2
_B: Final = 0.4
_SYNONYM: Final = 0.8
"""How much another word for the one that was typed counts."""
_COVERAGE: Final = 0.7
"""The share of a score that depends on how much of the query was found."""
_EXACT: Final = 100.0
_AS_IS: Final = "="
"""Marks a name's word with its ending: `projects` is nearer to `list_projects` than to `pause_project`."""


@lru_cache(maxsize=1)
def _tables() -> tuple[dict[str, list[str]], dict[tuple[str, str], list[str]]]:
    """Other words by the stem of a word, and by the stems of two."""
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
    """A function that can be imported: a tool's, or one that an overlay adds."""

    server: str
    module: str
    function: str
    name: str
    """The tool's own name, which what it is called in Python is made from."""
    needs: tuple[str, ...]
    """Own names of the tools that it calls."""
    description: str
    input_schema: Schema
    output_schema: Schema | None
    added: bool
    """Whether an overlay adds it."""

    def to_json(self, level: str) -> dict[str, Any]:
        found: dict[str, Any] = {"name": self.function, "server": self.server}
        if level == "name_only":
            return found
        found |= {"description": self.description, "import": f"from servers.{self.module} import {self.function}"}
        if level == "full":
            found |= {"input_schema": self.input_schema, "output_schema": self.output_schema}
        return found


def _entries(catalog: Catalog, module: str) -> list[_Entry]:
    """The functions of a server's package, ordered by name."""
    tools = {tool.name: tool for tool in catalog.tools}
    functions = [tool.function for tool in catalog.tools]
    aliases, composed = apply_overlays(load_shipped().values(), tools=tools, functions=functions)
    named = [(tool.function, tool) for tool in catalog.tools] + [(name, tools[tool]) for name, tool in aliases.items()]
    found = [
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
        for function, tool in named
    ]
    found += [
        _Entry(
            server=catalog.server,
            module=module,
            function=name,
            name=name,
            needs=each.needs,
            description=each.summary,
            input_schema=each.input_schema,
            output_schema=None,
            added=True,
        )
        for name, each in composed.items()
    ]
    return sorted(found, key=lambda entry: entry.name)


@dataclass(frozen=True, kw_only=True)
class _Terms:
    """The words of one tool, each with its weight."""

    fixed: dict[str, float]
    """Those of the names, however long the rest is."""
    text: dict[str, float]
    """Those of the free text, which count the less the more of it there is."""
    length: int

    @classmethod
    def of(cls, entry: _Entry, server: Mapping[str, float]) -> "_Terms":
        fixed = dict(server)
        for word in words(entry.name):
            for term in (stem(word), _AS_IS + word):
                fixed[term] = fixed.get(term, 0.0) + (_ADDED if entry.added else _NAME)
        if entry.added:  # known by its name alone: what else it says of itself, the tools that it calls say too
            return cls(fixed=fixed, text={}, length=0)
        described = _WORD.findall(entry.description[:_DESCRIPTION].lower())
        taken = _WORD.findall(_parameters(entry.input_schema))
        text = dict.fromkeys(map(stem, taken), _PARAMETER)
        for word, times in Counter(map(stem, described)).items():
            text[word] = text.get(word, 0.0) + _TEXT * times
        return cls(fixed=fixed, text=text, length=len(described) + len(taken))


def _parameters(schema: Mapping[str, Any]) -> str:
    """Names and descriptions of the parameters, in lower case."""
    properties = schema.get("properties")
    pieces: list[str] = []
    for name, known in islice(properties.items(), _PARAMETERS) if isinstance(properties, Mapping) else ():
        pieces.append(_spaced(name))
        described = known.get("description") if isinstance(known, Mapping) else None
        if isinstance(described, str):
            pieces.append(described[:_PARAMETER_DESCRIPTION])
    return " ".join(pieces).lower()


@lru_cache(maxsize=2048)
def _spaced(name: str) -> str:
    return " ".join(words(name))


class Index:
    """The tools of some servers, ready to be searched."""

    def __init__(self, catalogs: Iterable[Catalog], *, modules: Mapping[str, str] | None = None) -> None:
        """`modules`: what the packages of the servers are called, where these may not be all servers that there are."""
        self._entries: list[_Entry] = []
        self._exact: dict[str, list[int]] = {}
        self._servers: dict[str, str] = {}
        self._names: list[frozenset[str]] = []
        terms: list[_Terms] = []
        known = sorted(catalogs, key=lambda catalog: catalog.server)
        packages = assign_modules(known) if modules is None else modules
        for catalog in known:
            server = _server_terms(catalog.server)
            own = _squeezed(catalog.server)
            self._servers.setdefault(own, catalog.server)
            for entry in _entries(catalog, packages[catalog.server]):
                for spelling in (_squeezed(entry.name), own + _squeezed(entry.name)):
                    self._exact.setdefault(spelling, []).append(len(self._entries))
                self._entries.append(entry)
                self._names.append(frozenset(stem(word) for word in words(entry.name)))
                terms.append(_Terms.of(entry, server))
        self._postings = _postings(terms)

    def search(
        self,
        query: str,
        *,
        detail_level: str = "name_only",
        limit: int = DEFAULT_LIMIT,
        allow: Iterable[str] | None = None,
    ) -> list[dict[str, Any]]:
        """The tools that fit best, best first; all of them by server and name where the query is empty.

        What overlays add to the servers is found like their tools. `name` is what the tool is called in Python.
        `name_only` has name and server; `with_description` description and import too; `full` also input_schema and
        output_schema, which is None where it is not known. `allow` are patterns such as `github.create_*`, which leave
        out all that none of them speaks of, and functions that need such a tool. A query that is just a server's name
        lists its tools, and those of others that have it in their names.

        Raises ValueError where a level, a limit or a query can't be.
        """
        _check(query, detail_level, limit)
        patterns = None if allow is None else list(allow)
        found: list[dict[str, Any]] = []
        for number in self._ranked(query):
            entry = self._entries[number]
            if patterns is None or all(matches_any(patterns, server=entry.server, tool=tool) for tool in entry.needs):
                found.append(entry.to_json(detail_level))
                if len(found) == limit:
                    break
        return found

    def _ranked(self, query: str) -> list[int]:
        if not query.strip():
            return list(range(len(self._entries)))
        spelled = _squeezed(query.removeprefix("mcp__"))
        scores = self._scores(query)
        for number in self._exact.get(spelled, ()) if spelled else ():
            scores[number] = scores.get(number, 0.0) + _EXACT
        server = self._servers.get(spelled) if spelled else None
        if server is not None:
            return self._of_server(server, scores)
        # entries are ordered by server and name, so their numbers settle ties
        return sorted(scores, key=lambda number: (-round(scores[number], 9), number))

    def _of_server(self, server: str, scores: Mapping[int, float]) -> list[int]:
        named, whole = {stem(word) for word in words(server)}, stem(server.lower())
        own = [number for number, entry in enumerate(self._entries) if entry.server == server]
        others = [
            number
            for number in sorted(scores, key=lambda number: (-round(scores[number], 9), number))
            if self._entries[number].server != server and (named <= self._names[number] or whole in self._names[number])
        ]
        return own + others

    def _scores(self, query: str) -> dict[int, float]:
        totals: dict[int, float] = {}
        covered: dict[int, int] = {}
        groups = _groups(_typed(query, self._postings))
        for group in groups:
            best: dict[int, float] = {}
            for term, weight in group.items():
                rows = self._postings.get(term, ())
                # a term that few tools have tells more
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


def _check(query: object, detail_level: object, limit: object) -> None:
    if not isinstance(query, str):
        raise ValueError(f"query must be a text, not {type(query).__name__}")
    if len(query) > MAX_QUERY:
        raise ValueError(f"query has {len(query)} characters, allowed are {MAX_QUERY}")
    if detail_level not in LEVELS:
        raise ValueError(f"detail_level must be one of {', '.join(LEVELS)}, not {detail_level!r}")
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MAX_LIMIT:
        raise ValueError(f"limit must be an integer from 1 to {MAX_LIMIT}, not {limit!r}")


def _server_terms(server: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for word in words(server):
        for other in find_stems(SERVERS.get(word, "")):
            found.setdefault(other, _KNOWN_AS)
    return found | {stem(word): _SERVER for word in words(server)}


def _squeezed(name: str) -> str:
    """The name without what separates its words, and without capitals."""
    return "".join(words(name))


def _typed(query: str, known: Container[str]) -> list[str]:
    """The words of a query; camelCase is taken apart, unless it is a known word as it is, such as GitHub."""
    found: list[str] = []
    for word in _WORD.findall(query):
        parts = [word] if stem(word.lower()) in known else _CAMEL.split(word)
        found.extend(part.lower() for part in parts)
    return found


def _groups(typed: list[str]) -> list[dict[str, float]]:
    """For each word of the query, and each known pair: the terms that stand for it, with how much each counts."""
    meanings, phrases = _tables()
    every = [stem(word) for word in typed]
    told = {stem(word): word for word in typed if word not in _IGNORED} or dict(zip(every, typed, strict=True))
    found = [
        dict.fromkeys(meanings.get(term, ()), _SYNONYM) | {term: 1.0, _AS_IS + word: 1.0} for term, word in told.items()
    ]
    for pair in dict.fromkeys(pairwise(every)):
        if pair in phrases:
            found.extend({other: _SYNONYM} for other in phrases[pair] if other not in told)
    return found


def _postings(terms: list[_Terms]) -> dict[str, list[tuple[int, float]]]:
    """By term, the tools that have it, with its weight there."""
    average = (sum(each.length for each in terms) / len(terms) if terms else 0.0) or 1.0
    found: defaultdict[str, list[tuple[int, float]]] = defaultdict(list)
    for number, each in enumerate(terms):
        norm, fixed = 1.0 / (1 - _B + _B * each.length / average), each.fixed
        for term, weight in fixed.items():
            found[term].append((number, weight + norm * each.text.pop(term, 0.0)))
        for term, weight in each.text.items():
            found[term].append((number, weight * norm))
    return dict(found)
