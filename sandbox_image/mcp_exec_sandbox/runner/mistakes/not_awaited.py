"""Coroutines of the code that never started, because their `await` was forgotten.

Python warns of those that are dropped, once for a line; those that are kept in a variable end without a word. Here each
is counted, with the tool or function and the line that made it.
"""

import _tracemalloc
import asyncio
import contextlib
import gc
import linecache
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import CodeType, CoroutineType, FrameType
from typing import Any, NamedTuple

from mcp_exec_sandbox.protocol import SERVERS_FOLDER, Notes
from mcp_exec_sandbox.runner.mistakes.ignored import AWAIT_FUTURE
from mcp_exec_sandbox.runner.report import is_agent_file, name_line
from mcp_exec_sandbox.tools.calls import call_mcp_tool, call_wrapped
from mcp_exec_tools.text import shorten_line

ORIGIN_DEPTH = 4
"""Calls that Python notes for each new coroutine. Code that wants to see them itself sets another number."""
_MAX_PLACES = 64
_MAX_AWAITED = 50
_NAME_CHARACTERS = 60
_WORDS = ("async", "await", "call_mcp_tool", "client", SERVERS_FOLDER, "skills")
"""One of these is in each code that makes coroutines without a module of its own."""
_TOOL = re.compile(r"[\w-]+\.\S+")
_NAMES = re.compile(r"[^\W\d]\w*")
_AWAIT_ONCE = "await a call once and keep its value in a variable"
_MISUSED = re.compile(r"(?<!\ba )\bcoroutine\b")
"""A text that has found a coroutine, and not one that expected "a coroutine"."""
_MISUSED_FUTURE = re.compile(r"\b_asyncio\.(Task|Future)\b|\b_GatheringFuture\b|await wasn't used with future")
_MISTAKES = {
    "'async_generator' object is not iterable": "write `async for`",
    "Passing coroutines is forbidden, use tasks explicitly.": "write `await asyncio.gather(...)`",
    "Result is not set.": AWAIT_FUTURE,
    "Exception is not set.": AWAIT_FUTURE,
    "cannot reuse already awaited coroutine": _AWAIT_ONCE,
    "coroutine is being awaited already": _AWAIT_ONCE,
}
"""Texts of errors, and what to write."""
_CONFUSED = (TypeError, AttributeError, ValueError, RuntimeError, asyncio.InvalidStateError)
_CALLS = (call_mcp_tool.__code__, call_wrapped.__code__)
_PACKAGE = __name__.partition(".")[0]


class _Place(NamedTuple):
    """What was called, and where."""

    name: str
    call: str
    where: str

    def __str__(self) -> str:
        return f" at {self.where}" if self.where else ""


