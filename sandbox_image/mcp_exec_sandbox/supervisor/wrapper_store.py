"""Store of MCP servers' wrappers: written while the pod is idle, shown to the code that may use them.

The wrappers lie in a hidden folder of the workspace as whole packages, those in Python with their bytecode, so that
showing a server is one rename. What an execution may not use is removed while it runs. A compressed copy in memory, out
of the code's reach, restores them for the owner's next execution.
"""

import asyncio
import contextlib
import importlib.util
import json
import marshal
import os
import py_compile
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcp_exec_sandbox.protocol import CATALOG_FILE, SERVERS_FOLDER, Language
from mcp_exec_sandbox.supervisor.json_object import InvalidRequest, parse_body, parse_object
from mcp_exec_tools.names import identifier
from mcp_exec_tools.patterns import ToolPatterns

MAX_FILES = 20_000
_CATALOG = "catalog.json"
_PART = r"\w[\w.-]{0,150}"  # letters of any script, as in identifiers
_PATH = re.compile(rf"{_PART}(/{_PART}){{0,3}}")
HIDDEN_FOLDER = ".mcp-exec"
FILES_PER_TURN = 20
"""Files written or removed before the event loop gets its turn, so that an execution does not wait for them."""
DISCARD_SECONDS = 0.1
"""Delay between a run's start and the removal of wrappers that it may not use. Most runs end earlier and so don't
share their CPU with the removal."""
_MAX_SERVERS = 1000
_ALL = ""
_OF_ALL = ("__init__.py", "__pycache__", "README.md")
"""Files of the package of all servers, in any language."""
_PYTHON_PACKAGE = '''"""The MCP servers that this execution may use, each a package with one module per tool.

    import os, inspect
    os.listdir("servers")                          # the servers
    os.listdir("servers/github")                   # a server's tools
    print(open("servers/github/create_issue.py").read())
    from servers.github import create_issue
    print(inspect.getsource(create_issue))
    await create_issue(owner="o", repo="r", title="Bug")

`from tool_discovery import search_tools` finds a tool by what it does.
"""
'''
_TYPESCRIPT_PACKAGE = """The MCP servers that this execution may use, each a folder with a file of types per tool.

    Deno.readDirSync("servers")                                  // the servers
    Deno.readDirSync("servers/github")                           // a server's tools
    Deno.readTextFileSync("servers/github/create_issue.d.ts")
    import { createIssue } from "servers/github";
    await createIssue({ owner: "o", repo: "r", title: "Bug" });

`import { searchTools } from "tool_discovery"` finds a tool by what it does.
"""
PACKAGES: dict[Language, tuple[str, str]] = {
    "python": ("__init__.py", _PYTHON_PACKAGE),
    "typescript": ("README.md", _TYPESCRIPT_PACKAGE),
}
"""Name and text of the file of the package of all servers, by the language of the code."""


@dataclass(frozen=True, kw_only=True)
class WrapperUpload:
    """Wrappers of MCP servers: texts by their path below the folder of servers."""

    hash: str
    files: dict[str, str]
    catalogs: dict[str, Any]
    """The catalog of each package's tools, by the package's name."""
    servers: dict[str, str]
    """The servers' own names by the names of their packages."""

    @classmethod
    def from_body(cls, body: bytes) -> "WrapperUpload":
        """Parse the body.

        Raises:
            InvalidRequest: the body or a field is invalid.
        """
        fields = parse_body(body, ("hash", "files"))
        digest, files = fields.get("hash"), fields.get("files")
        if not isinstance(digest, str) or not re.fullmatch(r"[A-Za-z0-9:_.-]{1,128}", digest):
            raise InvalidRequest("hash: must be 1 to 128 letters, digits or any of :_.-")
        if not isinstance(files, dict) or len(files) > MAX_FILES:
            raise InvalidRequest(f"files: must be an object with at most {MAX_FILES} entries")
        for path, text in files.items():
            if not _PATH.fullmatch(path) or ".." in path or not isinstance(text, str):
                raise InvalidRequest(f"files: {path[:200]!r} is not a path of a wrapper, or its text is missing")
        folders = {path[:end] for path in files for end in range(len(path)) if path[end] == "/"}
        if clash := folders & files.keys():
            raise InvalidRequest(f"files: {min(clash)!r} is a file and a folder")
        catalogs = _parse_catalogs(files.pop(_CATALOG, None))
        packages = {path.partition("/")[0] for path in files if "/" in path}
        servers = {package: catalogs.get(package, {}).get("server", package) for package in packages}
        return cls(hash=digest, files=files, catalogs=catalogs, servers=servers)


