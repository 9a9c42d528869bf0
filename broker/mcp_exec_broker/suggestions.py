"""Suggestions for misspelled names."""

from collections.abc import Iterable
from difflib import get_close_matches
from itertools import islice
from typing import Final

from mcp_exec_tools.names import words

_MAX_NAMES: Final = 500
_MAX_LENGTH: Final = 128


def find_close_names(name: str, known: Iterable[str], *, limit: int = 3) -> list[str]:
    """Return the known names nearest to a name, best first: the same words, then few different letters.

    Reads the first 500 names only, so that the time is bounded.
    """
    name = name[:_MAX_LENGTH]
    names = [known_name for known_name in islice(known, _MAX_NAMES) if len(known_name) <= _MAX_LENGTH]
    name_words = words(name)
    same = [known_name for known_name in names if known_name != name and words(known_name) == name_words]
    near = get_close_matches(name, names, n=limit, cutoff=0.6)
    by_lower_case = {known_name.lower(): known_name for known_name in names}
    near += [by_lower_case[match] for match in get_close_matches(name.lower(), by_lower_case, n=limit, cutoff=0.75)]
    containing = [known_name for known_name in names if name_words and set(name_words) < set(words(known_name))]
    return [match for match in dict.fromkeys([*same, *near, *containing]) if match != name][:limit]
