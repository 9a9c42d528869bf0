"""Copies of the servers' tools on disk, so that a server that is down when the broker starts has those it had last.

One file a ToolServer, replaced as a whole. Its name says of which server it is: of another one, or of the same one
after its URL or command changed, it is not found. Nothing here is needed: what can't be read or written is logged, and
the broker goes on without.
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

_MOST_BYTES: Final = 4 * 1024 * 1024
"""Of one copy."""
_MOST_BYTES_OF_ALL: Final = 64 * 1024 * 1024
_SUFFIX: Final = ".json"


class CatalogCopy(BaseModel):
    """What a server listed for no user in particular, without its credentials."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Literal[1] = 1
    """Of this format."""
    protocol_version: str
    identity: str
    """What it says that it is."""
    is_public: bool
    """Whether its tools are the same for everybody."""
    tools: list[dict[str, Any]]
    """Entries of `tools/list`."""

    @field_validator("tools")
    @classmethod
    def _named(cls, given: list[dict[str, Any]]) -> list[dict[str, Any]]:
        if not all(isinstance(tool.get("name"), str) and tool["name"] for tool in given):
            raise ValueError("a tool has no name")
        return given


class CatalogDiskCache:
    """The copies in one folder, which is this broker's alone."""

    def __init__(
        self, folder: Path, *, most_bytes: int = _MOST_BYTES, most_bytes_of_all: int = _MOST_BYTES_OF_ALL
    ) -> None:
        self._folder = folder
        self._most = most_bytes
        self._most_of_all = most_bytes_of_all
        self._sizes: dict[str, int] = {}
        self._digests: dict[str, bytes] = {}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for path in folder.iterdir():
                if path.suffix == _SUFFIX:
                    self._sizes[path.stem] = path.stat().st_size
                else:  # a write that was not finished
                    path.unlink()
        except OSError as error:
            log.warning("copies of tools can't be kept: %s", error)

    def get(self, server: ToolServer) -> tuple[CatalogCopy, datetime] | None:
        """The copy of a server's tools, and when they were listed; none where there is no good one."""
        name = server.connection_hash
        if name not in self._sizes:
            return None
        path = self._path(name)
        try:
            with path.open("rb") as file:
                data = file.read(self._most + 1)
                listed_at = datetime.fromtimestamp(os.fstat(file.fileno()).st_mtime, UTC)
            if len(data) > self._most:
                raise ValueError(f"it has more than {self._most} bytes")
            copy = CatalogCopy.model_validate(json.loads(data))
        except (OSError, ValueError, RecursionError) as error:
            # not the error's text: it may be the file's
            log.warning("the copy of a server's tools is no good: %s", type(error).__name__, extra=_of(server))
            self._drop(name)
            return None
        self._digests[name] = hashlib.sha256(data).digest()
        return copy, listed_at

    def put(self, server: ToolServer, copy: CatalogCopy | None) -> None:
        """Keeps a copy of what was listed just now, in the place of the one before; or none from now on."""
        name = server.connection_hash
        if copy is None:
            self._drop(name)
            return
        data = json.dumps(copy.model_dump()).encode()
        digest = hashlib.sha256(data).digest()
        size = sum(self._sizes.values()) - self._sizes.get(name, 0) + len(data)
        if len(data) > self._most or size > self._most_of_all:
            log.warning("a server's tools are too large for a copy of them", extra={**_of(server), "bytes": len(data)})
            self._drop(name)
            return
        path = self._path(name)
        try:
            if self._digests.get(name) == digest:
                os.utime(path)
                return
            unfinished = path.with_suffix(".new")
            unfinished.write_bytes(data)
            unfinished.replace(path)
        except OSError as error:
            log.warning("a server's tools were not copied: %s", error, extra=_of(server))
            self._drop(name)
            return
        self._sizes[name], self._digests[name] = len(data), digest

    def keep(self, servers: Iterable[ToolServer]) -> None:
        """Forgets all but those of these servers, as they are now."""
        for name in self._sizes.keys() - {server.connection_hash for server in servers}:
            self._drop(name)

    def _path(self, name: str) -> Path:
        return self._folder / (name + _SUFFIX)

    def _drop(self, name: str) -> None:
        self._sizes.pop(name, None)
        self._digests.pop(name, None)
        with suppress(OSError):
            self._path(name).unlink(missing_ok=True)


def _of(server: ToolServer) -> dict[str, str]:
    return {"namespace": server.namespace, "server": server.name}
