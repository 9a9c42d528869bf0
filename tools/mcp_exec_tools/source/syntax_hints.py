"""Errors of Python's parser, with what to write instead."""

import re
import unicodedata
from typing import Final

from mcp_exec_tools.source.lines import scan

_CHARACTER: Final = re.compile(r"invalid (?:non-printable )?character .*U\+([0-9A-F]{2,6})")
_MAX_LINES: Final = 5
_ZERO_WIDTH: Final = "Cf"
_REPLACEMENTS: Final = {
    **dict.fromkeys("\u2018\u2019\u201a\u201b\u2032\u00b4\u02bc", "'"),
    **dict.fromkeys("\u201c\u201d\u201e\u201f\u2033\u00ab\u00bb", '"'),
    **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe63", "-"),
    **{"\u00d7": "*", "\u22c5": "*", "\u00b7": "*", "\u00f7": "/", "\u2215": "/", "\u2044": "/"},
    **{"\u2264": "<=", "\u2265": ">=", "\u2260": "!=", "\u2026": "...", "\u2192": "->", "\u2261": "=="},
    **{"\u00b2": "**2", "\u00b3": "**3", "\u3001": ",", "\u3002": "."},
    **dict.fromkeys("\u2028\u2029", "a line break"),
}
"""What Python has for characters of typesetting."""

_NEWER: Final = (
    ((3, 12), re.compile(r"\s*type\s+\w+\s*(?:\[[^\]]*\]\s*)?="), "`type X = ...`", "write `X = ...`"),
    (
        (3, 12),
        re.compile(r"\s*(?:async\s+)?(?:def|class)\s+\w+\s*\["),
        "type parameters in brackets",
        "write `T = typing.TypeVar('T')`, and for a class `typing.Generic[T]`",
    ),
    ((3, 13), re.compile(r"\s*(?:def|class|type)\s+\w+\s*\[[^\]]*="), "a type parameter's default", "leave it out"),
    (
        (3, 14),
        re.compile(r"\s*except\*?\s+[\w.]+\s*,[^()]*:"),
        "several exceptions without parentheses",
        "write `except (A, B):`",
    ),
    ((3, 14), re.compile(r".*(?<!\w)(?:t|tr|rt)(?:'|\")", re.I), "a t-string", "write an f-string"),
    ((3, 15), re.compile(r"\s*lazy\s+(?:import|from)\s"), "`lazy import`", "write `import`"),
)
"""Version, pattern of the line, what it is, what to write instead."""
_F_STRING: Final = re.compile(r"(?<!\w)(?:f|fr|rf)(?:'|\")[^\n]*\{", re.I)
_F_STRING_ERROR: Final = re.compile(
    r"f-string: (expecting '}'|unmatched|unterminated)|f-string expression part|unterminated string|invalid syntax"
)
_MAX_LINE_CHARACTERS: Final = 1000


def explain_syntax_error(error: SyntaxError, source: str, *, version: tuple[int, int]) -> SyntaxError:
    """Return an error at the same place whose message says what to write instead, or the error itself."""
    line = _get_line(source, error.lineno)
    message = (
        _explain_character(error, source) or _explain_newer_syntax(error, line, version) or _explain_text(error, line)
    )
    if message is None:
        return error
    explained = type(error)(message, (error.filename, error.lineno, error.offset, error.text))
    explained.end_lineno, explained.end_offset = error.end_lineno, error.end_offset
    return explained


def needs_newer_python(error: SyntaxError, source: str, *, version: tuple[int, int]) -> bool:
    """Return whether a newer Python may accept the line of an error."""
    return _explain_newer_syntax(error, _get_line(source, error.lineno), version) is not None


def _get_line(source: str, number: int | None) -> str:
    lines = source.split("\n", number or 0)
    return lines[number - 1][:_MAX_LINE_CHARACTERS] if number and number <= len(lines) else ""


def _explain_character(error: SyntaxError, source: str) -> str | None:
    match = _CHARACTER.match(error.msg or "")
    if match is None:
        return None
    character = chr(int(match[1], 16))
    message = f"U+{match[1]} ({unicodedata.name(character, 'a control character')}) {_advise(character)}"
    code = scan(source).code.split("\n")
    others = [number for number, line in enumerate(code, 1) if character in line and number != error.lineno]
    if not others:
        return message
    listed = ", ".join(map(str, others[:_MAX_LINES])) + (", ..." if len(others) > _MAX_LINES else "")
    return f"{message} (also in line{'' if len(others) == 1 else 's'} {listed})"


def _advise(character: str) -> str:
    category = unicodedata.category(character)
    folded = unicodedata.normalize("NFKC", character)
    if category == "Zs":
        return "is not a space in Python; replace it with a normal space"
    if category in (_ZERO_WIDTH, "Cc"):
        return "is invisible and not part of Python; delete it"
    if character in _REPLACEMENTS or (folded != character and folded.isascii()):
        return f"is not part of Python; replace it with {_REPLACEMENTS.get(character, folded)}"
    return "is not part of Python outside strings and comments; delete it"


def _explain_newer_syntax(error: SyntaxError, line: str, version: tuple[int, int]) -> str | None:
    running = f"Python {version[0]}.{version[1]} runs here"
    for needed, pattern, name, advice in _NEWER:
        if version < needed and pattern.match(line):
            return f"{running}, and {name} came with Python {needed[0]}.{needed[1]}: {advice}"
    original = error.msg or ""
    if version < (3, 12) and _F_STRING_ERROR.match(original) and _F_STRING.search(line):
        rule = "before 3.12 the braces of an f-string can't have its own quotes, a backslash, a comment or a line break"
        return f"{original}: {running}, and {rule}; write f\"{{d['k']}}\", or use a variable"
    return None


def _explain_text(error: SyntaxError, line: str) -> str | None:
    original = error.msg or ""
    if line.lstrip().startswith((">>> ", "In [", "... ")):
        return "`>>>` and `In [1]:` are prompts, not Python: write the code without them"
    place = max(0, (error.offset or 1) - 1)
    if "line continuation character" in original and line[place : place + 2].strip("\\")[:1] in ("n", "t"):
        return f"{original}: the code has a backslash and a letter where a line break must be; send real line breaks"
    return None
