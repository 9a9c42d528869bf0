"""What somebody probably meant."""

from collections.abc import Iterable
from difflib import get_close_matches
from itertools import islice
from typing import Final

from mcp_exec_tools.names import words

_MOST_NAMES: Final = 500
_LONGEST: Final = 128


def close_names(name: str, known: Iterable[str], *, limit: int = 3) -> list[str]:
    """The known names that are nearest to a name, best first: the same words, then few other letters.

    Its time is bounded: of very many names the first ones are looked at.
    """
    name = name[:_LONGEST]
    names = [each for each in islice(known, _MOST_NAMES) if len(each) <= _LONGEST]
    wanted = words(name)
    same = [each for each in names if each != name and words(each) == wanted]
    near = get_close_matches(name, names, n=limit, cutoff=0.6)
    folded = {each.lower(): each for each in names}
    near += [folded[each] for each in get_close_matches(name.lower(), folded, n=limit, cutoff=0.75)]
    holding = [each for each in names if wanted and set(wanted) < set(words(each))]
    return [each for each in dict.fromkeys([*same, *near, *holding]) if each != name][:limit]
