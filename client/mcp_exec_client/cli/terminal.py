"""Texts from code, servers and callers on a terminal: without control characters that it would interpret."""

import re
import sys
from typing import Final, TextIO

_JOINERS: Final = "\u200c\u200d"
"""Invisible characters that scripts and emojis need and that change nothing else."""
_SUSPECT: Final = re.compile(r"[^ -~\n\t]")


def escape(text: str) -> str:
    """Return the text with each unprintable character, except tabs and line feeds, as its escape in Python."""
    return _SUSPECT.sub(_escape_character, text)


def escape_line(text: str) -> str:
    """Return the text on one line, with each unprintable character as its escape in Python."""
    return escape(text).replace("\n", "\\n").replace("\t", " ")


def is_safe(text: str) -> bool:
    """Return whether a terminal would show the text as it is."""
    return escape(text) == text


def _escape_character(found: re.Match[str]) -> str:
    character = found[0]
    if character.isprintable() or character in _JOINERS:
        return character
    return character.encode("ascii", "backslashreplace").decode() if ord(character) > 0x7F else repr(character)[1:-1]


class TextWriter:
    """Writes texts of a stream: as they are to files and pipes, escaped to a terminal.

    A carriage return is a line feed on a terminal, so that no text hides another.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.is_terminal = stream.isatty()
        self.at_line_start = True
        self._after_return = False

    def write(self, text: str) -> None:
        """Write and flush a text. Raises BrokenPipeError if the reader is gone."""
        if not text:
            return
        shown = self._neutralize(text) if self.is_terminal else text
        encoding = self._stream.encoding or "utf-8"
        self._stream.write(shown.encode(encoding, "backslashreplace").decode(encoding))
        self._stream.flush()
        if shown:
            self.at_line_start = shown.endswith("\n")

    def end_line(self) -> None:
        """Start a new line, unless one has just started."""
        if not self.at_line_start:
            self.write("\n")

    def _neutralize(self, text: str) -> str:
        after_return, self._after_return = self._after_return, text.endswith("\r")
        if after_return:
            text = text.removeprefix("\n")
        return escape(text.replace("\r\n", "\n").replace("\r", "\n"))


def print_line(text: str) -> None:
    """Write one line to standard output, escaped."""
    sys.stdout.write(escape_line(text) + "\n")


def print_note(text: str) -> None:
    """Write one line to standard error, escaped."""
    sys.stderr.write(escape_line(text) + "\n")
    sys.stderr.flush()