class NotAwaited:
    """The coroutines that never started, of one job after the other."""

    def __init__(self, workspace: Path) -> None:
        self._workspace = workspace
        self._dropped: dict[_Place, int] = {}
        self._cancelled: dict[_Place, int] = {}
        self._known: dict[int, object] = {}
        """Origins of the coroutines that an earlier job of the session kept, by their ids."""
        self._shown: dict[Any, Any] = {}
        """Warnings that were printed, as a module has them."""
        self.may_exist = False
        """Whether the code, or that of an earlier job, may have made coroutines."""
        self._warn: Callable[[Any], None] | None = None

    def begin(self, code: str, *, is_first: bool) -> None:
        """Count from now on. Call it before the code of a job runs."""
        self._dropped.clear()
        self._cancelled.clear()
        self._shown.clear()
        self.may_exist = self.may_exist or any(word in code for word in _WORDS)
        self._known = {} if is_first or not self.may_exist else {id(kept): kept.cr_origin for kept in _list_kept()}
        sys.set_coroutine_origin_tracking_depth(ORIGIN_DEPTH)
        if self._warn is None:
            self._warn = warnings._warn_unawaited_coroutine  # type: ignore[attr-defined]
            warnings._warn_unawaited_coroutine = self._handle_dropped  # type: ignore[attr-defined]
            asyncio.runners._cancel_all_tasks = self._wrap_cancel(asyncio.runners._cancel_all_tasks)  # type: ignore[attr-defined]

    def add_tasks(self, tasks: Iterable["asyncio.Task[Any]"]) -> None:
        """Count tasks that are about to be cancelled, if the code did not fail: its own, and calls of tools."""
        if sys.exc_info()[0] is not None:
            return
        for task in tasks:
            coroutine = task.get_coro()
            if not isinstance(coroutine, CoroutineType) or task.done() or task.cancelling():
                continue
            is_own = _is_new(coroutine) or _is_in_call(coroutine) or self._is_own_code(coroutine.cr_code)
            if is_own and (place := self._find_place(coroutine)) is not None:
                _count(self._cancelled, place)

    def finish(self, notes: Notes, *, has_modules: bool, stays: bool) -> None:
        """Add the notes of a job that has ended. Unless the interpreter `stays`, print what Python does at its exit."""
        kept = _list_kept() if self.may_exist or has_modules else []
        counts = dict(self._dropped)
        for coroutine in kept:
            if not self._is_known(coroutine) and (place := self._find_place(coroutine)) is not None:
                _count(counts, place)
            if not stays:
                self._print(coroutine)
                coroutine.close()
        for place, count in counts.items():
            times = f" {count} times" if count > 1 else ""
            text = f"was called{times} without `await`{place}, so nothing was done: write `await {place.call}`."
            notes.add("NotAwaited", f"{place.name} {text}")
        for place, count in self._cancelled.items():
            what = f"{count} calls of {place.name}{place} were" if count > 1 else f"{place.name}{place} was"
            notes.add("NotAwaited", f"{what} cancelled when the code ended: {AWAIT_FUTURE}.")

    def explain(self, error: BaseException) -> None:
        """Add what to write to the text of an error that is about a coroutine in the place of its value."""
        text = error.args[0] if len(error.args) == 1 else None
        if not isinstance(error, _CONFUSED) or not isinstance(text, str):
            return
        if text in _MISTAKES:
            error.args = (f"{text.removesuffix('.')}: {_MISTAKES[text]}",)
        elif _MISUSED_FUTURE.search(text):
            error.args = (f"{text}: {AWAIT_FUTURE}",)
        elif not isinstance(error, RuntimeError) and (place := self._find_used(error, text)) is not None:
            error.args = (f"{text}: write `await {place.call}`",)

    def _find_used(self, error: BaseException, text: str) -> _Place | None:
        """Return the coroutine that the failed line has used, by the names in its text and by its number.

        A text that names no coroutine can be that of a library which got one from this line.
        """
        owner = getattr(error, "obj", None)
        if isinstance(owner, CoroutineType):
            return self._find_place(owner)
        frames = list(traceback.walk_tb(error.__traceback__))
        own = [(frame, line) for frame, line in frames if self._is_own_code(frame.f_code)]
        is_named = _MISUSED.search(text) is not None
        if not own or (not is_named and (own[-1] is frames[-1] or " coroutine" in text)):
            return None
        frame, line = own[-1]
        for value in _list_named(frame, line):
            if _is_new(value):
                return self._find_place(value)
        found = [*self._dropped, *filter(None, map(self._find_place, _list_kept()))]
        where = name_line(frame.f_code.co_filename, line, self._workspace)
        chosen = [place for place in found if place.where == where] or (found if is_named else [])
        return chosen[-1] if chosen else None

    def _handle_dropped(self, coroutine: Any) -> None:
        """Stand in for the function of `warnings` that Python calls for each dropped coroutine that never started."""
        with contextlib.suppress(Exception):
            if not self._is_known(coroutine) and (place := self._find_place(coroutine)) is not None:
                _count(self._dropped, place)
        if coroutine.cr_origin is not None and sys.get_coroutine_origin_tracking_depth() != ORIGIN_DEPTH:
            assert self._warn is not None  # noqa: S101 - this function was put in its place
            self._warn(coroutine)
        elif str(sys._getframe(1).f_globals.get("__name__")).partition(".")[0] == _PACKAGE:
            self._print(coroutine)
        else:
            # With a source, the warning advises tracemalloc, though the note has the line already.
            source = coroutine if _tracemalloc.is_tracing() else None
            warnings.warn(_describe(coroutine), RuntimeWarning, stacklevel=2, source=source)

    def _print(self, coroutine: Any) -> None:
        """Print the warning as Python does at its exit: no line of code runs any more."""
        with contextlib.suppress(Exception):
            warnings.warn_explicit(_describe(coroutine), RuntimeWarning, "sys", 1, registry=self._shown)

    def _is_known(self, coroutine: Any) -> bool:
        return id(coroutine) in self._known and self._known[id(coroutine)] is coroutine.cr_origin

    def _is_own_code(self, code: CodeType) -> bool:
        return is_agent_file(code.co_filename, self._workspace)

    def _find_place(self, coroutine: Any) -> _Place | None:
        """Return where the code has made a coroutine. None if it is neither of the code nor made by it."""
        code, frame = coroutine.cr_code, coroutine.cr_frame
        origin = next((each for each in coroutine.cr_origin or () if is_agent_file(each[0], self._workspace)), None)
        where = "" if origin is None else name_line(origin[0], origin[1], self._workspace)
        if code is call_mcp_tool.__code__:
            tool = frame.f_locals.get("tool_name") if frame is not None else None
            return _Place(_shorten(tool if isinstance(tool, str) else "call_mcp_tool()"), "call_mcp_tool(...)", where)
        name = _shorten(coroutine.__qualname__.rpartition("<locals>.")[2])
        if code.co_filename.startswith(f"{self._workspace}/{SERVERS_FOLDER}/"):
            return _Place(_shorten(_find_tool(code)), f"{name}(...)", where)
        if origin is None and not self._is_own_code(code):
            return None
        return _Place(f"{name}()", f"{name}(...)", where)

    def _wrap_cancel(self, original: Callable[[Any], None]) -> Callable[[Any], None]:
        def cancel(loop: Any) -> None:
            with contextlib.suppress(Exception):
                self.add_tasks(asyncio.all_tasks(loop))
            original(loop)

        return cancel