def _parse_catalogs(text: str | None) -> dict[str, Any]:
    """Return the catalog of each server by the name of its package."""
    if text is None:
        return {}
    content = parse_object(text.encode("utf-8", "replace"))
    entries = content.get("servers") if content is not None else None
    if not isinstance(entries, list):
        raise InvalidRequest(f"files: {_CATALOG} has no list of servers")
    catalogs = {}
    for entry in entries:
        server = entry.get("server") if isinstance(entry, dict) else None
        if not isinstance(server, str) or not server:
            raise InvalidRequest(f"files: {_CATALOG} has a server without a name")
        module = entry.get("module")
        catalogs[module if isinstance(module, str) else identifier(server)] = entry
    return catalogs


class NotIdle(Exception):
    """The sandbox has accepted an execution and takes no more wrappers."""


class WrapperStore:
    """Wrappers for the sandbox's executions."""

    def __init__(self, workspace: Path, *, language: Language = "python") -> None:
        self._package, self._text = PACKAGES[language]
        self._shown = workspace / SERVERS_FOLDER
        self._hidden = workspace / HIDDEN_FOLDER
        self._stored = self._hidden
        self._servers: dict[str, str] = {}
        self._paths: list[str] = []
        self._trash: list[tuple[Path, list[str]]] = []
        self._versions = 0
        self._packed: dict[str, bytes] = {}
        """Compressed files of each package, and of the package of all servers, whose name is empty."""
        self._on_disk: set[str] = set()
        """Packages in the hidden folder, not shown."""
        self._visible: set[str] = set()
        """Packages that the code sees."""
        self._closed = False
        self._lock = asyncio.Lock()
        self.hash: str | None = None
        """Digest that identifies the stored wrappers; None if there are none."""

    async def replace(self, wrappers: WrapperUpload) -> None:
        """Replace the stored wrappers by these, completely or not at all.

        Raises:
            NotIdle: an execution was accepted meanwhile.
            OSError: the files can't be written.
        """
        async with self._lock:
            self._check_open()
            self._versions += 1
            incoming, written = self._hidden / str(self._versions), list[str]()
            try:
                await self._write(wrappers, incoming, written)
                packed = await _pack(incoming, written)
                self._check_open()
            except BaseException:
                self._trash.append((incoming, written))
                raise
            self._trash.append((self._stored, self._paths))
            self._stored, self._paths = incoming, written
            self._servers, self.hash = wrappers.servers, wrappers.hash
            self._packed, self._on_disk = packed, set(packed)
            await self._empty_trash()

    async def _write(self, wrappers: WrapperUpload, folder: Path, written: list[str]) -> None:
        """Write and compile the wrappers; append the path of each file to `written`."""
        catalogs = {
            f"{package}/{CATALOG_FILE}": json.dumps(entry, ensure_ascii=False, separators=(",", ":"))
            for package, entry in wrappers.catalogs.items()
            if package in wrappers.servers
        }
        files = {self._package: self._text, **wrappers.files, **catalogs}
        for number, (path, text) in enumerate(files.items()):
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            written.append(path)
            target.write_bytes(text.encode("utf-8", "replace"))
            if path.endswith(".py") and (cached := _compile(target, self._shown / path)):
                written.append(str(Path(cached).relative_to(folder)))
            if number % FILES_PER_TURN == FILES_PER_TURN - 1:
                await asyncio.sleep(0)
                self._check_open()

    def _check_open(self) -> None:
        if self._closed:
            raise NotIdle

    def close(self) -> None:
        """Reject further wrappers, because an execution has been accepted."""
        self._closed = True

    def show(self, allow: Iterable[str]) -> None:
        """Move the servers that `allow` may use to where the code imports them, or an empty package if there are none.

        Costs one system call per server, and in a session, where others were shown before, the writing of those that
        are not on disk any more. Raises nothing, because the code can call tools without wrappers too.
        """
        patterns = ToolPatterns(allow)
        allowed = {package for package, server in self._servers.items() if patterns.match_server(server)}
        wanted = {_ALL} | allowed
        with contextlib.suppress(OSError):
            if not self._visible:
                self._shown.mkdir()
                if self.hash is None:
                    (self._shown / self._package).write_text(self._text)
            missing, revoked = wanted - self._visible, self._visible - wanted
            if self.hash is not None and (missing or revoked):
                self._unpack(missing - self._on_disk)
                _move(missing, self._stored, self._shown)
                _move(revoked, self._shown, self._stored)
        self._visible = wanted
        self._on_disk.clear()

    def list_servers(self, allow: Iterable[str]) -> list[str] | None:
        """Return the names of the servers that `allow` may use, or None if no wrappers were stored."""
        if self.hash is None:
            return None
        patterns = ToolPatterns(allow)
        return sorted(server for server in self._servers.values() if patterns.match_server(server))[:_MAX_SERVERS]

    async def discard(self) -> None:
        """Remove the wrappers that were not shown."""
        self._on_disk.clear()
        self._trash.append((self._stored, self._paths))
        await self._empty_trash()

    async def restore(self) -> None:
        """Accept wrappers again, in an emptied workspace. Write those that the last execution saw: the next needs them.

        Raises:
            OSError: the files can't be written.
        """
        self._trash.clear()
        names, self._visible, self._on_disk = self._visible, set(), set()
        for name in names & self._packed.keys():
            self._unpack({name})
            await asyncio.sleep(0)
        self._closed = False

    def _unpack(self, names: set[str]) -> None:
        """Write packages to the hidden folder, or to a new one, where the code has prepared no file."""
        if not self._on_disk:
            self._versions += 1
            self._stored = self._hidden / str(self._versions)
            self._hidden.mkdir(exist_ok=True)
            self._stored.mkdir()
        for name in names & self._packed.keys():
            for path, modified, data in marshal.loads(zlib.decompress(self._packed[name])):
                target = self._stored / path
                target.parent.mkdir(parents=True, exist_ok=True)
                with open(target, "xb") as file:
                    file.write(data)
                # Python compares the time with that in the bytecode.
                os.utime(target, ns=(modified, modified))
            self._on_disk.add(name)

    async def _empty_trash(self) -> None:
        while self._trash:
            await _remove_files(*self._trash[0])
            del self._trash[0]
        with contextlib.suppress(OSError):
            os.rmdir(self._hidden)


