"""Repair of code that is no Python as it was sent: Markdown fences, indentation and notebook magics are removed.

Each line keeps its number. Valid Python is never changed, because a repair begins with the error of a parser.
"""

import ast
import re
import sys
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
from mcp_exec_tools.source.syntax_hints import explain_syntax_error

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
