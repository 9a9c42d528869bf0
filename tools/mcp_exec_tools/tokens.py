"""Estimate of the number of tokens of a text, without a tokenizer.

A tokenizer's vocabulary has megabytes, and each model has its own. The estimate cuts a text where OpenAI's o200k does,
and adds for each piece what such a piece costs on average. `bench/tokenizer.py` compares it with the tokenizer.
"""

import re
from typing import Final

METHOD: Final = "estimate-o200k-1"
"""Name of the method. It changes when the numbers do, so that recorded estimates remain comparable."""
MAX_EXACT_CHARACTERS: Final = 1 << 16
"""Most characters that are read in full; of a longer text, samples of as many characters."""
_SAMPLES: Final = 64
_CJK: Final = "\u2e80"
"""First character of the scripts that have about one token for each character."""
_GREEK: Final = "\u0370"
"""First character of the alphabets that do not extend the Latin one."""
_LOWER: Final = "a-z\u00df-\u024f\u0370-\u1fff"
_PIECES: Final = re.compile(
    rf"[^\w\r\n]?(?:[A-Z]*[{_LOWER}]+|[A-Z]+)"  # a word with the space or sign before it
    r"|[0-9]{1,3}"
    r"| ?[!-/:-@\[-`{-~]+[\r\n]*"  # signs
    r"|\s*[\r\n]+|\s+(?!\S)|\s"
    r"|[^\x00-\x7f]+|.",
    re.DOTALL,
)
_SIGN_BEFORE_WORD: Final = 0.35
_LONG_WORD, _LONG_WORD_CHARACTER = 10, 0.15
_CAPITALS, _CAPITAL = 2, 0.4
_LONG_SIGNS, _LONG_SIGN = 3, 0.2
_ACCENTED, _WIDE, _SYMBOL = 0.22, 0.7, 1.0


def estimate_tokens(text: str, *, exact_characters: int = MAX_EXACT_CHARACTERS) -> int:
    """Return the estimated number of tokens of `text`: 0 for an empty text, else at least 1.

    Takes linear time, and constant time above `exact_characters`: then it reads samples of as many characters.
    """
    if len(text) <= exact_characters:
        return max(round(_weigh(text)), 1) if text else 0
    size = exact_characters // _SAMPLES
    starts = [index * (len(text) - size) // (_SAMPLES - 1) for index in range(_SAMPLES)]
    found = sum(_weigh(text[start : start + size]) for start in starts)
    return round(found * len(text) / (size * _SAMPLES))


def _weigh(text: str) -> float:
    return sum(_weigh_piece(match.group()) for match in _PIECES.finditer(text))


def _weigh_piece(piece: str) -> float:
    first, last = piece[0], piece[-1]
    if last.isalpha() and last < _CJK:
        word = piece if first.isalpha() else piece[1:]
        weight = 1.0 if len(word) == len(piece) or first == " " else 1.0 + _SIGN_BEFORE_WORD
        if not word.isascii():
            return weight + _ACCENTED * sum("\x7f" < character < _GREEK for character in word)
        if word.isupper():
            return weight + _CAPITAL * max(len(word) - _CAPITALS, 0)
        return weight + _LONG_WORD_CHARACTER * max(len(word) - _LONG_WORD, 0)
    if piece.isascii():
        return 1.0 if last.isspace() else 1.0 + _LONG_SIGN * max(len(piece) - _LONG_SIGNS, 0)
    return sum(_WIDE if character.isalpha() else _SYMBOL for character in piece)
