"""Modules of skills that code names. The text is searched, not parsed: a name in a comment counts as well.

Each expression begins with letters that Python's `re` searches for quickly; what must precede them is checked then.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Final

MAX_NAMES: Final = 256
"""Names that count in one code; further ones are ignored."""
_MAX_MATCHES: Final = 2048
"""Places in one code that are looked at."""
_WORD: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")
_NAMED: Final = re.compile(
    r"skills(?:\.(?P<dotted>[a-z][a-z0-9_]{0,63})(?!\w)"
    r"|[ \t]{1,20}import[ \t]{0,20}(?P<listed>\([^)]{0,500}\)|[^\n#]{0,500}))"
)
_FROM: Final = re.compile(r"(?<![\w.])from[ \t]{1,20}\Z")
_CALLED: Final = re.compile(r"run_skill\(\s{0,20}[\"']([a-z][a-z0-9_-]{0,63})[\"']")
_SEARCHES: Final = re.compile(r"search_(?:skills|tools)(?!\w)")


@dataclass(frozen=True, kw_only=True)
class NamedSkills:
    """What code says of skills."""

    modules: tuple[str, ...] = ()
    """Modules below `skills` that the code may import, at most MAX_NAMES."""
    searches: bool = False
    """Whether it may search skills, alone or together with tools."""


def find_skills(code: str) -> NamedSkills:
    """Return what code says of skills. Takes linear time; most code costs two searches for a word."""
    if "skill" not in code and "search_" not in code:
        return NamedSkills()
    return _find(code)


@lru_cache(maxsize=16)
def _find(code: str) -> NamedSkills:
    """Read the code, once for an execution: its spec is checked before it waits and again when it is bound."""
    found: dict[str, None] = {}
    for name in _list_modules(code):
        found[name] = None
        if len(found) == MAX_NAMES:
            break
    searches = any(_begins_word(code, match.start()) for match in _iterate(_SEARCHES, code))
    return NamedSkills(modules=tuple(found), searches=searches)


def _list_modules(code: str) -> Iterator[str]:
    for match in _iterate(_NAMED, code):
        start = match.start()
        if match["dotted"] and _begins_word(code, start) and not code.endswith(".", 0, start):
            yield match["dotted"]
        elif match["listed"] and _FROM.search(code, max(0, start - 32), start):
            yield from _WORD.findall(match["listed"])
    for match in _iterate(_CALLED, code):
        if _begins_word(code, match.start()):
            yield match[1].replace("-", "_")


def _iterate(pattern: re.Pattern[str], code: str) -> Iterator[re.Match[str]]:
    return islice(pattern.finditer(code), _MAX_MATCHES)


def _begins_word(code: str, start: int) -> bool:
    before = code[start - 1 : start]
    return not (before.isalnum() or before == "_")
