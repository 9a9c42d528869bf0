"""Events of an execution as a person reads them: output as it comes, progress, approvals, the result, the error."""

import json
import math
import os
import shlex
import sys
from typing import Any, Final, TextIO

from mcp_exec_client.cli.backends.backend import is_unobserved
from mcp_exec_client.cli.options import Object
from mcp_exec_client.cli.output import TextWriter, escape, escape_line

_BAR_WIDTH: Final = 30
_CLEAR: Final = "\r\x1b[K"


class EventPrinter:
    """Writes output and result to standard output, and all else to standard error."""

    def __init__(self, name: str, *, program: str, with_output: bool = True, with_result: bool = True) -> None:
        self._name = name
        self._program = program
        self._with_output = with_output
        self._with_result = with_result
        self._out, self._err = TextWriter(sys.stdout), TextWriter(sys.stderr)
        self._bar = ProgressBar(sys.stderr)
        self._waiting = ""

    def show(self, event: Object) -> None:
        """Write one event. Raises BrokenPipeError if the reader of the output is gone."""
        kind = event.get("type")
        if kind == "progress":
            self._bar.update(event)
        elif kind in ("stdout", "stderr"):
            if self._with_output:
                self._write(self._out if kind == "stdout" else self._err, str(event.get("text") or ""))
        elif kind == "result" and self._with_result:
            self._show_result(event.get("value"))
        elif kind == "status":
            self._show_status(event)
        elif kind == "end":
            self._bar.hide()
            self._show_error(event.get("error"))
            self._show_notes(event.get("notes") or [])

    def note(self, text: str) -> None:
        """Write a line about the execution to standard error."""
        self._bar.hide()
        self._out_line()
        self._err.end_line()
        self._err.write(escape_line(text) + "\n")
        self._bar.show()

    def show_approval(self, approval: Object | None) -> None:
        """Write that a call waits, as the gateway or the API server has it.

        None stands for an approval that only the sandbox has reported: nothing of that is part of a command.
        """
        if approval is None:
            command = shlex.join([*self._program.split(), "approvals", self._name])
            self.note(f"{self._name} reports a call that waits for an approval, which is not known; see: {command}")
            return
        until = f" until {approval['expiresAt']}" if approval.get("expiresAt") else ""
        command = shlex.join([*self._program.split(), "approve", self._name, str(approval["id"])])
        self.note(f"{self._name} waits{until} for an approval of {approval['tool']}; decide by: {command} (or deny)")

    def _write(self, writer: TextWriter, text: str) -> None:
        self._bar.hide()
        writer.write(text)
        if self._out.at_line_start and self._err.at_line_start:
            self._bar.show()

    def _show_result(self, value: Any) -> None:
        if value is None:
            return
        self._bar.hide()
        self._out.end_line()
        indent = 2 if isinstance(value, dict | list) else None
        text = value if isinstance(value, str) else json.dumps(value, indent=indent, ensure_ascii=False)
        self._out.write(text + "\n")

    def _show_status(self, event: Object) -> None:
        reason, queue = event.get("reason") or "", event.get("queue") or {}
        if event.get("phase") != "Pending" or not reason or is_unobserved(event):
            return
        place = f", position {queue['position']} of {queue['of']}" if {"position", "of"} <= set(queue) else ""
        if (text := f"{self._name} waits: {reason}{place}") != self._waiting:
            self._waiting = text
            self.note(text)

    def _show_error(self, error: Object | None) -> None:
        self._out_line()
        if error and error.get("traceback"):
            self._err.end_line()
            self._err.write(escape(str(error["traceback"]).rstrip("\n")) + "\n")

    def _show_notes(self, notes: list[Object]) -> None:
        for note in notes:
            where = f"{note['path']}: " if note.get("path") else ""
            self.note(f"note: {where}{note.get('message', '')}")

    def _out_line(self) -> None:
        """End an unfinished line of output on a terminal, which shows both streams."""
        if self._out.is_terminal:
            self._out.end_line()


def describe_end(name: str, end: Object) -> str:
    """Return how an execution ended and what to do, on one line."""
    from mcp_exec_api.reasons.execution import Reason

    error, reason = end.get("error") or {}, str(end.get("reason") or "")
    if end.get("phase") is None:
        return f"{name} was deleted before its end"
    line = f" in line {error['line']}" if error.get("line") else ""
    cause = ": ".join(str(error[key]) for key in ("type", "message") if error.get(key) and error[key] != reason)
    text = " ".join(filter(None, (f"{name}: {end['phase']}", reason))) + line + (f": {cause}" if cause else "")
    try:
        remedy = Reason(reason).remedy if reason not in ("", "UserError", "Cancelled") else ""
    except ValueError:
        remedy = ""
    return f"{text} -> {remedy}" if remedy else text


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
            import shutil

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
