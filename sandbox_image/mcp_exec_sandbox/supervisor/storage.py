"""How much the code has written to the two folders that it can write to."""

import asyncio
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

MAX_ENTRIES = 50_000
"""More files and folders than this count as a full disk, as each of them takes room outside its data."""

ENTRIES_PER_TURN = 500
BLOCK_BYTES = 512


async def measure(folders: Iterable[Path], processes: Iterable[int], *, enough: int) -> int:
    """Bytes on disk under `folders` and in deleted files that `processes` still hold open.

    Files with several names count once. The walk gives way to the event loop and stops beyond `enough` bytes.
    """
    total = 0
    seen: set[tuple[int, int]] = set()
    for number, entry in enumerate(_entries(folders, processes)):
        if (entry.st_dev, entry.st_ino) not in seen:
            total += entry.st_blocks * BLOCK_BYTES
        if entry.st_nlink != 1:
            seen.add((entry.st_dev, entry.st_ino))
        if total > enough:
            return total
        if number >= MAX_ENTRIES:
            return enough + 1
        if number % ENTRIES_PER_TURN == ENTRIES_PER_TURN - 1:
            await asyncio.sleep(0)
    return total


def _entries(folders: Iterable[Path], processes: Iterable[int]) -> Iterator[os.stat_result]:
    for folder in folders:
        yield from _walk(folder)
    for pid in processes:
        yield from _deleted_files(pid)


def _walk(folder: Path) -> Iterator[os.stat_result]:
    waiting = [str(folder)]
    while waiting:
        try:
            scan = os.scandir(waiting.pop())
        except OSError:
            continue
        with scan:
            for entry in scan:
                try:
                    status = entry.stat(follow_symlinks=False)
                except OSError:
                    continue
                yield status
                if stat.S_ISDIR(status.st_mode):
                    waiting.append(entry.path)


def _deleted_files(pid: int) -> Iterator[os.stat_result]:
    folder = f"/proc/{pid}/fd"
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in names:
        try:
            status = os.stat(f"{folder}/{name}")
        except OSError:
            continue
        if stat.S_ISREG(status.st_mode) and status.st_nlink == 0:
            yield status
