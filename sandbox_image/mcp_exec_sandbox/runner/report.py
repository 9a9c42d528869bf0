"""Report of a run: its value, or its error with type, message, line and a traceback of the agent's own frames.

Each part is bounded.
"""

import contextlib
import dataclasses
import errno
import math
import threading
import traceback
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence, Sized
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from mcp_exec_sandbox.protocol import (
    AGENT_FILE,
    MESSAGE_CHARACTERS,
    SERVERS_FOLDER,
    TRACEBACK_CHARACTERS,
    TYPE_CHARACTERS,
    ErrorFields,
    LimitName,
    Notes,
)
from mcp_exec_sandbox.runner import limits
from mcp_exec_sandbox.runner.limits import explain_recursion
from mcp_exec_sandbox.runner.loop import iterate
from mcp_exec_sandbox.values.changes import WHOLE_FLOAT, Changes, ValueChange
from mcp_exec_sandbox.values.walk import Walk, escape_surrogates
from mcp_exec_tools.text import measure_json, shorten, shorten_json, shorten_line

_ROOT = "result"
_STORAGE_ERRORS = frozenset({errno.ENOSPC, errno.EFBIG, errno.EDQUOT})
_LARGE_FLOAT = 1e21
"""Floats from here on have an exponent in JSON."""
_HEAD = "Traceback (most recent call last):"
_PLACE_CHARACTERS = 60
_AGENT_PREFIX = AGENT_FILE.rstrip(">")
_PROCESS_MODULES = ("subprocess.py", "popen_fork.py", "popen_spawn_posix.py", "util.py")


@dataclasses.dataclass(frozen=True, kw_only=True)
class JsonResult:
    """A JSON value of at most the requested size, and whether parts were left out."""

    value: Any
    truncated: bool


def convert_to_json(value: object, limit: int, *, notes: Notes) -> JsonResult:
    """Convert `value`. A value of more than `limit` bytes of JSON becomes a string, cut as in `shorten_json`.

    What the conversion changes is added to `notes`.
    """
    if type(value) is str and escape_surrogates(value) is value:
        text, is_cut = shorten_json(value, limit)
        if is_cut:
            notes.add("OutputCut", _describe_cut(value, value, limit, is_head=False), path=_ROOT)
        return JsonResult(value=text, truncated=is_cut)
    walk = _ResultWalk(limit)
    converted = walk.convert(value)
    plain, is_cut = shorten_json(converted, limit, is_head=walk.full)
    if is_cut:
        notes.add("OutputCut", _describe_cut(value, converted, limit, is_head=walk.full), path=_ROOT)
    for changes in walk.list_changes():
        changes.write(notes)
    return JsonResult(value=plain, truncated=is_cut or walk.cut)


