"""Standard output and error of the code: line-buffered text with a count of the bytes written.

Messages on the control channel carry the counts, so that the supervisor knows which output precedes a message.
"""

import contextlib
import io
import sys
from typing import Any


class _CountingFile(io.FileIO):
    """A descriptor that counts the bytes written to it by this process. Output of other processes isn't counted."""

    def __init__(self, descriptor: int, name: str) -> None:
        super().__init__(descriptor, "wb", closefd=False)
        self.written = 0
        # Python's own name of the stream, which some programs print.
        self.name = name

    def write(self, data: Any, /) -> int:
        """Write and count."""
        size = super().write(data)
        self.written += size
        return size


class _LastingBuffer(io.BufferedWriter):
    """Buffer that stays open: code that wraps it in a stream of its own would close it with that stream."""

    def close(self) -> None:
        """Write the buffer."""
        self.flush()


class StandardStreams:
    """Both output streams of this process."""

    def __init__(self) -> None:
        self._files = (_CountingFile(1, "<stdout>"), _CountingFile(2, "<stderr>"))
        # `backslashreplace` escapes what UTF-8 can't encode instead of raising.
        self._texts = tuple(
            io.TextIOWrapper(
                _LastingBuffer(file), encoding="utf-8", errors="backslashreplace", newline="\n", line_buffering=True
            )
            for file in self._files
        )

    def install(self) -> None:
        """Make them the interpreter's streams."""
        sys.stdout, sys.stderr = self._texts
        sys.__stdout__, sys.__stderr__ = self._texts  # type: ignore[misc]

    def flush(self) -> None:
        """Write buffered output."""
        for text in self._texts:
            with contextlib.suppress(Exception):
                text.flush()

    def count_written(self) -> list[int]:
        """Return the bytes written to each stream."""
        return [file.written for file in self._files]
