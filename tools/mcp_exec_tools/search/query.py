"""Words of a query: which terms of the index each of them matches, and which kind of action the query wants."""

import re
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Final

from mcp_exec_tools.search.entries import AS_IS, find_stems, stem
from mcp_exec_tools.search.phrases import IGNORED, PHRASES, POLITE, SAME_PHRASES
from mcp_exec_tools.search.synonyms import ACTIONS, MEANINGS

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
_VALUE: Final = 0.5
"""Weight of a word for a value's parameter relative to a typed word."""
_SYNONYM: Final = 0.8
"""Weight of a synonym relative to the typed word."""


@dataclass(frozen=True, kw_only=True)
class Synonyms:
    """The tables of synonyms, by stems."""

    meanings: Mapping[str, list[str]]
    """Stems of the synonyms, by the stem of a word."""
    phrases: Mapping[tuple[str, ...], list[str]]
    """Stems of the synonyms, by the stems of a pair of words."""
    same_phrases: Mapping[tuple[str, ...], list[str]]
    """Words that replace a pair of words, by its stems."""
    actions: Mapping[str, list[str]]
    """Kinds of action by the stem of a verb."""


@lru_cache(maxsize=1)
def load_synonyms() -> Synonyms:
    """Return the tables of synonyms, once read."""
    meanings: dict[str, list[str]] = {}
    for meaning, others in MEANINGS.items():
        for word in find_stems(others):
            meanings.setdefault(word, []).append(stem(meaning))
    phrases: dict[tuple[str, ...], list[str]] = {}
    for meaning, pairs in PHRASES.items():
        for pair in pairs.split(", "):
            phrases.setdefault(tuple(find_stems(pair)), []).append(stem(meaning))
    actions: dict[str, list[str]] = {}
    for action, verbs in ACTIONS.items():
        for verb in find_stems(verbs):
            actions.setdefault(verb, []).append(action)
    return Synonyms(
        meanings=meanings,
        phrases=phrases,
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
    same = load_synonyms().same_phrases
    result: list[str] = []
    for word in query_words:
        if result and (replacement := same.get((stem(result[-1]), stem(word)))):
            result[-1:] = replacement
        else:
            result.append(word)
    return result


def expand_query(
    query_words: list[str], values: list[str], find_relatives: Callable[[str], list[str]]
) -> list[dict[str, float]]:
    """Return, for each word of the query and each known pair of words, the matching terms and their weights."""
    synonyms = load_synonyms()
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
    groups.extend({term: _VALUE} for term in map(stem, values) if term not in terms)
    return groups


def find_wanted_actions(query_words: list[str]) -> frozenset[str]:
    """Return the kinds of action that a query wants, by its first word: `remove a label`, `which labels exist`."""
    first = [word for word in query_words if word not in _POLITE][:1]
    return find_actions(first) or (_DEFAULT_ACTIONS if len(query_words) > 1 else frozenset())


def find_actions(found: list[str]) -> frozenset[str]:
    """Return the kinds of action that the words mean."""
    actions = load_synonyms().actions
    return frozenset(action for word in found for action in actions.get(stem(word), ()))
