"""Statistics of a text."""

import re
from collections import Counter
from itertools import pairwise

_COMMON = frozenset(
    {"a", "an", "and", "are", "as", "at", "be", "by", "for", "from", "has", "he", "in", "is", "it", "its", "of", "on"}
    | {"or", "that", "the", "to", "was", "were", "will", "with"}
)


def run(text: str, top: int = 10) -> dict:
    """Return counts, means and the most frequent words and pairs of words of a text.

    Args:
        text: the text.
        top: number of the most frequent words and pairs that are listed.
    """
    words = [word.lower() for word in re.findall(r"[^\W\d_]+(?:'[^\W\d_]+)?", text)]
    sentences = [part for part in re.split(r"(?<=[.!?])\s+", text) if part.strip()]
    rare = [word for word in words if word not in _COMMON]
    pairs = Counter(f"{first} {second}" for first, second in pairwise(words))
    return {
        "characters": len(text),
        "words": len(words),
        "distinct_words": len(set(words)),
        "sentences": len(sentences),
        "paragraphs": len([part for part in re.split(r"\n[ \t]*\n", text) if part.strip()]),
        "words_per_sentence": round(len(words) / max(1, len(sentences)), 1),
        "letters_per_word": round(sum(map(len, words)) / max(1, len(words)), 1),
        "reading_minutes": round(len(words) / 230, 1),
        "top_words": [list(pair) for pair in Counter(rare).most_common(top)],
        "top_pairs": [list(pair) for pair in pairs.most_common(top) if pair[1] > 1],
    }
