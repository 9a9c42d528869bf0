"""Words of the tools and their weights by field, as the index of the search stores them."""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any, Final

from mcp_exec_tools.names import words
from mcp_exec_tools.schemas.parameters import read_parameters
from mcp_exec_tools.search.entries import SearchEntry
from mcp_exec_tools.search.stemming import find_stems, stem
from mcp_exec_tools.search.synonyms import SERVERS

_WORD: Final = re.compile(r"[^\W_]+")
_DESCRIPTION: Final = 600
"""Number of a description's characters that count. Later ones describe the usage, not the purpose."""
_PARAMETER_DESCRIPTION: Final = 60
_PARAMETERS: Final = 40
_NAME, _SERVER, _KNOWN_AS, _TEXT, _PARAMETER = 8.0, 3.0, 0.7, 1.0, 0.6
"""Weights of a word by the field that contains it."""
_ADDED: Final = 2.0
"""The same as `_NAME` for functions of overlays. Lower, so that tools with the same words come first."""
_B: Final = 0.4
AS_IS: Final = "="
"""Prefix of a name's word with its ending: `projects` matches `list_projects` better than `pause_project`."""


@dataclass(frozen=True, kw_only=True)
class EntryTerms:
    """Words of one tool and their weights."""

    fixed: dict[str, float]
    """Words of the names. Their weight does not depend on the length of the text."""
    text: dict[str, float]
    """Words of the free text. Their weight falls as the text gets longer."""
    length: int

    @classmethod
    def from_entry(cls, entry: SearchEntry, server: Mapping[str, float]) -> "EntryTerms":
        """Return the words of an entry, and of its server with their weights."""
        fixed = dict(server)
        for word in words(entry.name):
            for term in (stem(word), AS_IS + word):
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
    pieces: list[str] = []
    for name, parameter in islice(read_parameters(schema).schemas.items(), _PARAMETERS):
        pieces.append(_split_name(name))
        description = parameter.get("description") if isinstance(parameter, Mapping) else None
        if isinstance(description, str):
            pieces.append(description[:_PARAMETER_DESCRIPTION])
    return " ".join(pieces).lower()


@lru_cache(maxsize=2048)
def _split_name(name: str) -> str:
    return " ".join(words(name))


def weigh_server_words(server: str) -> dict[str, float]:
    """Return the words of a server's name and of what it is also known as, with their weights."""
    weights: dict[str, float] = {}
    for word in words(server):
        for synonym in find_stems(SERVERS.get(word, "")):
            weights.setdefault(synonym, _KNOWN_AS)
    return weights | {stem(word): _SERVER for word in words(server)}


def build_postings(terms: list[EntryTerms]) -> dict[str, list[tuple[int, float]]]:
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
