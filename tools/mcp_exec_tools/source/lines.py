"""Lines of Python source: where each of them begins, the source without its strings and comments, and fenced blocks.

The source may be invalid, so no tokenizer of Python reads it. One pass over the text takes linear time.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from mcp_exec_tools.languages import FENCES
from mcp_exec_tools.source.installers import INSTALLERS, find_installed_packages

LineStart = Literal["statement", "continued", "string"]
"""Where a line begins: at a statement, inside brackets or after a backslash, or inside a string."""

_TOKEN: Final = re.compile(r"#[^\n]*|\"\"\"|'''|[\"'()\[\]{}\n]|\\(?s:.)")
_ENDS: Final = {
    '"': re.compile(r'\\(?s:.)|["\n]'),
    "'": re.compile(r"\\(?s:.)|['\n]"),
    '"""': re.compile(r'\\(?s:.)|"""'),
    "'''": re.compile(r"\\(?s:.)|'''"),
}
_DEPTHS: Final = {**dict.fromkeys("([{", 1), **dict.fromkeys(")]}", -1)}
_NO_LINE_BREAK: Final = re.compile(r"[^\n]")
_LANGUAGE: Final = re.compile(r"\{?\.?([\w+#-]*)")
_MIN_MARKS: Final = 3


@dataclass(frozen=True, kw_only=True)
class ScannedSource:
    """Result of one pass over a source."""

    starts: tuple[LineStart, ...]
    """Where each line begins."""
    code: str
    """The source with a space for each character of a string or comment, line breaks excepted."""


def scan(source: str) -> ScannedSource:
    """Scan a source whose line breaks are newlines."""
    starts: list[LineStart] = ["statement"]
    parts: list[str] = []
    depth = position = 0
    while (match := _TOKEN.search(source, position)) is not None:
        found, end = match[0], match.end()
        parts.append(source[position : match.start()])
        if found in _ENDS:
            end = _find_end(source, found, end)
            starts.extend(["string"] * source.count("\n", match.start(), end))
        elif found in _DEPTHS:
            depth = max(0, depth + _DEPTHS[found])
        elif found in ("\n", "\\\n"):
            starts.append("statement" if found == "\n" and not depth else "continued")
        text = source[match.start() : end]
        parts.append(_NO_LINE_BREAK.sub(" ", text) if found in _ENDS or found[0] == "#" else text)
        position = end
    parts.append(source[position:])
    return ScannedSource(starts=tuple(starts), code="".join(parts))


def _find_end(source: str, quotes: str, position: int) -> int:
    """Return the end of a string that begins at a position. One without an end lasts to its line's or the file's."""
    while (match := _ENDS[quotes].search(source, position)) is not None:
        if match[0] == "\n":
            return match.start()
        if match[0] == quotes:
            return match.end()
        position = match.end()
    return len(source)


@dataclass(frozen=True, kw_only=True)
class Block:
    """A fenced block of Markdown, of backticks or tildes: the indexes of the line that opens it and of its end."""

    opening: int
    closing: int
    """The number of lines if the block is not closed."""
    language: str
    """First word after the opening fence, in lower case."""
    is_closed: bool

    @property
    def is_python(self) -> bool:
        """Whether the fence names Python."""
        return self.language in FENCES["python"]


def find_blocks(lines: Sequence[str], starts: Sequence[LineStart] | None = None) -> Iterator[Block]:
    """Yield the blocks. With `starts`, lines that begin inside a string of Python are no fences."""
    opening, marks, language = -1, "", ""
    for number, line in enumerate(lines):
        if starts is not None and starts[number] == "string":
            continue
        found = _read_fence(line)
        if found is None:
            continue
        found_marks, info = found
        if opening < 0:
            matched = _LANGUAGE.match(info)
            opening, marks, language = number, found_marks, matched[1].lower() if matched else ""
        elif found_marks.startswith(marks) and not info:
            yield Block(opening=opening, closing=number, language=language, is_closed=True)
            opening = -1
    if opening >= 0:
        yield Block(opening=opening, closing=len(lines), language=language, is_closed=False)


def join_blocks(text: str, *, language: str = "python") -> str | None:
    """Return the code of a text's closed blocks in a language, or None if it has none."""
    lines = text.splitlines()
    blocks = (block for block in find_blocks(lines) if block.language in FENCES[language] and block.is_closed)
    found = ("\n".join(lines[block.opening + 1 : block.closing]).strip("\n") for block in blocks)
    return "\n\n".join(code for code in found if code.strip()) or None


def _read_fence(line: str) -> tuple[str, str] | None:
    """Return the marks of a fence and the text after them, or None if the line is none."""
    text = line.strip()
    if not text.startswith(("```", "~~~")):
        return None
    info = text.lstrip(text[0])
    marks = text[: len(text) - len(info)]
    # An inline code span is no fence.
    return None if len(marks) < _MIN_MARKS or "`" in info else (marks, info.strip())


MAX_LISTED_LINES: Final = 5
ExplainInstall = Callable[[Sequence[str]], str]
"""Returns the sentence for code that installs packages with these names."""