def _move(packages: Iterable[str], source: Path, target: Path) -> None:
    for package in packages:
        for name in _OF_ALL if package == _ALL else (package,):
            with contextlib.suppress(OSError):
                (source / name).rename(target / name)


async def _pack(folder: Path, paths: list[str]) -> dict[str, bytes]:
    """Return the compressed files of each package below a folder."""
    packages: dict[str, list[tuple[str, int, bytes]]] = {}
    for number, path in enumerate(paths):
        name = "" if path.partition("/")[0] in _OF_ALL else path.partition("/")[0]
        file = folder / path
        packages.setdefault(name, []).append((path, file.stat().st_mtime_ns, file.read_bytes()))
        if number % FILES_PER_TURN == FILES_PER_TURN - 1:
            await asyncio.sleep(0)
    return {name: zlib.compress(marshal.dumps(files), 1) for name, files in packages.items()}


async def _remove_files(folder: Path, paths: list[str]) -> None:
    """Remove files below a folder in small steps, and then the folders that are empty.

    Only these paths are touched, because code that runs meanwhile may have written others.
    """
    folders = {""}
    for number, path in enumerate(paths):
        with contextlib.suppress(OSError):
            os.unlink(folder / path)
        folders.update(_list_parents(path))
        if number % FILES_PER_TURN == FILES_PER_TURN - 1:
            await asyncio.sleep(0)
    for name in sorted(folders, key=len, reverse=True):
        with contextlib.suppress(OSError):
            os.rmdir(folder / name)


def _list_parents(path: str) -> Iterator[str]:
    while (path := path.rpartition("/")[0]) != "":
        yield path


def _compile(source: Path, shown: Path) -> str | None:
    """Write the bytecode of a module to be imported from `shown`. Return its path, or None if compilation fails."""
    cached = importlib.util.cache_from_source(str(source))
    try:
        return py_compile.compile(str(source), cfile=cached, dfile=str(shown), doraise=True)
    except (py_compile.PyCompileError, RecursionError, MemoryError, ValueError):
        return None