def _count(counts: dict[_Place, int], place: _Place) -> None:
    if place in counts or len(counts) < _MAX_PLACES:
        counts[place] = counts.get(place, 0) + 1


def _list_kept() -> list[Any]:
    """Return the coroutines that exist and never started."""
    with contextlib.suppress(MemoryError):
        return [item for item in gc.get_objects() if type(item) is CoroutineType and _is_new(item)]
    return []


def _is_new(value: object) -> bool:
    """Return whether it is a coroutine that never started and was not closed."""
    if not isinstance(value, CoroutineType):
        return False
    return value.cr_frame is not None and not value.cr_running and not value.cr_suspended


def _is_in_call(coroutine: Any) -> bool:
    """Return whether a coroutine waits for the call of a tool."""
    for _ in range(_MAX_AWAITED):
        if getattr(coroutine, "cr_code", None) in _CALLS:
            return True
        coroutine = getattr(coroutine, "cr_await", None)
    return False


def _find_tool(code: CodeType) -> str:
    """Return the name of a wrapper's tool, which is a constant of its code."""
    names = (text for text in code.co_consts if isinstance(text, str) and _TOOL.fullmatch(text))
    return next(names, code.co_name)


def _list_named(frame: FrameType, line: int | None) -> Iterator[object]:
    """Return the values of the variables that a line names, and what is in those that are lists."""
    for name in _NAMES.findall(linecache.getline(frame.f_code.co_filename, line or 0)):
        value: Any = frame.f_locals.get(name, frame.f_globals.get(name))
        yield value
        if type(value) is dict:
            value = list(value.values())
        if type(value) in (list, tuple):
            yield from value[:_MAX_PLACES]


def _describe(coroutine: Any) -> str:
    return f"coroutine '{coroutine.__qualname__}' was never awaited"


def _shorten(name: str) -> str:
    return shorten_line(name, _NAME_CHARACTERS)
