"""Bounded texts and results in one cut format, and paths of values, for the sandbox, the operator and the broker."""

import json
import re
from collections.abc import Sequence
from typing import Any, Final, Literal

_KEY_CHARACTERS: Final = 60


def cut_marker(count: int | None, unit: Literal["characters", "bytes"] = "characters") -> str:
    """Return the line that stands in place of `count` characters or bytes; None if their number is unknown."""
    return "\n[... the rest is cut ...]\n" if count is None else f"\n[... {count} {unit} cut ...]\n"


def shorten(text: str, limit: int) -> str:
    """Return `text`, or if it has more than `limit` characters, its head and tail around a cut marker.

    The result has at most `limit` characters, marker included, so that a second call changes nothing. If the marker
    would need more than half of them, the result is only the beginning of `text`.
    """
    if len(text) <= limit:
        return text
    room = limit - len(cut_marker(len(text)))
    if 2 * room < limit:
        return text[: max(limit, 0)]
    tail = room // 2
    return text[: room - tail] + cut_marker(len(text) - room) + text[len(text) - tail :]


def shorten_line(text: str, limit: int) -> str:
    """Return `text`, or if it has more than `limit` characters, its beginning and an ellipsis: `limit` characters."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def shorten_json(value: Any, limit: int, *, is_head: bool = False) -> tuple[Any, bool]:
    """Return `value` and False, or if its JSON has more than `limit` bytes, a string and True.

    The string is a text value itself, or the JSON of any other value, shortened so that it has at most `limit` bytes
    as JSON. A second call changes nothing. A value that has no JSON becomes its shortened `repr`, or None if it is
    nested too deeply.

    Args:
        value: a plain JSON value.
        limit: maximum size in bytes of compact JSON in UTF-8. The smallest string has two.
        is_head: `value` is only the beginning of the result, so that its end is not worth keeping.
    """
    try:
        try:
            if not is_head and _fits(value, limit):
                return value, False
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, allow_nan=False)
        except ValueError:
            text = repr(value)
    except RecursionError:
        return None, True
    length = limit - 2
    while True:
        short = _keep_head(text, length) if is_head else shorten(text, length)
        size = measure_json(short)
        if size <= limit or not short:
            return short, True
        length = min(length - 1, length * limit // size)


def measure_json(value: Any) -> int:
    """Return the size in bytes of a plain value as compact JSON in UTF-8."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return len(text.encode("utf-8", "replace"))


def format_path(path: Sequence[str | int], root: str = "") -> str:
    """Return the path of a part of a value as Python writes it: `result.rows[3].price`.

    Keys that are no names are in brackets, and long ones are cut.
    """
    parts = [root]
    for step in path:
        if isinstance(step, int):
            parts.append(f"[{step}]")
        elif step.isidentifier() and len(step) <= _KEY_CHARACTERS:
            parts.append(f".{step}" if any(parts) else step)
        else:
            parts.append(f"[{step[:_KEY_CHARACTERS]!r}]")
    return "".join(parts)


def _fits(value: Any, limit: int) -> bool:
    # Without the first check a long text would be copied twice.
    return not (isinstance(value, str) and len(value) > limit) and measure_json(value) <= limit


def _keep_head(text: str, limit: int) -> str:
    marker = cut_marker(None)
    room = limit - len(marker)
    return text[: max(limit, 0)] if 2 * room < limit else text[:room] + marker


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
