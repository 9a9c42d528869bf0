"""Lines of notebooks that are not Python: magics, commands of a shell, questions about a name."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from mcp_exec_tools.source.installers import INSTALLERS, find_installed_packages
from mcp_exec_tools.source.lines import LineStart

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
