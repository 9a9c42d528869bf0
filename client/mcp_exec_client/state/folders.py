"""Local folders: which files they have, and where files of a workspace go."""

import asyncio
import hashlib
import json
import os
import re
import tarfile
import tempfile
import unicodedata
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from fnmatch import translate
from pathlib import Path
from typing import Final

from mcp_exec_tools.workspace_files import check_path

EXCLUDED: Final = frozenset({".git", ".hg", ".svn", ".venv", "__pycache__", "node_modules"})
"""Names of files and folders that a synchronization leaves out by default, in both directions."""
_DEVICES: Final = ("aux", "con", "conin$", "conout$", "nul", "prn", "com[0-9]", "lpt[0-9]")
UNSAFE: Final = EXCLUDED | {
    # hidden: settings of shells, git, editors, debuggers, agents, managers of packages and environments
    ".*",
    # the same on Windows, and of irb
    "[_$]*rc",
    "irbrc",
    # names of Windows that stand for others: short ones such as GIT~1, drives, devices
    "*~[0-9]*",
    "?:*",
    *_DEVICES,
    *(f"{device}.*" for device in _DEVICES),
    # of git: without it no folder is a repository, whose configuration names commands
    "HEAD",
    # of Python
    "*._pth",
    "*.pth",
    "conftest.py",
    "pyvenv.cfg",
    "sitecustomize.py",
    "usercustomize.py",
    # of editors, and instructions that agents follow
    "*.code-workspace",
    "*.sublime-project",
    "agents.md",
    "claude*.md",
    "gemini.md",
    # of managers of environments
    "mise.*toml",
    # of desktops
    "*.desktop",
    "*.library-ms",
    "*.lnk",
    "*.scf",
    "*.url",
    "autorun.inf",
    "desktop.ini",
}
"""Names that are not written to a local folder by default. Programs on the machine of the user execute what is in such
files because they are there, and code in a sandbox may have written them. No such list is complete."""
_REPOSITORY: Final = frozenset({"head", "objects", "refs"})
_PART_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class LocalFile:
    """A regular file below a folder."""

    path: str
    """Path relative to the folder, with `/` between names."""
    source: Path
    size: int
    sha256: str
    executable: bool


async def scan_folder(folder: Path, *, exclude: Collection[str]) -> dict[str, LocalFile]:
    """Return the regular files below a folder by path. Raises ValueError for a name that no workspace can have.

    Links are left out: what they point to may be outside the folder.
    """
    found = await asyncio.to_thread(lambda: list(_walk(folder, frozenset(exclude))))
    return {file.path: file for file in sorted(found, key=lambda file: file.path)}


class NameFilter:
    """Patterns of names that a synchronization leaves out. A star stands for any characters.

    Names are compared as file systems see them that ignore case or some characters: Windows dots and blanks at the end,
    macOS characters that are not visible. What follows a colon is a stream of the same file in Windows.
    """

    def __init__(self, patterns: Collection[str]) -> None:
        parts = (translate(_fold(pattern)) for pattern in sorted(patterns))
        self._pattern = re.compile("|".join(parts)) if patterns else None

    def matches(self, path: str) -> bool:
        """Return whether a name of the path is excluded."""
        pattern = self._pattern
        return pattern is not None and any(
            pattern.match(_fold(form)) for name in path.split("/") for form in {name, name.partition(":")[0]} if form
        )


def find_repositories(paths: Iterable[str]) -> frozenset[str]:
    """Return the folders that git takes for repositories though they have no `.git`; "" is the outer one.

    A command of git in such a folder, also that of a shell's prompt, executes what `config` there names.
    """
    entries: dict[str, set[str]] = {}
    for path in paths:
        names = path.split("/")
        for depth, name in enumerate(names):
            if (folded := _fold(name)) in _REPOSITORY:
                entries.setdefault("/".join(names[:depth]), set()).add(folded)
    return frozenset(folder for folder, found in entries.items() if found == _REPOSITORY)


