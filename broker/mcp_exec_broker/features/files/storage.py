"""Objects on a volume or in S3: each is written once, whole and durable, and never changed.

Writes return when a crash of the process or the node cannot undo them. On a volume, an object is written to the folder
`staging`, synced, and then linked under its key, so that no key ever names a part of an object.
"""

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from secrets import token_hex
from stat import S_ISREG
from time import time
from typing import Any, Final, Protocol

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import LocalStore, ObjectStore

from mcp_exec_broker.features.files.requests import FilesRefused
from mcp_exec_common.broker.files import FilesReason

log = logging.getLogger(__name__)

STAGING: Final = "staging"
_SECONDS: Final = 60.0
"""Longest single operation. A part of a stream is one operation."""
_PART_BYTES: Final = 8 * 1024 * 1024
"""Bytes of a part of an upload to S3, which requires 5 MiB."""
_LOCAL_PART_BYTES: Final = 1024 * 1024
_MAX_RESERVE: Final = 1024 * 1024 * 1024
"""Most bytes of a volume that contents leave free; less on volumes of less than 20 GiB."""
_PARTS_IN_MEMORY: Final = 3
"""Parts of a writer: one is filled, one is sent, and one may be copied."""
_READ_BYTES: Final = 256 * 1024
_LIST_PAGE: Final = 1000


@dataclass(frozen=True, kw_only=True)
class StoredObject:
    """An object as a listing shows it."""

    key: str
    size: int
    modified: datetime
    tag: str
    """Differs if the object was deleted and another one written under its key."""


class ObjectWriter(Protocol):
    """An object that is being written. Nothing is there until `commit` returns."""

    async def write(self, data: bytes) -> None:
        """Append data."""

    async def commit(self) -> None:
        """Make the object durable and visible."""

    async def abort(self) -> None:
        """Drop what was written."""


class Storage(Protocol):
    """The store of all objects. All methods raise FilesRefused (UNAVAILABLE)."""

    writer_bytes: int
    """Memory of a writer."""

    async def create(self, key: str, data: bytes) -> bool:
        """Write an object; return False if another one has the key already. The data must be unique."""

    def open_writer(self, key: str) -> ObjectWriter:
        """Return a writer of an object with a key that no other object gets."""

    async def read(self, key: str) -> bytes | None:
        """Return a whole object, or None if there is none."""

    async def read_head(self, key: str, size: int) -> bytes | None:
        """Return the first `size` bytes of an object, or all if it has fewer, or None if there is none."""

    def stream(self, key: str, start: int, end: int) -> AsyncGenerator[bytes, None]:
        """Return the bytes of an object from `start` to before `end`, in parts. `end` must be within the object."""

    def list_objects(self, folder: str) -> AsyncIterator[StoredObject]:
        """Return all objects below a folder, in no order."""

    async def list_folders(self, folder: str) -> list[str]:
        """Return the names of the folders in a folder."""

    async def delete(self, keys: Iterable[str]) -> None:
        """Delete objects; those that do not exist are ignored."""

    async def measure_spare(self) -> int | None:
        """Return how many bytes of contents may still be written, or None if there is no bound."""

    async def clean_up(self, older_than: float) -> None:
        """Remove what writers left behind that were killed before this time, in seconds since 1970."""


