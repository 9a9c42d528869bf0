"""The code's standard output and error: text that goes out line by line, with a count of the bytes.

The counts travel with messages on the control channel, so that the supervisor can tell what was written before one.
"""

import contextlib
import io
import sys
from typing import Any


class _Counted(io.FileIO):
    """A descriptor that counts what is written to it here; what other processes write is not counted."""

    def __init__(self, descriptor: int, name: str) -> None:
        super().__init__(descriptor, "wb", closefd=False)
        self.written = 0
        # As Python's own: some programs print it.
        self.name = name

    def write(self, data: Any, /) -> int:
        """Write and count."""
        size = super().write(data)
        self.written += size
        return size


class Streams:
    """Both streams of this process."""

    def __init__(self) -> None:
        self._raw = (_Counted(1, "<stdout>"), _Counted(2, "<stderr>"))
        # What UTF-8 can't carry is escaped instead of raising.
        self._texts = tuple(
            io.TextIOWrapper(
                io.BufferedWriter(raw), encoding="utf-8", errors="backslashreplace", newline="\n", line_buffering=True
            )
            for raw in self._raw
        )

    def install(self) -> None:
        """Make them the interpreter's."""
        sys.stdout, sys.stderr = self._texts
        sys.__stdout__, sys.__stderr__ = self._texts  # type: ignore[misc]

    def flush(self) -> None:
        """Write out what is buffered."""
        for text in self._texts:
            with contextlib.suppress(Exception):
                text.flush()

    def written(self) -> list[int]:
        """Bytes that have been written to each."""
        return [raw.written for raw in self._raw]
