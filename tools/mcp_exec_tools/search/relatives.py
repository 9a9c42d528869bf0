"""Relatives of words that no tool has: their family, the parts of a compound, and what a misspelled word should be."""

from collections.abc import Iterable, Mapping
from typing import Final

from mcp_exec_tools.search.entries import stem

_PREFIX: Final = 5
"""Words of one family agree in so many letters: `secure`, `security`."""
_PART: Final = 4
"""Least number of letters of a part of a compound: `sheet` in `spreadsheet`."""
_MISSPELLED: Final = 5
"""Least number of letters of a misspelled word: too many of the shorter ones have another meaning."""
_LONGEST: Final = 30
"""Maximum number of letters of a word whose relatives are looked up."""
_MAX_RELATIVES: Final = 6
"""Relatives of a word that count. Each may match every tool."""
_MAX_COMPARED: Final = 200
"""Words with the same first letter and length that a misspelled word is compared with."""


class Relatives:
    """Words by their beginnings, and by what a misspelled word has in common with them."""

    def __init__(self, terms: Iterable[str], meanings: Mapping[str, object]) -> None:
        """Create the table of the terms that tools have, and of the words that the synonyms list."""
        self._terms = dict.fromkeys(terms)
        self._meanings = meanings
        self._families: dict[str, list[str]] = {}
        self._spellings: dict[tuple[str, int], list[str]] = {}
        for term in self._terms:
            if len(term) >= _PREFIX and term.isalpha():
                self._families.setdefault(term[:_PREFIX], []).append(term)
        for term in dict.fromkeys([*self._terms, *meanings]):
            if _MISSPELLED - 1 <= len(term) <= _LONGEST and term.isalpha():
                self._spellings.setdefault((term[0], len(term)), []).append(term)

    def find(self, term: str) -> list[str]:
        """Return the relatives of a stem of the query, the most similar first. One that tools have needs none."""
        if term in self._terms or not _PREFIX <= len(term) <= _LONGEST:
            return []
        spelled = [] if term in self._meanings else self._find_spellings(term)
        family = self._families.get(term[:_PREFIX], ())[:_MAX_RELATIVES]
        parts = [part for cut in range(_PART, len(term) - 1) for part in (term[:cut], term[len(term) - cut :])]
        known = (part for part in map(stem, parts) if part in self._terms)
        return list(dict.fromkeys([*spelled, *family, *known]))[:_MAX_RELATIVES]

    def _find_spellings(self, term: str) -> list[str]:
        lengths = range(len(term) - 1, len(term) + 2)
        near = (each for length in lengths for each in self._spellings.get((term[0], length), ())[:_MAX_COMPARED])
        return [each for each in near if is_misspelled(term, each)]


def is_misspelled(word: str, other: str) -> bool:
    """Return whether one letter too many, too few, wrong or swapped with the next one makes the two words different."""
    shorter, longer = sorted((word, other), key=len)
    same = next((place for place, (a, b) in enumerate(zip(shorter, longer, strict=False)) if a != b), len(shorter))
    if len(shorter) < len(longer):
        return shorter[same:] == longer[same + 1 :]
    swapped = longer[same + 1 : same + 2] + longer[same : same + 1]
    return shorter != longer and (
        shorter[same + 1 :] == longer[same + 1 :]
        or (shorter[same : same + 2] == swapped and shorter[same + 2 :] == longer[same + 2 :])
    )