class ObstoreStorage:
    """Objects in a bucket, or in another store of `obstore` whose writes are durable."""

    part_bytes = _PART_BYTES

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self.writer_bytes = _PARTS_IN_MEMORY * self.part_bytes

    def use(self, store: ObjectStore) -> None:
        """Use another client of the same bucket for what begins from now on."""
        self._store = store

    async def create(self, key: str, data: bytes) -> bool:
        """See Storage."""
        with _translated(f"cannot write {key}"):
            try:
                async with asyncio.timeout(_SECONDS):
                    await self._store.put_async(key, data, mode="create")
            except AlreadyExistsError:
                # a repeated request finds the object that the first one wrote
                return await self.read(key) == data
            return True

    def open_writer(self, key: str) -> ObjectWriter:
        """See Storage."""
        return self._open(key, None)

    def _open(self, target: str, publish: Callable[[], Awaitable[None]] | None) -> ObjectWriter:
        writer = obstore.open_writer_async(self._store, target, buffer_size=self.part_bytes, max_concurrency=1)
        return _ObstoreWriter(writer, target, publish)

    async def read(self, key: str) -> bytes | None:
        """See Storage."""
        with _translated(f"cannot read {key}"):
            try:
                async with asyncio.timeout(_SECONDS):
                    result = await self._store.get_async(key)
                    return bytes(await result.bytes_async())
            except FileNotFoundError:
                return None

    async def read_head(self, key: str, size: int) -> bytes | None:
        """See Storage."""
        with _translated(f"cannot read {key}"):
            try:
                async with asyncio.timeout(_SECONDS):
                    result = await self._store.get_async(key, options={"range": (0, size)})
                    return bytes(await result.bytes_async())
            except FileNotFoundError:
                return None

    async def stream(self, key: str, start: int, end: int) -> AsyncGenerator[bytes, None]:
        """See Storage."""
        with _translated(f"cannot read {key}"):
            async with asyncio.timeout(_SECONDS):
                result = await self._store.get_async(key, options={"range": (start, end)})
            parts = result.stream(min_chunk_size=_READ_BYTES).__aiter__()
        left = end - start
        while left > 0:
            with _translated(f"cannot read {key}"):
                async with asyncio.timeout(_SECONDS):
                    part = bytes(await anext(parts, b""))
            left -= len(part)
            if not part or left < 0:
                log.error("an object of the store has not the size that it was written with", extra={"key": key})
                raise FilesRefused(FilesReason.UNAVAILABLE, "the store returned damaged content")
            yield part

    async def list_objects(self, folder: str) -> AsyncIterator[StoredObject]:
        """See Storage."""
        with _translated(f"cannot list {folder}"):
            pages = self._store.list(folder, chunk_size=_LIST_PAGE).__aiter__()
        while True:
            with _translated(f"cannot list {folder}"):
                try:
                    async with asyncio.timeout(_SECONDS):
                        page = await anext(pages)
                except (StopAsyncIteration, FileNotFoundError):
                    return
            for meta in page:
                yield StoredObject(
                    key=meta["path"], size=meta["size"], modified=meta["last_modified"], tag=meta["e_tag"] or ""
                )

    async def list_folders(self, folder: str) -> list[str]:
        """See Storage."""
        with _translated(f"cannot list {folder}"):
            try:
                async with asyncio.timeout(_SECONDS):
                    found = await self._store.list_with_delimiter_async(folder)
            except FileNotFoundError:
                return []
            return [prefix.rstrip("/").rpartition("/")[2] for prefix in found["common_prefixes"]]

    async def delete(self, keys: Iterable[str]) -> None:
        """See Storage."""
        for key in keys:
            with _translated(f"cannot delete {key}"), suppress(FileNotFoundError):
                async with asyncio.timeout(_SECONDS):
                    await self._store.delete_async(key)

    async def measure_spare(self) -> int | None:
        """See Storage."""
        return None

    async def clean_up(self, older_than: float) -> None:
        """See Storage. Nothing is to be done: S3 removes unfinished uploads if the bucket has a rule for that."""


