"""The checked body of `PUT /v1/wrappers`."""

import re
from dataclasses import dataclass
from typing import Any

from mcp_exec_sandbox.supervisor.json_object import InvalidRequest, parse_body, parse_object
from mcp_exec_tools.names import identifier

MAX_FILES = 20_000

_CATALOG = "catalog.json"
_PART = r"\w[\w.-]{0,150}"  # letters of any script, as in identifiers
_PATH = re.compile(rf"{_PART}(/{_PART}){{0,3}}")


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
