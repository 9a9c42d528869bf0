"""How much the code has written to the two folders that it can write to."""

import asyncio
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

MAX_ENTRIES = 50_000
"""More files and folders than this count as a full disk, as each of them takes room outside its data."""

ENTRIES_PER_TURN = 500
BLOCK_BYTES = 512
DELETED = " (deleted)"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A file or folder: where it is kept, the bytes it takes, and whether it can be met again by another name."""

    key: tuple[int, int]
    size: int
    has_other_names: bool


async def measure(folders: Iterable[Path], processes: Iterable[int], *, enough: int) -> int:
    """Bytes on disk under `folders` and in deleted files that `processes` still hold open.

    Files with several names count once. The walk gives way to the event loop and stops beyond `enough` bytes.
    """
    total = 0
    seen: set[tuple[int, int]] = set()
    for number, entry in enumerate(_entries(folders, processes)):
        if entry.key not in seen:
            total += entry.size
        if entry.has_other_names:
            seen.add(entry.key)
        if total > enough:
            return total
        if number >= MAX_ENTRIES:
            return enough + 1
        if number % ENTRIES_PER_TURN == ENTRIES_PER_TURN - 1:
            await asyncio.sleep(0)
    return total


def _entries(folders: Iterable[Path], processes: Iterable[int]) -> Iterator[Entry]:
    for folder in folders:
        yield from _walk(folder)
    for pid in processes:
        yield from _deleted_files(pid)


def _walk(folder: Path) -> Iterator[Entry]:
    waiting = [str(folder)]
    while waiting:
        try:
            scan = os.scandir(waiting.pop())
        except OSError:
            continue
        with scan:
            for found in scan:
                try:
                    status = found.stat(follow_symlinks=False)
                except OSError:
                    continue
                is_folder = stat.S_ISDIR(status.st_mode)
                yield Entry(
                    key=(status.st_dev, status.st_ino),
                    size=status.st_blocks * BLOCK_BYTES,
                    has_other_names=status.st_nlink > 1 and not is_folder,
                )
                if is_folder:
                    waiting.append(found.path)


def _deleted_files(pid: int) -> Iterator[Entry]:
    folder = f"/proc/{pid}/fd"
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in names:
        path = f"{folder}/{name}"
        try:
            # Told by the link's text: gVisor's link counts are no help.
            if not os.readlink(path).endswith(DELETED):
                continue
            status = os.stat(path)
        except OSError:
            continue
        if stat.S_ISREG(status.st_mode):
            size = status.st_blocks * BLOCK_BYTES or status.st_size
            yield Entry(key=(status.st_dev, status.st_ino), size=size, has_other_names=True)
