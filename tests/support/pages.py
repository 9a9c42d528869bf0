"""Commands and programs of the documentation's pages, with the output that the pages show."""

import ast
import asyncio
import inspect
import re
from dataclasses import dataclass
from functools import partial
from io import StringIO
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_HERE_DOCUMENT = re.compile(r"<<'?(\w+)'?")


@dataclass(frozen=True)
class Step:
    """A command that a reader types, and the lines that the page shows after it."""

    command: str
    shown: tuple[str, ...]

    @property
    def columns(self) -> list[str]:
        """The column titles of a shown table, empty if the page shows something else or nothing."""
        titles = re.split(r"\s{2,}", self.shown[0].strip()) if self.shown else []
        return titles if all(title == title.upper() for title in titles) else []


def steps(page: str) -> list[Step]:
    """Return the commands in the page's blocks of type `console`, in their order."""
    return [step for block in _BLOCK.findall((DOCS / page).read_text()) for step in split_steps(block)]


def split_steps(block: str) -> list[Step]:
    """Return the commands of one block, in their order."""
    found: list[list[str]] = []
    lines = iter(block.splitlines())
    for line in lines:
        if line.startswith("$ "):
            found.append([line.removeprefix("$ ")])
            if end := _HERE_DOCUMENT.search(line):
                for inner in lines:
                    found[-1][0] += f"\n{inner}"
                    if inner == end[1]:
                        break
        else:
            found[-1].append(line)
    return [Step(command, tuple(shown)) for command, *shown in found]


@dataclass(frozen=True)
class Program:
    """An example in Python, and the lines that it prints, which the page has as comments `# -> LINE`."""

    code: str
    shown: tuple[str, ...]
    line: int
    """Its place in the page."""

    def run(self) -> list[str]:
        """Run the program, whose top level may have `await`, in an event loop of its own; return what it prints."""
        printed = StringIO()
        names = {"__name__": "__main__", "print": partial(print, file=printed)}
        compiled = compile("\n" * self.line + self.code, "<page>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        result = eval(compiled, names)
        if inspect.iscoroutine(result):
            asyncio.run(result)
        return printed.getvalue().splitlines()


def programs(page: str) -> list[Program]:
    """Return the page's blocks of type `python`, in their order."""
    text = (DOCS / page).read_text()
    found = []
    for match in _PYTHON.finditer(text):
        shown = tuple(re.findall(r"^ *# -> ?(.*)$", match[1], re.MULTILINE))
        found.append(Program(match[1], shown, text.count("\n", 0, match.start(1))))
    return found
