"""Libraries of the image: the distributions that code can import, read from their metadata.

They are read without `importlib.metadata`, whose modules would stay in the memory of an idle sandbox.
"""

import asyncio
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

MAX_LIBRARIES = 100
"""The most libraries in the answer: of more, those with the most modules."""
MAX_IMPORTS = 8
MAX_NAME_CHARACTERS = 100
MAX_VERSION_CHARACTERS = 64
_MAX_ENTRIES = 20_000
"""Entries of a folder that are read at most."""
_MAX_READ = 500
"""Distributions of a folder that are read at most."""
_MAX_LINES = 50_000
_MAX_LINE_CHARACTERS = 1024
_METADATA = re.compile(
    r"([A-Za-z0-9][A-Za-z0-9._-]*?)-([0-9][0-9A-Za-z!+._]*)(?:-py[0-9.]+)?\.(?:dist|egg)-info", re.ASCII
)
_IMPORT = re.compile(rf"[A-Za-z][A-Za-z0-9_]{{0,{MAX_NAME_CHARACTERS - 1}}}", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class InstalledLibrary:
    """A distribution, and the names that code imports of it."""

    name: str
    version: str
    imports: tuple[str, ...]
    modules: int
    """Number of its modules; libraries are ordered by it."""

    def to_message(self) -> dict[str, Any]:
        """Return it as a part of the answer."""
        return {"name": self.name, "version": self.version, "imports": list(self.imports)}


def find_folders() -> list[str]:
    """Return the folders of the import path, except for the standard library's and the sandbox's own."""
    own = {os.path.dirname(os.__file__), __file__.partition("/mcp_exec_sandbox/")[0]}
    return [folder for folder in dict.fromkeys(sys.path) if folder and folder not in own and os.path.isdir(folder)]


async def read_libraries(folders: Sequence[str]) -> list[InstalledLibrary]:
    """Return the libraries of some folders, the largest first. Other tasks run between two of them."""
    found: dict[str, InstalledLibrary] = {}
    for folder in folders:
        for path in islice(_find_metadata(folder), _MAX_READ):
            library = _read_library(path)
            if library is not None:
                found.setdefault(library.name, library)
            await asyncio.sleep(0)
    ordered = sorted(found.values(), key=lambda library: (-library.modules, library.name))
    return ordered[:MAX_LIBRARIES]


def _find_metadata(folder: str) -> Iterator[str]:
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in islice(entries, _MAX_ENTRIES)]
    except OSError:
        return
    for name in sorted(names):
        if name.endswith("-info") and _METADATA.fullmatch(name):
            yield f"{folder}/{name}"


def _read_library(path: str) -> InstalledLibrary | None:
    """Return the library of a folder of metadata. None if nothing of it can be imported."""
    folder, _, metadata = path.rpartition("/")
    match = _METADATA.fullmatch(metadata)
    assert match is not None  # noqa: S101 - found by it
    name, version = re.sub(r"[-_.]+", "-", match[1]).strip("-").lower(), match[2]
    if len(name) > MAX_NAME_CHARACTERS or len(version) > MAX_VERSION_CHARACTERS:
        return None
    counts = _count_modules(path) or _read_top_level(path) or _guess_import(folder, name)
    if not counts:
        return None
    imports = tuple(each for each, _ in counts.most_common(MAX_IMPORTS))
    return InstalledLibrary(name=name, version=version, imports=imports, modules=counts.total())


def _count_modules(path: str) -> Counter[str]:
    """Return the number of modules below each name that can be imported, by the list of the installed files."""
    counts: Counter[str] = Counter()
    for line in _read_lines(f"{path}/RECORD"):
        file = line.partition(",")[0]
        first, slash, _ = file.partition("/")
        if not file.endswith((".py", ".so")):
            continue
        name = first if slash else first.partition(".")[0]
        if _IMPORT.fullmatch(name):
            counts[name] += 1
    return counts


def _read_top_level(path: str) -> Counter[str]:
    """Return the names that the metadata of Debian's packages and of older tools has."""
    names = (line.strip() for line in islice(_read_lines(f"{path}/top_level.txt"), MAX_IMPORTS))
    return Counter(name for name in names if _IMPORT.fullmatch(name))


def _guess_import(folder: str, name: str) -> Counter[str]:
    """Return the library's own name if there is such a module."""
    module = name.replace("-", "_")
    is_there = any(os.path.exists(f"{folder}/{module}{end}") for end in ("/__init__.py", ".py"))
    return Counter([module] if is_there and _IMPORT.fullmatch(module) else [])


def _read_lines(path: str) -> Iterator[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            for _ in range(_MAX_LINES):
                line = file.readline(_MAX_LINE_CHARACTERS)
                if not line:
                    return
                yield line
    except OSError:
        return
