"""Files and archives that the code has open: found among all its objects, written or closed in a safe order."""

import _io
import contextlib
import gc
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ARCHIVES = (
    ("zipfile", "ZipFile"),
    ("tarfile", "TarFile"),
    ("sqlite3", "Connection"),
    ("pandas", "ExcelWriter"),
)
"""Classes, besides those of `io`, whose `close` completes a file. A database drops what was not committed."""

NAMED_FILES = 3
_NEVER_BUFFERED = (_io.BytesIO, _io.StringIO, _io.BufferedReader)
_CONTENT = ("buffer", "raw")


class OpenFiles:
    """Open files of the code. They are kept alive, so that no collection of garbage closes one in a wrong order."""

    def __init__(self) -> None:
        self._objects: dict[int, Any] = {}
        self._sizes: dict[str, int] = {}
        self.is_complete = False
        """Whether all objects were looked at."""
        self.problems: list[tuple[object, Exception]] = []
        """What could not be written, and why."""

    @classmethod
    def find(cls) -> "OpenFiles":
        """Find all open files among the objects that exist."""
        files = cls()
        files.add_others()
        return files

    def add_others(self) -> None:
        """Add the files that exist now, for example those that finalizers have opened."""
        self.is_complete = False
        archives = _list_archives()
        is_wanted: dict[type, bool] = {}
        for item in gc.get_objects():
            kind = type(item)
            wanted = is_wanted.get(kind)
            if wanted is None:
                wanted = is_wanted[kind] = _is_file_class(kind) or issubclass(kind, archives)
            if wanted and id(item) not in self._objects and not _is_closed(item):
                self._objects[id(item)] = item
                self._note_size(item)
        self.is_complete = True

    def flush(self) -> None:
        """Write all buffers."""
        for item in self._peel():
            if isinstance(item, _io._IOBase):
                self._try(item, "flush")

    def release(self) -> None:
        """Keep the files alive no more. Their sizes are still known."""
        self._objects.clear()
        self.problems.clear()
        self.is_complete = False

    def close(self) -> None:
        """Close all files, each before those that it writes to."""
        for item in self._peel():
            if not _is_closed(item):
                self._try(item, "close")

    def describe_flushed(self, folder: Path) -> str | None:
        """Return a sentence about the files in `folder` that have grown since they were found, or None."""
        grown = {}
        for path, before in self._sizes.items():
            with contextlib.suppress(OSError):
                if path.startswith(f"{folder}/") and (size := os.stat(path).st_size - before) > 0:
                    grown[os.path.relpath(path, folder)] = size
        if not grown:
            return None
        names, total = list(grown), sum(grown.values())
        more = len(names) - NAMED_FILES
        listed = ", ".join(names[:NAMED_FILES]) + (f" and {more} more" if more > 0 else "")
        one = len(names) == 1
        unit = "byte was" if total == 1 else "bytes were"
        return f"The code did not close {listed}; {'its' if one else 'their'} last {total} {unit} written at the end."

    def _note_size(self, item: Any) -> None:
        with contextlib.suppress(Exception):
            if isinstance(item, _io.FileIO) and item.writable() and isinstance(item.name, str):
                path = os.path.abspath(item.name)
                self._sizes.setdefault(path, os.fstat(item.fileno()).st_size)

    def _peel(self) -> Iterable[Any]:
        """Return the files in an order that allows closing them: none before one that writes to it."""
        left = dict(self._objects)
        while left:
            inner = {id(value) for item in left.values() for value in _list_content(item)}
            outer = [key for key in left if key not in inner] or list(left)
            for key in sorted(outer, key=lambda key: _rank(left[key])):
                yield left.pop(key)

    def _try(self, item: Any, method: str) -> None:
        try:
            getattr(item, method)()
        except Exception as error:
            self.problems.append((item, error))


def _list_archives() -> tuple[type, ...]:
    classes = [getattr(sys.modules.get(module), name, None) for module, name in ARCHIVES]
    return tuple(kind for kind in classes if isinstance(kind, type))


def _is_file_class(kind: type) -> bool:
    return issubclass(kind, _io._IOBase) and kind not in _NEVER_BUFFERED


def _is_closed(item: Any) -> bool:
    try:
        if isinstance(item, _io._IOBase):
            return bool(item.closed)
        if hasattr(item, "_handles"):  # a writer of pandas
            return bool(getattr(item._handles.handle, "closed", False))
        return bool(getattr(item, "closed", False)) or getattr(item, "fp", item) is None
    except Exception:
        return True


def _list_content(item: Any) -> list[Any]:
    """Return the objects that a file writes to, among others."""
    values = list(getattr(item, "__dict__", {}).values())
    for name in _CONTENT:
        with contextlib.suppress(Exception):
            values.append(getattr(item, name))
    return [value for value in values if value is not item]


def _rank(item: Any) -> int:
    if isinstance(item, _io._TextIOBase):
        return 0
    if isinstance(item, _io.BufferedWriter | _io.BufferedRandom | _io.BufferedRWPair):
        return 3
    if isinstance(item, _io._RawIOBase):
        return 4
    return 1 if isinstance(item, _io._IOBase) else 2
