"""Stems of words, so that different forms of a word match."""

import re
from functools import lru_cache
from typing import Final

from mcp_exec_tools.search.synonyms import SAME

_WORD: Final = re.compile(r"[^\W_]+")


@lru_cache(maxsize=8192)
def stem(word: str) -> str:
    """Return the word without its ending, so that `issues`, `created` and `creating` match `issue` and `create`.

    An abbreviation becomes the stem of the full word: `repo` is `repository`.
    """
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-3] + "y" if word.endswith("ies") and len(word) > 4 else word[:-1]
        if word.endswith(("che", "she", "sse", "xe")):
            word = word[:-1]
    for ending in ("ing", "ed"):
        if len(word) > len(ending) + 3 and word.endswith(ending):
            word = word[: -len(ending)]
            if word[-1] == word[-2] and word[-1] not in "ls":
                word = word[:-1]
            break
    word = word[:-1] if len(word) > 3 and word.endswith("e") else word
    return SAME.get(word, word)


def find_stems(text: str) -> list[str]:
    """Return the stems of all words of a text, in order."""
    return [stem(word) for word in _WORD.findall(text.lower())]
