"""The wrappers of MCP servers: put into the pod while it is idle, shown to the code that may use them.

They wait in a hidden folder of the workspace, as whole packages beside their bytecode, so that to show a server is to
rename one folder. What an execution may not use is removed once it runs.
"""

import asyncio
import contextlib
import importlib.util
import json
import os
import py_compile
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcp_exec_sandbox.protocol import CATALOG_FILE, SERVERS_FOLDER
from mcp_exec_sandbox.supervisor.job_request import InvalidRequest, read_object
from mcp_exec_sandbox.supervisor.runner_process import parse_object
from mcp_exec_tools.names import identifier
from mcp_exec_tools.patterns import may_use_server

MAX_WRAPPERS_BYTES = 16 * 1024 * 1024
"""The largest body of `PUT /v1/wrappers`."""
MAX_FILES = 20_000
HIDDEN_FOLDER = ".mcp-exec"
FILES_PER_TURN = 20
"""Files that are written or removed before the event loop gets its turn: an execution must not wait for them."""
DISCARD_SECONDS = 0.1
"""How long after a run's start what it may not use is removed: most runs should not share their CPU with that."""

_CATALOG = "catalog.json"
_PART = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,150}"
_PATH = re.compile(rf"{_PART}(/{_PART}){{0,3}}")

