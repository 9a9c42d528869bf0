"""The navigation of the documentation site, read from docs/README.md: sections, their groups and their pages, in order.

A page is an item `- [title](path): description`. The description is also that of the page's HTML, and of llms.txt.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Final

INDEX: Final = "docs/README.md"
"""The page that lists all others. A test of the links fails if it misses one."""
_REFERENCE: Final = "Reference"
_MAX_DESCRIPTION: Final = 200
"""Maximum of characters of a description. Search engines show about 160."""
_ITEM: Final = re.compile(r"(?m)^- \[([^\]]+)\]\(([^)#\s]+\.md)\)(?::\s+(.*(?:\n  .*)*))?")
_LINK: Final = re.compile(r"\[([^\]]+)\]\([^)]+\)")


@dataclass(frozen=True)
class Entry:
    """A page of the navigation."""

    title: str
    path: str
    """From the root of the repository."""
    description: str


@dataclass(frozen=True)
class Section:
    """Pages of the navigation below one title, and groups of them."""

    title: str
    pages: tuple[Entry, ...]
    groups: "tuple[Section, ...]" = ()


_PROJECT: Final = (
    Entry("All pages", INDEX, "the index of this documentation, by reader"),
    Entry("Changelog", "CHANGELOG.md", "what changed in each release"),
    Entry("Contributing", "CONTRIBUTING.md", "how to change mcp-exec: tests, rules, where things live"),
    Entry("Security reports", "SECURITY.md", "how to report a vulnerability"),
    Entry("Maintainers", "MAINTAINERS.md", "who decides, and who makes releases"),
)


def read_navigation(root: Path, made: Mapping[str, str]) -> list[Section]:
    """Read the sections of the index, and add the pages about the project and those that are made for the site.

    `made` has the texts of the latter by their paths. They are the end of the section `Reference`.
    """
    read = _read_sections((root / INDEX).read_text(), "##")
    added = tuple(
        Entry(text.partition("\n")[0].removeprefix("# "), path, describe(text)) for path, text in made.items()
    )
    sections = [replace(each, pages=each.pages + added) if each.title == _REFERENCE else each for each in read]
    return [*sections, Section("Project", _PROJECT)]


def list_entries(sections: Iterable[Section]) -> list[Entry]:
    """Return the pages of sections and of their groups, in order."""
    return [entry for _, pages in list_groups(sections) for entry in pages]


def list_groups(sections: Iterable[Section]) -> Iterator[tuple[str, tuple[Entry, ...]]]:
    """Return the pages of each section and each group, below a title that names both."""
    for section in sections:
        if section.pages:
            yield section.title, section.pages
        for group in section.groups:
            yield f"{section.title}: {group.title.lower()}", group.pages


def _read_sections(text: str, mark: str) -> list[Section]:
    """Read the sections whose headings have this mark, and their groups, whose headings are one level deeper."""
    _, *parts = re.split(rf"(?m)^{mark} ", text)
    sections = []
    for part in parts:
        title, _, body = part.partition("\n")
        head = body.partition(f"\n{mark}# ")[0]
        groups = tuple(_read_sections(body, f"{mark}#"))
        sections.append(Section(title.removeprefix("For ").capitalize(), tuple(_read_entries(head)), groups))
    return sections


def _read_entries(text: str) -> Iterator[Entry]:
    for title, path, described in _ITEM.findall(text):
        plain = _LINK.sub(r"\1", described).replace("`", "")
        yield Entry(title.strip("`"), _locate(path), " ".join(plain.split()))


def _locate(path: str) -> str:
    """Return the path of a link of the index from the root of the repository."""
    parts: list[str] = []
    for part in (PurePosixPath(INDEX).parent / path).parts:
        if part == "..":
            parts.pop()
        else:
            parts.append(part)
    return "/".join(parts)


def describe(text: str) -> str:
    """Return the first paragraph of a page as plain text, cut after a sentence if it is long."""
    blocks = (block.strip() for block in re.split(r"\n\s*\n", re.sub(r"(?m)^(?:#|<!--).*$", "\n", text)))
    paragraphs = [block for block in blocks if block and not re.match(r"[|<`!>~-]| {4}|\d+\. ", block)]
    if not paragraphs:
        return "".join(re.findall(r"(?m)^# (.+)$", text)[:1])
    plain = " ".join(re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", paragraphs[0]).replace("`", "").split())
    if len(plain) <= _MAX_DESCRIPTION:
        return plain
    head = plain[: _MAX_DESCRIPTION + 1]
    sentences = head.rpartition(". ")[0]
    return f"{sentences}." if sentences else head[:-2].rpartition(" ")[0] + " …"
