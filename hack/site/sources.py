"""The pages of the documentation site: docs/, and whatever their links lead to, at the same paths as in the repository.

Links between Markdown files work as they are. A link to a file of code leads to a page that shows it, and a link to a
folder to its README.md, or to a page that lists its files. A link whose text is a file name gets the title of its page.
"""

import json
import os
import posixpath
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from hack.site.navigation import Entry, describe

HOME: Final = "README.md"
MERMAID: Final = "assets/mermaid"
"""Folder of the script that draws diagrams, and of its licence. Only pages with a diagram load it."""
SCRIPT: Final = "mermaid.tiny.js"
_LINK: Final = re.compile(r"(?<=\]\()([^)#\s]+)")
_NAMED: Final = re.compile(r"\[`?([\w./-]+\.md)`?\]\(([^)#\s]+)(#[^)\s]*)?\)")
_FENCE: Final = re.compile(r"(?ms)^( *)```.*?^\1```$")
_LANGUAGES: Final = {".py": "python", ".sh": "bash", ".yml": "yaml", ".yaml": "yaml", ".json": "json", ".toml": "toml"}
_MAX_SHOWN: Final = 200_000
"""Bytes of a file that a page shows. Larger ones are lock files."""


class Sources:
    """Copies pages into a folder, and follows their links until nothing is missing."""

    def __init__(self, *, root: Path, folder: Path, entries: Iterable[Entry], made: Mapping[str, str]) -> None:
        """Copy to `folder`. `made` has the texts of pages that the repository does not have, by their paths."""
        self._root = root
        self._folder = folder
        self._made = made
        self._entries = {entry.path: entry for entry in entries}
        self._tracked = set(_list_tracked(root))
        self._waiting: list[str] = []
        self._done: set[str] = set()

    def copy(self) -> list[str]:
        """Copy the pages of the navigation and all that links lead to. Return the pages outside of the navigation."""
        self._waiting += [path for path in self._tracked if path.startswith("docs/")]
        self._waiting += [HOME, *self._entries]
        while self._waiting:
            path = self._waiting.pop()
            if path not in self._done:
                self._done.add(path)
                self._write(path)
        pages = (str(path.relative_to(self._folder)) for path in self._folder.rglob("*.md"))
        return sorted(set(pages) - {HOME, *self._entries})

    def _write(self, path: str) -> None:
        source, target = self._root / path, self._folder / path
        if path.endswith(".md") or path.startswith("docs/"):
            target.parent.mkdir(parents=True, exist_ok=True)
        if path.endswith(".md"):
            text = self._made.get(path) or self._read_page(path)
            target.write_text(write_head({"description": self._describe(path, text)}) + self._convert(path, text))
        elif path.startswith("docs/"):
            shutil.copyfile(source, target)
        else:
            self._write_shown(path, source.read_text())

    def _read_page(self, path: str) -> str:
        return (self._root / path).read_text() if path in self._tracked else self._list_folder(posixpath.dirname(path))

    def _write_shown(self, path: str, text: str) -> None:
        target = self._folder / unhide(f"{path}.md")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(show_file(path, text))

    def _describe(self, path: str, text: str) -> str:
        if entry := self._entries.get(path):
            return f"{entry.title}: {entry.description}"
        return describe(text) if path in self._tracked else f"Files of {posixpath.dirname(path)} in the repository"

    def _find_title(self, path: str) -> str | None:
        """Return the title of a page: that of the navigation, or its first heading."""
        if entry := self._entries.get(path):
            return entry.title
        heading = re.search(r"(?m)^# (.+)$", (self._root / path).read_text()) if path in self._tracked else None
        return heading[1] if heading else None

    def _list_folder(self, folder: str) -> str:
        """Build the page of a folder without a README.md."""
        names = sorted(path.removeprefix(f"{folder}/") for path in self._tracked if path.startswith(f"{folder}/"))
        return "\n".join([f"# {folder}", "", *(f"- [{name}]({name})" for name in names), ""])

    def _convert(self, path: str, text: str) -> str:
        """Return a page with links that the site has, and with the script for its diagrams."""
        has_diagram = "```mermaid" in text
        text = outside_fences(
            text,
            lambda part: _LINK.sub(
                lambda match: self._follow(path, match[0]), name_pages(path, part, self._find_title)
            ),
        )
        if has_diagram:
            script = posixpath.relpath(f"{MERMAID}/{SCRIPT}", posixpath.dirname(path) or ".")
            text += f'\n<script src="{script}"></script>\n'
        return text

    def _follow(self, page: str, link: str) -> str:
        if link.startswith(("http:", "https:", "mailto:")):
            return link
        target = posixpath.normpath(posixpath.join(posixpath.dirname(page), link))
        if (self._root / target).is_dir():
            target, link = posixpath.join(target, HOME), posixpath.join(link, HOME)
        self._waiting.append(target)
        is_shown = not target.startswith("docs/") and not target.endswith(".md")
        return unhide(f"{link}.md") if is_shown else link


def outside_fences(text: str, change: Callable[[str], str]) -> str:
    """Change what stands outside of the blocks of code."""
    parts, end = [], 0
    for fence in _FENCE.finditer(text):
        parts += [change(text[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, change(text[end:])])


def name_pages(page: str, text: str, find_title: Callable[[str], str | None]) -> str:
    """Give links of a page whose text is the name of a Markdown file the title of that file."""

    def name(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(page), match[2]))
        title = find_title(path) if path.endswith(".md") else None
        return f"[{title}]({match[2]}{match[3] or ''})" if title else match[0]

    return _NAMED.sub(name, text)


def write_head(values: dict[str, object]) -> str:
    """Write the head of a page, which the generator of the site reads."""
    return "---\n" + "".join(f"{name}: {json.dumps(value)}\n" for name, value in values.items()) + "---\n"


def unhide(path: str) -> str:
    """Return a path without the dots that hide files, which the site would leave out."""
    return re.sub(r"(^|/)\.(?=\w)", r"\1", path)


def show_file(path: str, text: str) -> str:
    """Build the page that shows a file of code. Search leaves it out."""
    fence = "`" * (3 + max((len(found) for found in re.findall("`+", text)), default=0))
    shown = text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "\n[...]"
    language = _LANGUAGES.get(os.path.splitext(path)[1], "text")
    head = write_head({"description": f"The file {path} of the repository", "search": {"exclude": True}})
    return f"{head}# {path}\n\n{fence}{language}\n{shown.rstrip()}\n{fence}\n"


def _list_tracked(root: Path) -> list[str]:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    found = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout.splitlines()
    return [path for path in found if (root / path).is_file()]