_HARMLESS: Final = frozenset(
    {
        *("matplotlib", "load_ext", "reload_ext", "unload_ext", "autoreload", "aimport", "config"),
        *("precision", "xmode", "colors", "pdb", "automagic", "autocall", "autosave", "gui", "reset"),
        *("capture", "notebook", "page", "pprint", "doctest_mode", "dhist", "logstart", "logstop", "warnings"),
    }
)
_RUNNING: Final = {
    "time": "runs without a time measurement",
    "timeit": "runs once, without a time measurement",
    "prun": "runs without a profile",
    "memit": "runs without a memory measurement",
}
"""Magics whose statement runs, and what the note says about it."""
_SHELL: Final = "use Python, or subprocess.run([...]) for a program of the image"
_REPLACEMENTS: Final = {
    "cd": "write `os.chdir(path)`",
    "pwd": "write `os.getcwd()`",
    "ls": "write `os.listdir()`",
    "env": "write `os.environ[name]`",
    "set_env": "write `os.environ[name] = value`",
    "run": "write `runpy.run_path(file)`",
    "pylab": "write `import numpy as np` and `import matplotlib.pyplot as plt`",
    "who": "write `print(sorted(globals()))`",
    "writefile": "write `pathlib.Path(name).write_text(text)`",
    "file": "write `pathlib.Path(name).write_text(text)`",
    **dict.fromkeys(("bash", "sh", "script", "system", "sx", "sc"), _SHELL),
    **dict.fromkeys(("html", "markdown", "latex", "svg"), "write `show(text, media_type=...)`"),
}
_MAGIC: Final = re.compile(r"([ \t]*)(%{1,2})([A-Za-z_]\w*)(?!\w)(.*)", re.S)
_QUESTION: Final = re.compile(r"\?{1,2}[\w.*]+|[\w.]+\?{1,2}")
_FLAG: Final = re.compile(r"-[A-Za-z](\d*)")
_FLAGS_WITH_VALUE: Final = frozenset("nrpslTD")
_MAX_FLAGS: Final = 10
_TARGET: Final = re.compile(r"[\w.,\[\]]+")


@dataclass(frozen=True, kw_only=True)
class LineProblem:
    """A line that can't run, by its number, and what to write instead."""

    line: int
    message: str


@dataclass(kw_only=True)
class NotebookLines:
    """The lines of a source, with its notebook idioms replaced."""

    explain_install: ExplainInstall
    lines: list[str] = field(default_factory=list)
    problems: list[LineProblem] = field(default_factory=list)
    _notes: dict[str, list[int]] = field(default_factory=dict)

    def add(self, line: str, start: LineStart) -> None:
        """Add a line. Only one that begins a statement can be an idiom."""
        self.lines.append(self._replace(line) if start == "statement" and line.strip() else line)

    @property
    def notes(self) -> list[str]:
        """One sentence for each kind of magic that was replaced, with its lines."""
        return [f"{list_lines(numbers)}: {text}" for text, numbers in self._notes.items()]

    def _replace(self, line: str) -> str:
        number, text = len(self.lines) + 1, line.strip()
        if text[0] == "%" and (match := _MAGIC.fullmatch(line)):
            return self._replace_magic(number, match[1], match[2], match[3], match[4].strip())
        if text[0] == "!":
            self._refuse(number, f"`{text[:60]}` is a command of a shell: {self._explain_command(text.lstrip('!'))}")
        elif "?" in (text[0], text[-1]) and _QUESTION.fullmatch(text):
            name = text.strip("?*")
            self._refuse(number, f"`{text[:60]}` works only in notebooks: write `help({name[:60]})`")
        elif (assigned := find_assigned_idiom(text)) is not None:
            advice = self._explain_command(assigned.lstrip("!")) if assigned[0] == "!" else "write the expression only"
            self._refuse(number, f"`{assigned[:60]}` works only in notebooks: {advice}")
        return line

    def _replace_magic(self, number: int, indentation: str, marks: str, name: str, rest: str) -> str:
        shown = f"{marks}{name}"
        if name in _RUNNING:
            if statement := rest if name == "time" else _skip_flags(rest):
                self._note(number, f"the statement of {shown} {_RUNNING[name]}.")
                return indentation + statement
            self._note(number, f"{shown} has no effect; the code {_RUNNING[name]}.")
        elif name in _HARMLESS:
            self._note(number, f"{shown} has no effect here.")
        elif name in INSTALLERS:
            self._refuse(number, f"{shown} works only in notebooks: {self._explain_command(f'{name} {rest}')}")
        else:
            advice = _REPLACEMENTS.get(name, "write Python instead, or delete the line")
            self._refuse(number, f"{shown[:60]} works only in notebooks: {advice}")
        # An indented line may be the only one of its block.
        return f"{indentation}pass" if indentation else ""

    def _explain_command(self, command: str) -> str:
        packages = find_installed_packages(command)
        return _SHELL if packages is None else self.explain_install(packages)

    def _note(self, number: int, text: str) -> None:
        self._notes.setdefault(text, []).append(number)

    def _refuse(self, number: int, message: str) -> None:
        self.problems.append(LineProblem(line=number, message=message))


def find_assigned_idiom(statement: str) -> str | None:
    """Return the command or magic whose value a statement assigns, as in `files = !ls`."""
    target, separator, value = statement.partition("=")
    value = value.strip()
    is_idiom = bool(separator) and value[:1] in ("!", "%") and value[1:2] != "="
    return value if is_idiom and _TARGET.fullmatch(target.replace(" ", "")) else None


def list_lines(numbers: Iterable[int]) -> str:
    """Return numbers of lines as text: `Line 3`, `Lines 3, 5`."""
    listed = sorted(set(numbers))
    text = ", ".join(map(str, listed[:MAX_LISTED_LINES])) + (", ..." if len(listed) > MAX_LISTED_LINES else "")
    return f"Line {text}" if len(listed) == 1 else f"Lines {text}"


def _skip_flags(text: str) -> str:
    """Return a statement without the options of `%timeit` before it."""
    for _ in range(_MAX_FLAGS):
        match = _FLAG.match(text)
        if match is None or text[match.end() : match.end() + 1] not in ("", " ", "\t"):
            break
        needs_value = match[0][1] in _FLAGS_WITH_VALUE and not match[1]
        text = text[match.end() :].lstrip()
        if needs_value:
            text = text.partition(" ")[2].lstrip()
    return text
