"""Searches the sandbox that it runs in for a text: environment, files, memory, and what tools answered.

It is put behind code that calls tools. The text comes in two halves that are never joined, so that what is searched
for is not what is found; at the end they are, and memory is searched once more: who finds nothing must be able to find.
"""

import ctypes
import os
from collections.abc import Iterator

FOLDERS = ("/workspace", "/tmp", "/etc", "/opt", "/run", "/var", "/home", "/dev/shm")
LARGEST = 32 * 1024 * 1024
STEP = 1024 * 1024
LIBC = ctypes.CDLL(None)


class Search:
    """What was looked at, and where the text was found."""

    def __init__(self, first: bytes, second: bytes) -> None:
        self.first, self.second = first, second
        self.looked = dict.fromkeys(("environment", "files", "memory", "answers"), 0)
        self.found: list[str] = []

    def note(self, place: str, where: str, data: bytes) -> None:
        self.looked[place] += len(data)
        at = data.find(self.first)
        while at >= 0:
            end = at + len(self.first)
            if data[end : end + len(self.second)] == self.second and where not in self.found:
                self.found.append(where)
            at = data.find(self.first, at + 1)

    def environments(self) -> None:
        self.note("environment", "environment", repr(dict(os.environ)).encode())
        for process in filter(str.isdecimal, os.listdir("/proc")):
            self.note("environment", f"environment of {process}", contents(f"/proc/{process}/environ"))

    def files(self) -> None:
        for top in FOLDERS:
            for folder, _, names in os.walk(top):
                for path in (os.path.join(folder, name) for name in names):
                    if os.path.isfile(path) and os.path.getsize(path) < LARGEST:
                        self.note("files", path, contents(path))

    def memory(self, where: str) -> None:
        for start, end in list(regions()):
            for at in range(start, end, STEP):
                # parts overlap, so that nothing is cut in two
                self.note("memory", where, part(at, min(STEP + 256, end - at)))


def contents(path: str) -> bytes:
    """Return a file's bytes, or none if this user may not read it."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def regions() -> Iterator[tuple[int, int]]:
    """What this process may read of its memory, but for what the kernel puts there."""
    with open("/proc/self/maps") as file:
        for line in file:
            bounds, rights, *rest = line.split()
            if rights[0] == "r" and not (rest[3:] and rest[3].startswith("[v")):
                start, end = (int(bound, 16) for bound in bounds.split("-"))
                yield start, end


def part(start: int, size: int) -> bytes:
    """Some of this process's memory. Pages that are gone meanwhile are an error, not the end."""
    try:
        with open("/proc/self/mem", "rb", buffering=0) as file:
            file.seek(start)
            return file.read(size)
    except (OSError, OverflowError, ValueError):
        return through_a_pipe(start, size)


def through_a_pipe(start: int, size: int) -> bytes:
    """The same where /proc/self/mem can't be read: the kernel's read fails where the processor's would kill."""
    receiver, sender = os.pipe()
    found = b""
    try:
        while len(found) < size:
            count = LIBC.write(sender, ctypes.c_void_p(start + len(found)), min(4096, size - len(found)))
            if count <= 0:
                break
            found += os.read(receiver, count)
        return found
    finally:
        os.close(receiver)
        os.close(sender)


def search(halves: list[str], answer: object) -> list[object]:
    """The answer, where the text was found, and how many bytes were looked at."""
    found = Search(halves[0].encode(), halves[1].encode())
    found.environments()
    found.files()
    found.note("answers", "answers", repr(answer).encode())
    found.memory("memory")
    kept = found.first + found.second
    found.memory("control")
    del kept
    return [answer, found.found, found.looked]
