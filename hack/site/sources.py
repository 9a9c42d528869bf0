"""The pages of the documentation site: docs/, and whatever their links lead to, at the same paths as in the repository.

Links between Markdown files work as they are. A link to a file of code leads to a page that shows it, and a link to a
folder to its README.md, or to a page that lists its files.
"""

import os
import posixpath
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

HOME: Final = "README.md"
MERMAID: Final = "assets/mermaid"
"""Folder of the script that draws diagrams, and of its licence. Only pages with a diagram load it."""
SCRIPT: Final = "mermaid.tiny.js"
_LINK: Final = re.compile(r"(?<=\]\()([^)#\s]+)")
_FENCE: Final = re.compile(r"(?ms)^( *)```.*?^\1```$")
_LANGUAGES: Final = {".py": "python", ".sh": "bash", ".yml": "yaml", ".yaml": "yaml", ".json": "json", ".toml": "toml"}
_MAX_SHOWN: Final = 200_000
"""Bytes of a file that a page shows. Larger ones are lock files."""


class Sources:
    """Copies pages into a folder, and follows their links until nothing is missing."""

    def __init__(self, *, root: Path, folder: Path, made: Mapping[str, str]) -> None:
        """Copy to `folder`. `made` has the texts of pages that the repository does not have, by their paths."""
        self._root = root
        self._folder = folder
        self._made = made
        self._tracked = set(_list_tracked(root))
        self._waiting: list[str] = []
        self._done: set[str] = set()

    def copy(self, *paths: str) -> None:
        """Copy these files and all that their links lead to."""
        self._waiting += [path for path in self._tracked if path.startswith("docs/")]
        self._waiting += paths
        while self._waiting:
            path = self._waiting.pop()
            if path not in self._done:
                self._done.add(path)
                self._write(path)

    def _write(self, path: str) -> None:
        source, target = self._root / path, self._folder / path
        if path.endswith(".md") or path.startswith("docs/"):
            target.parent.mkdir(parents=True, exist_ok=True)
        if path.endswith(".md"):
            text = self._made.get(path) or self._read_page(path)
            target.write_text(self._convert(path, text))
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

    def _list_folder(self, folder: str) -> str:
        """Build the page of a folder without a README.md."""
        names = sorted(path.removeprefix(f"{folder}/") for path in self._tracked if path.startswith(f"{folder}/"))
        return "\n".join([f"# {folder}", "", *(f"- [{name}]({name})" for name in names), ""])

    def _convert(self, path: str, text: str) -> str:
        """Return a page with links that the site has, and with the script for its diagrams."""
        has_diagram = "```mermaid" in text
        text = outside_fences(text, lambda part: _LINK.sub(lambda match: self._follow(path, match[0]), part))
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


def unhide(path: str) -> str:
    """Return a path without the dots that hide files, which the site would leave out."""
    return re.sub(r"(^|/)\.(?=\w)", r"\1", path)


def show_file(path: str, text: str) -> str:
    """Build the page that shows a file of code. Search leaves it out."""
    fence = "`" * (3 + max((len(found) for found in re.findall("`+", text)), default=0))
    shown = text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "\n[...]"
    language = _LANGUAGES.get(os.path.splitext(path)[1], "text")
    return f"---\nsearch:\n  exclude: true\n---\n# {path}\n\n{fence}{language}\n{shown.rstrip()}\n{fence}\n"


def _list_tracked(root: Path) -> list[str]:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    found = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout.splitlines()
    return [path for path in found if (root / path).is_file()]