PACKAGE = '''"""The MCP servers that this execution may use, each a package with one module a tool.

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


class NotIdle(Exception):
    """Wrappers are taken only while no execution has been accepted."""


@dataclass(frozen=True, kw_only=True)
class Wrappers:
    """The body of `PUT /v1/wrappers`, checked: texts by their path below the folder of servers."""

    hash: str
    files: dict[str, str]
    catalogs: dict[str, Any]
    """What each package may find about its tools, by the package's name."""
    servers: dict[str, str]
    """The servers' own names by those of their packages."""

    @classmethod
    def from_body(cls, body: bytes) -> "Wrappers":
        """Read the body. Raises InvalidRequest, which names the field."""
        fields = read_object(body, ("hash", "files"))
        digest, files = fields.get("hash"), fields.get("files")
        if not isinstance(digest, str) or not re.fullmatch(r"[A-Za-z0-9:_.-]{1,128}", digest):
            raise InvalidRequest("hash: must be 1 to 128 letters, digits or any of :_.-")
        if not isinstance(files, dict) or len(files) > MAX_FILES:
            raise InvalidRequest(f"files: must be an object with at most {MAX_FILES} entries")
        for path, text in files.items():
            if not _PATH.fullmatch(path) or ".." in path or not isinstance(text, str):
                raise InvalidRequest(f"files: {path[:200]!r} is no path of a wrapper, or has no text")
        folders = {path[:end] for path in files for end in range(len(path)) if path[end] == "/"}
        if clash := folders & files.keys():
            raise InvalidRequest(f"files: {min(clash)!r} is a file and a folder")
        catalogs = _catalogs(files.pop(_CATALOG, None))
        packages = {path.partition("/")[0] for path in files if "/" in path}
        servers = {package: catalogs.get(package, {}).get("server", package) for package in packages}
        return cls(hash=digest, files=files, catalogs=catalogs, servers=servers)


def _catalogs(text: str | None) -> dict[str, Any]:
    """The catalog of each server by the name of its package."""
    if text is None:
        return {}
    content = parse_object(text.encode("utf-8", "replace"))
    entries = content.get("servers") if content is not None else None
    if not isinstance(entries, list):
        raise InvalidRequest(f"files: {_CATALOG} has no list of servers")
    found = {}
    for entry in entries:
        server = entry.get("server") if isinstance(entry, dict) else None
        if not isinstance(server, str) or not server:
            raise InvalidRequest(f"files: {_CATALOG} has a server without a name")
        module = entry.get("module")
        found[module if isinstance(module, str) else identifier(server)] = entry
    return found


class WrapperStore:
    """Holds wrappers for the execution to come."""

    def __init__(self, workspace: Path) -> None:
        self._shown = workspace / SERVERS_FOLDER
        self._hidden = workspace / HIDDEN_FOLDER
        self._kept = self._hidden
        self._servers: dict[str, str] = {}
        self._paths: list[str] = []
        self._trash: list[tuple[Path, list[str]]] = []
        self._versions = 0
        self._closed = False
        self._turn = asyncio.Lock()
        self.hash: str | None = None
        """What tells the wrappers that are here from others."""

    async def replace(self, wrappers: Wrappers) -> None:
        """Put these in the place of those that are here; either all of them or none.

        Raises NotIdle where an execution came first, OSError where they can't be written.
        """
        async with self._turn:
            self._check_open()
            self._versions += 1
            incoming, written = self._hidden / str(self._versions), list[str]()
            try:
                await self._write(wrappers, incoming, written)
                self._check_open()
            except BaseException:
                self._trash.append((incoming, written))
                raise
            self._trash.append((self._kept, self._paths))
            self._kept, self._paths = incoming, written
            self._servers, self.hash = wrappers.servers, wrappers.hash
            await self._empty_trash()

    async def _write(self, wrappers: Wrappers, folder: Path, written: list[str]) -> None:
        """Write and compile; `written` gets the paths of all files."""
        catalogs = {
            f"{package}/{CATALOG_FILE}": json.dumps(entry, ensure_ascii=False, separators=(",", ":"))
            for package, entry in wrappers.catalogs.items()
            if package in wrappers.servers
        }
        files = {"__init__.py": PACKAGE, **wrappers.files, **catalogs}
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
        """Take no more wrappers: an execution has been accepted."""
        self._closed = True

    def show(self, allow: Iterable[str]) -> None:
        """Let the code see the servers that `allow` may use, and an empty package where there are none.

        Costs a system call a server. Raises nothing: the code can call tools without their wrappers too.
        """
        patterns = tuple(allow)
        with contextlib.suppress(OSError):
            self._shown.mkdir()
            if self.hash is None:
                (self._shown / "__init__.py").write_text(PACKAGE)
                return
            for name in ("__init__.py", "__pycache__"):
                with contextlib.suppress(OSError):
                    (self._kept / name).rename(self._shown / name)
            for package, server in self._servers.items():
                if may_use_server(patterns, server):
                    with contextlib.suppress(OSError):
                        (self._kept / package).rename(self._shown / package)

    async def discard(self) -> None:
        """Remove what was not shown."""
        self._trash.append((self._kept, self._paths))
        await self._empty_trash()

    async def _empty_trash(self) -> None:
        while self._trash:
            await _remove(*self._trash[0])
            del self._trash[0]
        with contextlib.suppress(OSError):
            os.rmdir(self._hidden)


async def _remove(folder: Path, paths: list[str]) -> None:
    """Remove files below a folder, little by little, and folders that are empty then.

    Nothing else is looked at: code that runs meanwhile may have put anything there.
    """
    folders = {""}
    for number, path in enumerate(paths):
        with contextlib.suppress(OSError):
            os.unlink(folder / path)
        folders.update(_parents(path))
        if number % FILES_PER_TURN == FILES_PER_TURN - 1:
            await asyncio.sleep(0)
    for name in sorted(folders, key=len, reverse=True):
        with contextlib.suppress(OSError):
            os.rmdir(folder / name)


def _parents(path: str) -> Iterator[str]:
    while (path := path.rpartition("/")[0]) != "":
        yield path


def _compile(source: Path, shown: Path) -> str | None:
    """Write the bytecode of a module that will be found at `shown`; its path, or None where it can't be compiled."""
    cached = importlib.util.cache_from_source(str(source))
    try:
        return py_compile.compile(str(source), cfile=cached, dfile=str(shown), doraise=True)
    except (py_compile.PyCompileError, RecursionError, MemoryError, ValueError):
        return None