class VolumeStorage(ObstoreStorage):
    """Objects on a volume, synced to its disk."""

    part_bytes = _LOCAL_PART_BYTES

    def __init__(self, root: Path) -> None:
        root.mkdir(parents=True, exist_ok=True)
        super().__init__(LocalStore(root, automatic_cleanup=True))
        self._root = root

    async def create(self, key: str, data: bytes) -> bool:
        """See Storage."""
        staged = _choose_staging()
        with _translated(f"cannot write {key}"):
            async with asyncio.timeout(_SECONDS):
                try:
                    await self._store.put_async(staged, data)
                    await self._sync(staged)
                    await self._store.copy_async(staged, key, overwrite=False)
                except AlreadyExistsError:
                    return False
                finally:
                    with suppress(BaseError, OSError):
                        await self._store.delete_async(staged)
                await self._sync_folders(key)
            return True

    def open_writer(self, key: str) -> ObjectWriter:
        """See Storage."""
        staged = _choose_staging()

        async def publish() -> None:
            await self._sync(staged)
            await self._store.rename_async(staged, key)
            await self._sync_folders(key)

        return self._open(staged, publish)

    async def list_objects(self, folder: str) -> AsyncIterator[StoredObject]:
        """See Storage. The common list of a few objects takes a fifth of the time of obstore's."""
        found = _walk_objects(self._root, folder)
        while True:
            with _translated(f"cannot list {folder}"):
                async with asyncio.timeout(_SECONDS):
                    page = await asyncio.to_thread(lambda: list(islice(found, _LIST_PAGE)))
            for item in page:
                yield item
            if len(page) < _LIST_PAGE:
                return

    async def measure_spare(self) -> int | None:
        """See Storage. A reserve is left for states and versions: without it, nothing could be deleted any more."""
        with _translated("cannot measure the volume"):
            async with asyncio.timeout(_SECONDS):
                volume = await asyncio.to_thread(os.statvfs, self._root)
        return volume.f_bavail * volume.f_frsize - min(volume.f_blocks * volume.f_frsize // 20, _MAX_RESERVE)

    async def clean_up(self, older_than: float) -> None:
        """See Storage."""
        await asyncio.to_thread(_remove_files, self._root / STAGING, older_than)

    async def _sync(self, key: str) -> None:
        await asyncio.to_thread(_sync_paths, [self._root / key])

    async def _sync_folders(self, key: str) -> None:
        """Sync the folder of a key and those above it: any may be new."""
        await asyncio.to_thread(_sync_paths, [self._root / folder for folder in Path(key).parents])


class _ObstoreWriter:
    def __init__(self, writer: Any, target: str, publish: Callable[[], Awaitable[None]] | None) -> None:
        self._writer = writer
        self._target = target
        self._publish = publish

    async def write(self, data: bytes) -> None:
        with _translated(f"cannot write {self._target}"):
            async with asyncio.timeout(_SECONDS):
                await self._writer.write(data)

    async def commit(self) -> None:
        with _translated(f"cannot write {self._target}"):
            async with asyncio.timeout(_SECONDS):
                await self._writer.close()
                if self._publish is not None:
                    await self._publish()

    async def abort(self) -> None:
        self._writer = None  # a writer that is dropped without `close` cancels its upload


def _choose_staging() -> str:
    return f"{STAGING}/{token_hex(16)}"


@contextmanager
def _translated(message: str) -> Iterator[None]:
    """Log an error of the store, and raise FilesRefused without its text, which may name buckets and folders."""
    try:
        yield
    except (BaseError, OSError, ValueError, TimeoutError) as error:
        log.error("the store of files failed: %s", message, extra={"error": f"{type(error).__name__}: {error}"[:2000]})
        raise FilesRefused(
            FilesReason.UNAVAILABLE, "the store of files cannot be read or written now; repeat later"
        ) from error


def _sync_paths(paths: Iterable[Path]) -> None:
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _walk_objects(root: Path, folder: str) -> Iterator[StoredObject]:
    """Yield the objects below a folder. What is deleted meanwhile is left out."""
    pending = [folder]
    while pending:
        name = pending.pop()
        with suppress(FileNotFoundError), os.scandir(root / name) as entries:
            for entry in entries:
                key = f"{name}/{entry.name}" if name else entry.name
                if entry.is_dir(follow_symlinks=False):
                    pending.append(key)
                    continue
                with suppress(FileNotFoundError):
                    state = entry.stat(follow_symlinks=False)
                    if S_ISREG(state.st_mode) and "#" not in entry.name:  # the library's unfinished files have a `#`
                        yield StoredObject(
                            key=key,
                            size=state.st_size,
                            modified=datetime.fromtimestamp(state.st_mtime, UTC),
                            tag=f"{state.st_ino:x}-{state.st_mtime_ns:x}-{state.st_size:x}",
                        )


def _remove_files(folder: Path, older_than: float) -> None:
    with suppress(FileNotFoundError):
        for entry in os.scandir(folder):
            with suppress(FileNotFoundError):
                if entry.stat().st_mtime < min(older_than, time()):
                    os.unlink(entry)