class _ResultWalk(Walk):
    """A conversion that gives everything a form, and collects what it changes."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self.changes = Changes(_ROOT)
        self._has_fraction = False
        self._whole = Changes(_ROOT)
        """Floats that look like integers in the result."""

    def list_changes(self) -> Iterable[Changes]:
        """Return the changes. A float with a fraction shows that those without are floats, too."""
        return (self.changes,) if self._has_fraction else (self.changes, self._whole)

    def _float(self, value: float) -> Any:
        if not value.is_integer():
            self._has_fraction |= math.isfinite(value)
        elif abs(value) < _LARGE_FLOAT and (value or math.copysign(1, value) > 0):
            self._whole.add(WHOLE_FLOAT, self._path)
        return super()._float(value)

    def _read_async(self, iterator: AsyncIterator[Any], depth: int) -> Any:
        return self._array(self._read(iterate(iterator)), depth)

    def report(self, change: ValueChange, what: str = "") -> None:
        self.changes.add(change, self._path, what)


def _describe_cut(value: object, converted: Any, limit: int, *, is_head: bool) -> str:
    """Return a sentence that says how long the result is and what is left of it."""
    if not is_head:
        size = f"has {measure_json(converted)} bytes as JSON, more than the {limit} of limits.outputBytes"
        return f"It {size}: its middle is cut{'' if isinstance(converted, str) else ', so it is a text'}."
    try:
        items = f", {len(value)} items in all" if isinstance(value, Sized) else ""
    except Exception:
        items = ""
    return f"It has more than the {limit} bytes of limits.outputBytes{items}: it is a text with the beginning."


_OUTER_CALLS, _INNER_CALLS = 20, 200
"""Calls of a traceback that are kept. To format a million takes longer than the run."""


def report_success(value: Any, limit: int, *, notes: Notes) -> dict[str, Any]:
    """Build the message `done` of code that came to its end, with its value in at most `limit` bytes.

    What the conversion of the value changes is added to the notes of the run.
    """
    if value is None:
        return report_end()
    result = convert_to_json(value, limit, notes=notes)
    return {**report_end(), "hasValue": True, "value": result.value, "truncated": result.truncated}


def report_end(
    *, error: ErrorFields | None = None, exit_code: int | None = None, limit: LimitName | None = None
) -> dict[str, Any]:
    """Build the message `done` of code without a value."""
    return {
        "type": "done",
        "hasValue": False,
        "value": None,
        "truncated": False,
        "error": error,
        "exitCode": exit_code,
        "limit": limit,
        "peakMemoryBytes": limits.read_peak_bytes(),
    }


def describe_minimally(error: BaseException) -> ErrorFields:
    """Describe an error without calling its own code."""
    return ErrorFields(type=type(error).__name__, message="the failure could not be described", line=None, traceback="")


def describe_error(
    error: BaseException, workspace: Path, *, file: str = AGENT_FILE, hints: Sequence[str] = ()
) -> ErrorFields:
    """Return the error as clients see it, without frames of libraries and of the runner. `file` is the run's code.

    The hints follow the error's own text, each as a line. The traceback of a very deep recursion loses its middle, here
    and in the error itself.
    """
    message = "\n".join([read_message(error), *hints])
    with contextlib.suppress(TypeError):  # the code may have made `__notes__` something else
        for hint in hints:
            error.add_note(hint)
    left_out = _cut_tracebacks(error)
    text = _format(error, workspace)
    if left_out:
        text = text.replace(_HEAD, f"{_HEAD[:-2]}, {left_out} calls are left out):", 1)
    return ErrorFields(
        type=shorten(type(error).__name__, TYPE_CHARACTERS),
        message=shorten(escape_surrogates(message), MESSAGE_CHARACTERS),
        line=_find_line(error, file),
        traceback=shorten(escape_surrogates(text), TRACEBACK_CHARACTERS),
    )


def read_message(error: BaseException) -> str:
    """Return `str(error)`, or a note if the class raises there."""
    if isinstance(error, SyntaxError):
        return error.msg or ""
    try:
        text = explain_recursion(error) if isinstance(error, RecursionError) else str(error)
        return text or ("out of memory" if isinstance(error, MemoryError) else "")
    except Exception as failure:
        return f"<no message: str() raised {type(failure).__name__}>"


def find_limit(error: BaseException) -> LimitName | None:
    """Return the limit that made the code fail, if any. An exception group counts as its first limit."""
    if isinstance(error, BaseExceptionGroup):
        return next((limit for inner in error.exceptions if (limit := find_limit(inner))), None)
    if isinstance(error, MemoryError):
        return "memory"
    if isinstance(error, OSError) and error.errno in _STORAGE_ERRORS:
        return "storage"
    if isinstance(error, OSError) and error.errno == errno.ENOMEM:
        return "memory"
    if _is_refused_thread(error) and threading.stack_size() > limits.THREAD_STACK_BYTES:
        # The stacks that the code asked for did not fit into memory.
        return "memory"
    return "processes" if _is_refused_process(error) else None


def _is_refused_thread(error: BaseException) -> bool:
    return isinstance(error, RuntimeError) and "can't start new thread" in read_message(error)


def _is_refused_process(error: BaseException) -> bool:
    """Return whether the system refused a process or a thread. A socket that would block has the same error number."""
    if isinstance(error, RuntimeError):
        return _is_refused_thread(error)
    if not isinstance(error, BlockingIOError) or error.errno != errno.EAGAIN or error.__traceback__ is None:
        return False
    code = [frame for frame, _ in traceback.walk_tb(error.__traceback__)][-1].f_code
    return code.co_filename.endswith(_PROCESS_MODULES) or any(
        "fork" in name or "spawn" in name for name in code.co_names
    )


def describe_stack(frames: Iterable[FrameType], workspace: Path, *, file: str = AGENT_FILE) -> tuple[int | None, str]:
    """Return the innermost line of the run's code in a stack (outermost first), and the agent's stack as text."""
    own = [frame for frame in frames if is_agent_file(frame.f_code.co_filename, workspace)]
    agent = [frame.f_lineno for frame in own if frame.f_code.co_filename == file]
    summary = traceback.StackSummary.extract(((frame, frame.f_lineno) for frame in own), lookup_lines=True)
    text = "Traceback (most recent call last):\n" + "".join(summary.format())
    return (agent[-1] if agent else None), shorten(text, TRACEBACK_CHARACTERS)


def _cut_tracebacks(error: BaseException) -> int:
    """Cut the middle of very long tracebacks, also of the errors that this one has as causes or parts.

    Returns the number of calls that the traceback of `error` loses.
    """
    seen = {id(error)}
    waiting = [error]
    numbers: list[int] = []
    while waiting and len(numbers) < _INNER_CALLS:
        current = waiting.pop()
        numbers.append(_cut_traceback(current.__traceback__))
        parts = current.exceptions if isinstance(current, BaseExceptionGroup) else ()
        for other in (current.__cause__, current.__context__, *parts):
            if other is not None and id(other) not in seen:
                seen.add(id(other))
                waiting.append(other)
    return numbers[0]


def _cut_traceback(entry: TracebackType | None) -> int:
    last_outer, inner, length = entry, deque[TracebackType](maxlen=_INNER_CALLS), 0
    while entry is not None:
        length += 1
        if length <= _OUTER_CALLS:
            last_outer = entry
        else:
            inner.append(entry)
        entry = entry.tb_next
    left_out = length - _OUTER_CALLS - len(inner)
    if left_out > 0 and last_outer is not None:
        last_outer.tb_next = inner[0]
        return left_out
    return 0


def _find_line(error: BaseException, file: str) -> int | None:
    lines = [line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == file]
    if lines:
        return lines[-1]
    if isinstance(error, SyntaxError) and error.filename == file:
        return error.lineno
    return None


def _format(error: BaseException, workspace: Path) -> str:
    summary = traceback.TracebackException.from_exception(error, max_group_width=5, max_group_depth=3)
    _strip_frames(summary, workspace, depth=0)
    return "".join(summary.format())


def _strip_frames(summary: traceback.TracebackException, workspace: Path, depth: int) -> None:
    """Keep only the agent's frames, in this error, its causes and its group."""
    own = [frame for frame in summary.stack if is_agent_file(frame.filename, workspace)]
    summary.stack = traceback.StackSummary.from_list(own)
    if depth > 50:
        summary.__cause__ = summary.__context__ = None
        return
    for other in (summary.__cause__, summary.__context__, *(summary.exceptions or ())):
        if other is not None:
            _strip_frames(other, workspace, depth + 1)


def name_line(file: str, line: int | None, workspace: Path) -> str:
    """Return a line of an agent's file as texts name it: `line 3` of the job's code, `helper.py:3` of a module."""
    if file.startswith(_AGENT_PREFIX):
        return f"line {line}"
    return shorten_line(f"{file.removeprefix(f'{workspace}/')}:{line}", _PLACE_CHARACTERS)


def is_agent_file(filename: str, workspace: Path) -> bool:
    """Return whether a file is the agent's: the job's code, or a module of the workspace that is no wrapper."""
    if filename.startswith(f"{workspace}/"):
        return not filename.startswith(f"{workspace}/{SERVERS_FOLDER}/")
    return filename.startswith(_AGENT_PREFIX)
