"""Progress that code reports: a bar on a terminal, lines elsewhere."""

import math
import os
import shutil
from typing import Final, TextIO

from mcp_exec_client.cli.options import Object
from mcp_exec_client.cli.terminal import escape_line

_BAR_WIDTH: Final = 30
_CLEAR: Final = "\r\x1b[K"


class ProgressBar:
    """The newest progress of an execution."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_bar = stream.isatty() and os.environ.get("TERM") != "dumb"
        self._line = ""
        self._visible = False

    def update(self, event: Object) -> None:
        """Take in a `progress` event."""
        line = describe_progress(event)
        if line == self._line:
            return
        self._line = line
        if self._is_bar:
            self.hide()
            self.show()
        else:
            self._stream.write(f"progress: {line}\n")
            self._stream.flush()

    def hide(self) -> None:
        """Remove the bar from the terminal, so that another text can be written."""
        if self._visible:
            self._stream.write(_CLEAR)
            self._stream.flush()
            self._visible = False

    def show(self) -> None:
        """Draw the bar again, below what was written. The cursor has to be at the start of a line."""
        if self._is_bar and self._line:
            self._stream.write(self._line[: shutil.get_terminal_size().columns - 1])
            self._stream.flush()
            self._visible = True


def describe_progress(event: Object) -> str:
    """Return a `progress` event on one line: `[#####.....]  50% 5/10 text`, or `5 text` without a total."""
    done, total = _number(event.get("done")), _number(event.get("total"))
    text = escape_line(str(event.get("text") or ""))[:200]
    if total is None or total <= 0:
        return f"{_format(done or 0)} {text}".rstrip()
    share = min(max((done or 0) / total, 0), 1)
    bar = "#" * int(share * _BAR_WIDTH)
    return f"[{bar:.<{_BAR_WIDTH}}] {share:4.0%} {_format(done or 0)}/{_format(total)} {text}".rstrip()


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def _format(number: float) -> str:
    return f"{number:.6g}" if abs(number) < 1e6 or number != int(number) else f"{int(number)}"
