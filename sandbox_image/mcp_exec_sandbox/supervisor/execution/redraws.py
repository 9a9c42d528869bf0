"""Lines that code redraws, such as progress bars: a terminal shows their last state, so only that is kept."""

import re

MAX_HELD = 4096
"""Characters of a line that is being redrawn. A longer one is written as it is."""
_OVERWRITTEN = re.compile("[^\b\r\n]\b(?=[^\b\r\n])")
"""A character that the next one overwrites, as those of spinners are: nearly all backspaces of long outputs."""
_MAX_BACKSPACES = 256
_COMPACT = 1024
"""A held line of this many characters is reduced to its present state."""


class RedrawnLines:
    r"""Text without the earlier states of lines that `\r` or backspaces redraw.

    Other text passes at once. A line is held from its first redraw to its end. What was written of it before stays, and
    a `\r` or backspaces precede its last state.
    """

    def __init__(self) -> None:
        self._held = ""
        """The line that is being redrawn, or a `\r` that may belong to a line break."""
        self._is_open = False
        """Whether the beginning of the line was written before."""
        self.has_dropped = False
        """Whether a state was left out."""

    def write(self, text: str) -> str:
        """Add text, and return what can be written."""
        if not self._held and "\r" not in text and "\b" not in text:
            self._is_open = not text.endswith("\n") if text else self._is_open
            return text
        whole = self._held + text
        shorter = _OVERWRITTEN.sub("", whole) if "\b" in whole else whole
        self.has_dropped = self.has_dropped or len(shorter) < len(whole)
        *lines, last = shorter.split("\n")
        self._held = ""
        written = [self._finish_line(line) + "\n" for line in lines]
        if _is_redrawn(last):
            self._held = last if len(last) < _COMPACT else self._reduce(last)
            if len(self._held) > MAX_HELD:
                written.append(self._finish_line(self._held))
                self._held, self._is_open = "", True
        elif last:
            written.append(last)
            self._is_open = True
        return "".join(written)

    def finish(self) -> str:
        """Return the rest."""
        rest, self._held = self._held, ""
        return self._finish_line(rest) if rest else ""

    def _finish_line(self, line: str) -> str:
        """Return a line in its last state."""
        is_open, self._is_open = self._is_open, False
        end = "\r" if line.endswith("\r") else ""
        body = line.removesuffix("\r")
        if not _is_redrawn(body):
            return line
        state, is_redrawn = self._choose_state(body)
        drawn, _, excess = _draw(state)
        start = "" if not is_open else "\r" if is_redrawn else "\b" * excess
        return start + drawn + end

    def _reduce(self, line: str) -> str:
        """Return a shorter line with the same state: its cursor is where it was."""
        body = line.removesuffix("\r")
        state, is_redrawn = self._choose_state(body)
        drawn, cursor, excess = _draw(state)
        start = "\r" if is_redrawn else "\b" * excess
        return start + drawn + "\b" * (len(drawn) - cursor) + line[len(body) :]

    def _choose_state(self, body: str) -> tuple[str, bool]:
        r"""Return what follows the last `\r` and is not empty, and whether anything preceded it."""
        states = [state for state in body.split("\r") if state]
        state = states[-1] if states else ""
        self.has_dropped = self.has_dropped or len(states) > 1 or "\b" in state
        return state, "\r" in body


def _is_redrawn(line: str) -> bool:
    """Return whether a line has redraws. One with very many backspaces is no text, and is left as it is."""
    backspaces = line.count("\b")
    return backspaces <= _MAX_BACKSPACES and (backspaces > 0 or "\r" in line)


def _draw(state: str) -> tuple[str, int, int]:
    """Return a line after its backspaces, the place of the cursor, and the backspaces beyond the line's beginning."""
    if "\b" not in state:
        return state, len(state), 0
    drawn: list[str] = []
    cursor = excess = 0
    for place, part in enumerate(state.split("\b")):
        if place and cursor:
            cursor -= 1
        elif place:
            excess += 1
        drawn[cursor : cursor + len(part)] = part
        cursor += len(part)
    return "".join(drawn), cursor, excess