def is_within(path: str, folders: Collection[str]) -> bool:
    """Return whether one of the folders, or a folder inside it, has the file."""
    names = path.split("/")
    return any("/".join(names[:depth]) in folders for depth in range(len(names)))


def _fold(name: str) -> str:
    visible = "".join(each for each in unicodedata.normalize("NFKC", name) if unicodedata.category(each) != "Cf")
    return visible.casefold().rstrip(". ")


def _walk(root: Path, exclude: frozenset[str]) -> Iterator[LocalFile]:
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(set(folders) - exclude)
        for name in sorted(set(names) - exclude):
            source = Path(folder) / name
            if source.is_symlink() or not source.is_file():
                continue
            path = source.relative_to(root).as_posix()
            check_path(path)
            state = source.stat()
            yield LocalFile(
                path=path,
                source=source,
                size=state.st_size,
                sha256=_digest(source),
                executable=bool(state.st_mode & 0o100),
            )


def _digest(source: Path) -> str:
    digest = hashlib.sha256()
    with source.open("rb") as file:
        while part := file.read(_PART_BYTES):
            digest.update(part)
    return digest.hexdigest()


@asynccontextmanager
async def pack_changes(files: Sequence[LocalFile], *, delete: Sequence[str]) -> AsyncIterator[Path]:
    """Yield a change set, a line of JSON and a tar archive, which is removed at the end of the context."""
    with tempfile.TemporaryDirectory(prefix="mcp-exec-") as folder:
        packed = Path(folder) / "changes"
        await asyncio.to_thread(_pack, files, delete, packed)
        yield packed


def _pack(files: Sequence[LocalFile], delete: Sequence[str], packed: Path) -> None:
    with packed.open("wb") as target:
        target.write(json.dumps({"delete": list(delete)}).encode() + b"\n")
        with tarfile.open(fileobj=target, mode="w", format=tarfile.PAX_FORMAT) as tar:
            _add(files, tar)


def _add(files: Sequence[LocalFile], tar: tarfile.TarFile) -> None:
    for file in files:
        with file.source.open("rb") as content:
            entry = tarfile.TarInfo(file.path)
            entry.size = os.fstat(content.fileno()).st_size
            entry.mode = 0o755 if file.executable else 0o644
            tar.addfile(entry, content)


class LocalNames:
    """Paths below a folder that must be different files there."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._paths: dict[str, str] = {}

    def claim(self, path: str) -> None:
        """Raise ValueError if a path that was claimed before is the same file, by case or by forms of its letters."""
        other = self._paths.setdefault(unicodedata.normalize("NFC", path).casefold(), path)
        ours, theirs = self._root / path, self._root / other
        if (
            other != path
            and os.path.lexists(ours)
            and os.path.lexists(theirs)
            and os.path.samestat(ours.lstat(), theirs.lstat())
        ):
            raise ValueError(f"{other!r} and {path!r} are one file in {self._root}; read them one by one")


def find_target(root: Path, path: str) -> Path:
    """Return where a file of a workspace goes, and make its folder. Raises ValueError if that is outside the folder.

    A workspace's names are checked here, too, and a local link never leads a file out of the folder.
    """
    check_path(path)
    root.mkdir(parents=True, exist_ok=True)
    inside = root.resolve()
    folder = inside
    *folders, last = path.split("/")
    for name in folders:
        folder = join_name(folder, name)
        folder.mkdir(exist_ok=True)
    return join_name(folder, last)


def join_name(folder: Path, name: str) -> Path:
    """Return the path of a file or folder in a folder. Raises ValueError if the name leads elsewhere, or is a link."""
    target = folder / name
    if (target.parent, target.name) != (folder, name):  # in Windows, a drive is no name in a folder
        raise ValueError(f"{name!r} is no name of a file in {folder}")
    if target.is_symlink():
        raise ValueError(f"{target} is a link; files are not written through links")
    return target
