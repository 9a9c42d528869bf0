"""Disk space that the code uses in the two folders that it can write to."""

import asyncio
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

MAX_ENTRIES = 50_000
"""More files and folders than this count as a full disk, because each uses space in addition to its data."""

ENTRIES_PER_TURN = 500
BLOCK_BYTES = 512
DELETED_SUFFIX = " (deleted)"


@dataclass(frozen=True, kw_only=True)
class FileEntry:
    """A file or folder: device and inode, the bytes that it occupies, and whether it can have other names."""

    key: tuple[int, int]
    size: int
    has_other_names: bool


async def measure_storage(folders: Iterable[Path], processes: Iterable[str], *, enough: int) -> int:
    """Return the bytes on disk below `folders` and in deleted files that `processes` still hold open.

    `processes` are folders of /proc.

    A file with several names counts once. The walk yields to the event loop and stops once it has counted more than
    `enough` bytes.
    """
    total = counted = 0
    seen: set[tuple[int, int]] = set()
    for number, entry in enumerate(_list_entries(folders, processes)):
        if number % ENTRIES_PER_TURN == ENTRIES_PER_TURN - 1:
            await asyncio.sleep(0)
        if entry is None:
            continue
        if entry.key not in seen:
            total += entry.size
        if entry.has_other_names:
            seen.add(entry.key)
        if total > enough:
            return total
        counted += 1
        if counted > MAX_ENTRIES:
            return enough + 1
    return total


def _list_entries(folders: Iterable[Path], processes: Iterable[str]) -> Iterator[FileEntry | None]:
    """Yield the files, and None for each open descriptor that counts for nothing, because it costs time as well."""
    for folder in folders:
        yield from _walk(folder)
    for process in processes:
        yield from _list_deleted_files(f"{process}/fd")


def _walk(folder: Path) -> Iterator[FileEntry]:
    queue = [str(folder)]
    while queue:
        try:
            scan = os.scandir(queue.pop())
        except OSError:
            continue
        with scan:
            for item in scan:
                try:
                    status = item.stat(follow_symlinks=False)
                except OSError:
                    continue
                is_folder = stat.S_ISDIR(status.st_mode)
                yield FileEntry(
                    key=(status.st_dev, status.st_ino),
                    size=status.st_blocks * BLOCK_BYTES,
                    has_other_names=status.st_nlink > 1 and not is_folder,
                )
                if is_folder:
                    queue.append(item.path)


def _list_deleted_files(folder: str) -> Iterator[FileEntry | None]:
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in names:
        path = f"{folder}/{name}"
        try:
            # The link's text decides, because gVisor reports wrong link counts.
            status = os.stat(path) if os.readlink(path).endswith(DELETED_SUFFIX) else None
        except OSError:
            status = None
        if status is None or not stat.S_ISREG(status.st_mode):
            yield None
        else:
            size = status.st_blocks * BLOCK_BYTES or status.st_size
            yield FileEntry(key=(status.st_dev, status.st_ino), size=size, has_other_names=True)
