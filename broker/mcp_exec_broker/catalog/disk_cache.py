"""Disk cache of catalogs, so that a server that is down when the broker starts keeps its last tools.

One file per ToolServer, replaced as a whole and named by the server's connection hash, so that a changed URL or command
invalidates it. Best effort: I/O errors are logged and ignored.
"""

import hashlib
import json
import logging
import os
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, field_validator

from mcp_exec_broker.upstream.servers import ToolServer

log = logging.getLogger(__name__)

_MAX_BYTES: Final = 4 * 1024 * 1024
"""Size of one file."""
_MAX_TOTAL_BYTES: Final = 64 * 1024 * 1024
_SUFFIX: Final = ".json"


class CatalogCopy(BaseModel):
    """Catalog of a server for no user in particular, without credentials."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Literal[1] = 1
    """Version of the format."""
    protocol_version: str
    identity: str
    """Name and version that the server states."""
    is_public: bool
    """Whether the tools are the same for everybody."""
    tools: list[dict[str, Any]]
    """Entries of `tools/list`."""

    @field_validator("tools")
    @classmethod
    def _require_names(cls, tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
        if not all(isinstance(tool.get("name"), str) and tool["name"] for tool in tools):
            raise ValueError("a tool has no name")
        return tools


class CatalogDiskCache:
    """The files in one folder, which no other process uses."""

    def __init__(self, folder: Path, *, max_bytes: int = _MAX_BYTES, max_total_bytes: int = _MAX_TOTAL_BYTES) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        self._max_total_bytes = max_total_bytes
        self._sizes: dict[str, int] = {}
        self._digests: dict[str, bytes] = {}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for path in folder.iterdir():
                if path.suffix == _SUFFIX:
                    self._sizes[path.stem] = path.stat().st_size
                else:  # an interrupted write
                    path.unlink()
        except OSError as error:
            log.warning("cannot use the disk cache of catalogs: %s", error)

    def get(self, server: ToolServer) -> tuple[CatalogCopy, datetime] | None:
        """Return the copy of a server's catalog and the time of its listing, or None if there is no valid one."""
        name = server.connection_hash
        if name not in self._sizes:
            return None
        path = self._get_path(name)
        try:
            with path.open("rb") as file:
                data = file.read(self._max_bytes + 1)
                listed_at = datetime.fromtimestamp(os.fstat(file.fileno()).st_mtime, UTC)
            if len(data) > self._max_bytes:
                raise ValueError(f"the file has more than {self._max_bytes} bytes")
            copy = CatalogCopy.model_validate(json.loads(data))
        except (OSError, ValueError, RecursionError) as error:
            # without the error's text, which may quote the file
            log.warning(
                "the cached catalog of a server is invalid: %s", type(error).__name__, extra=_build_log_fields(server)
            )
            self._remove(name)
            return None
        self._digests[name] = hashlib.sha256(data).digest()
        return copy, listed_at

    def put(self, server: ToolServer, copy: CatalogCopy | None) -> None:
        """Replace the copy of a catalog that was listed now; None removes it."""
        name = server.connection_hash
        if copy is None:
            self._remove(name)
            return
        data = json.dumps(copy.model_dump()).encode()
        digest = hashlib.sha256(data).digest()
        size = sum(self._sizes.values()) - self._sizes.get(name, 0) + len(data)
        if len(data) > self._max_bytes or size > self._max_total_bytes:
            log.warning(
                "the catalog of a server is too large for the disk cache",
                extra={**_build_log_fields(server), "bytes": len(data)},
            )
            self._remove(name)
            return
        path = self._get_path(name)
        try:
            if self._digests.get(name) == digest:
                os.utime(path)
                return
            unfinished = path.with_suffix(".new")
            unfinished.write_bytes(data)
            unfinished.replace(path)
        except OSError as error:
            log.warning(
                "cannot write the catalog of a server to the disk cache: %s", error, extra=_build_log_fields(server)
            )
            self._remove(name)
            return
        self._sizes[name], self._digests[name] = len(data), digest

    def retain(self, servers: Iterable[ToolServer]) -> None:
        """Remove all copies but those of these servers in their current form."""
        for name in self._sizes.keys() - {server.connection_hash for server in servers}:
            self._remove(name)

    def _get_path(self, name: str) -> Path:
        return self._folder / (name + _SUFFIX)

    def _remove(self, name: str) -> None:
        self._sizes.pop(name, None)
        self._digests.pop(name, None)
        with suppress(OSError):
            self._get_path(name).unlink(missing_ok=True)


def _build_log_fields(server: ToolServer) -> dict[str, str]:
    return {"namespace": server.namespace, "server": server.name}
