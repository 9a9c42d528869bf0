"""The navigation of the documentation site, read from docs/README.md: its sections and their links, in their order."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

INDEX: Final = "docs/README.md"
"""The page that lists all others. A test of the links fails if it misses one."""
_REFERENCE: Final = "Reference"
_LINK: Final = re.compile(r"\[([^\]]+)\]\(([^)#\s]+\.md)\)")
_PROJECT: Final = (
    ("All pages", INDEX),
    ("Changelog", "CHANGELOG.md"),
    ("Contributing", "CONTRIBUTING.md"),
    ("Security reports", "SECURITY.md"),
    ("Maintainers", "MAINTAINERS.md"),
)


@dataclass(frozen=True)
class Section:
    """Pages of the navigation below one title."""

    title: str
    pages: tuple[tuple[str, str], ...]
    """Title and path of each, from the root of the repository."""


def read_navigation(root: Path, made: Mapping[str, str]) -> list[Section]:
    """Read the sections of the index, and add the pages about the project and those that are made for the site.

    `made` has the texts of the latter by their paths. They are the end of the section `Reference`.
    """
    head, *parts = re.split(r"(?m)^## ", (root / INDEX).read_text())
    del head
    sections = []
    for part in parts:
        title, _, body = part.partition("\n")
        items = re.findall(r"(?m)^- .*(?:\n  .*)*", body)
        pages = [(name.strip("`"), _locate(path)) for item in items for name, path in _LINK.findall(item)]
        if title == _REFERENCE:
            pages += [(text.partition("\n")[0].removeprefix("# "), path) for path, text in made.items()]
        sections.append(Section(title.removeprefix("For ").capitalize(), tuple(pages)))
    return [*sections, Section("Project", _PROJECT)]


def _locate(path: str) -> str:
    """Return the path of a link of the index from the root of the repository."""
    parts: list[str] = []
    for part in (PurePosixPath(INDEX).parent / path).parts:
        if part == "..":
            parts.pop()
        else:
            parts.append(part)
    return "/".join(parts)
