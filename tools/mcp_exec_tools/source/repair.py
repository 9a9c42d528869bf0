"""Repair of code that is no Python as it was sent: Markdown fences, indentation and notebook magics are removed.

Each line keeps its number. Valid Python is never changed, because a repair begins with the error of a parser.
"""

import ast
import re
import sys
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from mcp_exec_tools.source.installers import INSTALL_SENTENCE
from mcp_exec_tools.source.lines import (
    Block,
    ExplainInstall,
    LineProblem,
    LineStart,
    NotebookLines,
    find_blocks,
    list_lines,
    scan,
)

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


Parse = Callable[[str], ast.Module]
"""Parses a source. Raises SyntaxError."""

_BREAKS: Final = re.compile(r"\r\n?")
_MARKS: Final = "\ufeff\u200b\u2060"
"""Invisible characters before the first line that have no meaning."""
_SPAN: Final = re.compile(r"(`+)([^`\n]+)\1")
_SPAN_LANGUAGE: Final = re.compile(r"(?:python3?|py)[ \t]+")


@dataclass(frozen=True, kw_only=True)
class RepairedSource:
    """Python that was made of what was sent."""

    code: str
    tree: ast.Module
    changes: tuple[str, ...]
    """What was changed, one sentence each."""


@dataclass(frozen=True, kw_only=True)
class _Draft:
    """Lines on their way to Python, with the sentences and problems so far."""

    lines: list[str]
    parts: list[tuple[int, int]]
    """Ranges of lines that have an indentation of their own."""
    changes: list[str]
    problem: LineProblem | None = None


def repair(
    source: str,
    error: SyntaxError,
    *,
    parse: Parse,
    explain_install: ExplainInstall = lambda packages: INSTALL_SENTENCE,
    version: tuple[int, int] = sys.version_info[:2],
) -> RepairedSource:
    """Return the Python of a source that raised `error`.

    Raises:
        SyntaxError: it can't be made Python. The message says what to write instead, if that is known.
    """
    text = _BREAKS.sub("\n", source.lstrip(_MARKS))
    draft = _remove_fences(text, parse)
    if draft.problem is None:
        draft = _replace_idioms(draft, explain_install)
    code = "\n".join(draft.lines)
    if draft.problem is not None:
        raise _build_error(draft.problem, error, text)
    if code == source:
        raise explain_syntax_error(error, source, version=version)
    try:
        return RepairedSource(code=code, tree=parse(code), changes=tuple(draft.changes))
    except SyntaxError as left:
        raise explain_syntax_error(left, code, version=version) from None


def _remove_fences(text: str, parse: Parse) -> _Draft:
    """Return the lines of the Python blocks, or all lines if there is no block."""
    lines, starts = text.split("\n"), scan(text).starts
    if (match := _SPAN.fullmatch(text.strip())) is not None:
        first = next(number for number, line in enumerate(lines) if line.strip())
        lines[first] = _SPAN_LANGUAGE.sub("", match[2].strip(), count=1)
        change = "The Markdown marks around the code were removed."
        return _Draft(lines=lines, parts=[(0, len(lines))], changes=[change])
    blocks = list(find_blocks(lines, starts))
    if not blocks:
        return _Draft(lines=lines, parts=[(0, len(lines))], changes=[])
    chosen, problem = _choose_blocks(lines, blocks, parse)
    kept = {number for start, end in chosen for number in range(start, end)}
    known = kept.union(*((block.opening, block.closing) for block in blocks))
    lost = [number + 1 for number, line in enumerate(lines) if line.strip() and number not in known]
    what = "The Markdown fence was" if len(chosen) == 1 else f"The Markdown fences of {len(chosen)} blocks were"
    left = f", and the text outside did not run ({list_lines(lost).lower()})" if lost else ""
    return _Draft(
        lines=[line if number in kept else "" for number, line in enumerate(lines)],
        parts=chosen,
        changes=[f"{what} removed{left}."],
        problem=problem,
    )


def _choose_blocks(
    lines: Sequence[str], blocks: Sequence[Block], parse: Parse
) -> tuple[list[tuple[int, int]], LineProblem | None]:
    """Return the ranges of lines that are Python: blocks that say so, else blocks without a language."""
    first = blocks[0]
    if not first.language and not first.is_closed:
        # It may be the end of code whose opening fence is missing.
        has_code_after = any(line.strip() for line in lines[first.opening + 1 :])
        if not has_code_after or _is_code(lines[: first.opening], parse):
            return [(0, first.opening)], None
    chosen = [block for block in blocks if block.is_python] or [block for block in blocks if not block.language]
    if not chosen:
        language = first.language[:40]
        message = f"the Markdown fence names {language}, and a sandbox runs Python: write Python, without a fence"
        return [], LineProblem(line=first.opening + 1, message=message)
    return [(block.opening + 1, block.closing) for block in chosen], None


def _is_code(lines: Sequence[str], parse: Parse) -> bool:
    """Return whether there is Python in lines."""
    try:
        return bool(parse("\n".join(lines)).body)
    except (SyntaxError, ValueError):
        return False


def _replace_idioms(draft: _Draft, explain_install: ExplainInstall) -> _Draft:
    starts = scan("\n".join(draft.lines)).starts
    lines, changes = list(draft.lines), list(draft.changes)
    for start, end in draft.parts:
        if width := _dedent(lines, starts, start, end):
            size = "1 space" if width == 1 else f"{width} spaces"
            changes.append(f"The indentation that all lines had ({size}) was removed.")
    notebook = NotebookLines(explain_install=explain_install)
    for line, line_start in zip(lines, starts, strict=True):
        notebook.add(line, line_start)
    problem = None
    if notebook.problems:
        first, *others = notebook.problems
        also = f" (also {list_lines(other.line for other in others).lower()})" if others else ""
        problem = LineProblem(line=first.line, message=first.message + also)
    return _Draft(lines=notebook.lines, parts=draft.parts, changes=[*changes, *notebook.notes], problem=problem)


def _dedent(lines: list[str], starts: Sequence[LineStart], begin: int, end: int) -> int:
    """Remove the indentation that all statements of a range have in common, and return its width.

    Lines that begin inside a string stay as they are. Comments and continued lines may be indented less.
    """
    statements = [
        lines[number]
        for number in range(begin, end)
        if starts[number] == "statement" and lines[number].strip() and lines[number].lstrip()[0] != "#"
    ]
    margins = [_get_margin(line) for line in statements]
    margin = _get_common_start(min(margins), max(margins)) if margins else ""
    for number in range(begin, end) if margin else ():
        if starts[number] != "string":
            line = lines[number]
            lines[number] = line[len(_get_common_start(line, margin)) :]
    return len(margin)


def _get_margin(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


def _get_common_start(first: str, second: str) -> str:
    """Return the common beginning of two texts. That of the least and the greatest of texts is common to all."""
    count = next((place for place, pair in enumerate(zip(first, second, strict=False)) if pair[0] != pair[1]), None)
    return first[: min(len(first), len(second)) if count is None else count]


def _build_error(problem: LineProblem, error: SyntaxError, text: str) -> SyntaxError:
    line = text.split("\n")[problem.line - 1]
    return SyntaxError(problem.message, (error.filename, problem.line, 1, line))
