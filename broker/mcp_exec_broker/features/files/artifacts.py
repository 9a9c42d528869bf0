"""ArtifactStore: files that executions produce for people. Each is one object: a line about it, and its content."""

import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from cachetools import LRUCache
from pydantic import ValidationError

from mcp_exec_broker.features.files.keys import OwnerSpace
from mcp_exec_broker.features.files.requests import FilesRefused, build_invalid, build_too_large
from mcp_exec_broker.features.files.storage import Storage
from mcp_exec_broker.features.files.usage import OwnerUsage, StoreLimits
from mcp_exec_common.broker.files import ArtifactAllowance, ArtifactHead, FilesReason

_HEAD_BYTES: Final = 4096
"""Longest line about an artifact."""
_MAX_EXECUTIONS: Final = 20_000


@dataclass(frozen=True, kw_only=True)
class StoredArtifact:
    """An artifact that is open for reading."""

    head: ArtifactHead
    content: AsyncGenerator[bytes, None]


def choose_artifact_id(head: ArtifactHead) -> str:
    """Return the id of an artifact, which depends only on its name and content: a repeated upload has the same."""
    return hashlib.sha256(f"{head.name}\0{head.media_type}\0{head.sha256}".encode()).hexdigest()[:16]


@dataclass(kw_only=True, eq=False)
class ArtifactStore:
    """The artifacts of all executions. All methods raise FilesRefused."""

    storage: Storage
    limits: StoreLimits
    usage: OwnerUsage
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    _sizes: LRUCache[str, dict[str, int]] = field(default_factory=lambda: LRUCache(_MAX_EXECUTIONS))
    """Bytes of artifacts by folder and id."""

    async def add(
        self,
        space: OwnerSpace,
        execution: str,
        head: ArtifactHead,
        parts: AsyncIterator[bytes],
        allowance: ArtifactAllowance,
    ) -> str:
        """Store an artifact and return its id."""
        id = choose_artifact_id(head)
        line = head.model_dump_json(by_alias=True).encode() + b"\n"
        if len(line) > _HEAD_BYTES:
            raise build_invalid(f"name: must be shorter, so that the line about the artifact has {_HEAD_BYTES} bytes")
        sizes = await self._list_sizes(space, execution)
        self._check(head, {key: size for key, size in sizes.items() if key != id}, allowance)
        reserve = await self.usage.open(space)
        is_new = id not in sizes
        sizes[id] = head.size  # before the content is read: others of the execution may arrive meanwhile
        try:
            await self._write(space.artifact(execution, id), line, head, parts, reserve)
        except BaseException:
            if is_new:
                sizes.pop(id, None)
            raise
        return id

    async def open(self, space: OwnerSpace, execution: str, id: str) -> StoredArtifact:
        """Open an artifact that has not expired."""
        key = space.artifact(execution, id)
        modified: datetime | None = None
        async for item in self.storage.list_objects(space.artifacts(execution)):
            if item.key == key:
                modified, size = item.modified, item.size
        if modified is None or self.is_expired(modified):
            raise FilesRefused(FilesReason.NO_ARTIFACT, "there is no such artifact, or no longer")
        line, newline, _ = (await self.storage.read_head(key, _HEAD_BYTES) or b"").partition(b"\n")
        if not newline:
            raise FilesRefused(FilesReason.UNAVAILABLE, "the artifact in the store is damaged")
        start = len(line) + 1
        content = self.storage.stream(key, start, size) if size > start else _no_content()
        return StoredArtifact(head=ArtifactHead.model_validate_json(line), content=content)

    async def delete_all(self, space: OwnerSpace, execution: str) -> None:
        """Delete all artifacts of an execution. Their bytes count until the owner's objects are listed again."""
        folder = space.artifacts(execution)
        await self.storage.delete([item.key async for item in self.storage.list_objects(folder)])
        self._sizes.pop(folder, None)
        self.usage.forget(space)

    def is_expired(self, modified: datetime) -> bool:
        """Return whether an artifact that was stored at a time is to be removed."""
        return self.now() - modified > timedelta(seconds=self.limits.artifact_ttl_seconds)

    def _check(self, head: ArtifactHead, others: dict[str, int], allowance: ArtifactAllowance) -> None:
        if head.size > self.limits.artifact_bytes:
            raise build_too_large(f"the artifact has {head.size} bytes, allowed are {self.limits.artifact_bytes}")
        if len(others) >= allowance.count:
            raise build_too_large(f"the execution has {len(others)} artifacts, which is the limit")
        if sum(others.values()) + head.size > allowance.total_bytes:
            raise build_too_large(f"the execution's artifacts may have {allowance.total_bytes} bytes in all")

    async def _write(
        self,
        key: str,
        line: bytes,
        head: ArtifactHead,
        parts: AsyncIterator[bytes],
        reserve: Callable[[int], None],
    ) -> None:
        size = len(line) + head.size
        reserve(size)
        writer = self.storage.open_writer(key)
        try:
            await writer.write(line)
            digest, received = hashlib.sha256(), 0
            async for part in parts:
                digest.update(part)
                received += len(part)
                await writer.write(part)
            if received != head.size or digest.hexdigest() != head.sha256:
                raise build_invalid(f"the content of {received} bytes has not the digest that was sent with it")
            await writer.commit()
        except BaseException:
            await writer.abort()
            reserve(-size)
            raise

    async def _list_sizes(self, space: OwnerSpace, execution: str) -> dict[str, int]:
        folder = space.artifacts(execution)
        if folder not in self._sizes:
            items = [item async for item in self.storage.list_objects(folder)]
            self._sizes.setdefault(folder, {item.key.rpartition("/")[2]: item.size for item in items})
        return self._sizes[folder]


async def _no_content() -> AsyncGenerator[bytes, None]:
    return
    yield b""


def parse_artifact_head(line: bytes) -> ArtifactHead:
    """Return the head in the first line of an upload. Raises FilesRefused."""
    try:
        return ArtifactHead.model_validate_json(line)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        raise build_invalid(f"{'.'.join(map(str, first['loc'])) or 'artifact'}: {first['msg']}") from None
