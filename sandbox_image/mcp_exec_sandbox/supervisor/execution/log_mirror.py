"""Mirror of the code's output in the log of the container, for `kubectl logs -f`. Only pools that ask for it have one.

Each line has the prefix `stdout | ` or `stderr | `, so that no output looks like a line of the supervisor. Characters
that a terminal would interpret are escaped. Output is bounded where its events are; a long line is split.
"""

import os
import select
from typing import Any

MAX_LINE = 1000
"""Characters of a line. With its prefix and in UTF-8 it has less than 4096 bytes, which a pipe takes as a whole."""


class LogMirror:
    """Writes the texts of the events `stdout` and `stderr` to a file descriptor."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)
        self._rests: dict[str, str] = {}
        """By stream, the last line as far as it was written."""
        self._dropped = 0

    def add(self, kind: str, fields: dict[str, Any]) -> None:
        """Add an event. `end` also writes lines without a line break."""
        if kind in ("stdout", "stderr"):
            self._add_text(kind, str(fields.get("text") or ""))
        elif kind == "end":
            for stream, rest in self._rests.items():
                self._write_line(stream, rest)
            self._rests.clear()

    def _add_text(self, stream: str, text: str) -> None:
        *lines, rest = (self._rests.pop(stream, "") + text).split("\n")
        for line in lines:
            self._write_line(stream, line)
        while len(rest) > MAX_LINE:
            self._write_line(stream, rest[:MAX_LINE])
            rest = rest[MAX_LINE:]
        if rest:
            self._rests[stream] = rest

    def _write_line(self, stream: str, line: str) -> None:
        text = escape(line)
        for start in range(0, max(1, len(text)), MAX_LINE):
            self._write(f"{stream} | {text[start : start + MAX_LINE]}")

    def _write(self, line: str) -> None:
        """Write a line, or drop it if nobody reads the log fast enough: the supervisor must not wait."""
        if self._dropped and self._put(f"({self._dropped} lines of output are not in this log)"):
            self._dropped = 0
        if self._dropped or not self._put(line):
            self._dropped += 1

    def _put(self, line: str) -> bool:
        data = line.encode("utf-8", "replace") + b"\n"
        if not any(event & select.POLLOUT for _, event in self._poll.poll(0)):
            return False
        try:
            os.write(self._descriptor, data)
        except OSError:
            return False
        return True


def escape(line: str) -> str:
    """Return a line with backslash escapes instead of characters that are not printable, except for tabs."""
    if line.isprintable():
        return line
    return "".join(
        character if character.isprintable() or character == "\t" else character.encode("unicode_escape").decode()
        for character in line
    )
