"""Errors that fail no execution, because nothing of the code reads them: of tasks, callbacks, threads and finalizers.

Python prints them on stderr: those of a task only when it is destroyed, which an interpreter that ends at once never
does. Here each is printed, and a note names it.
"""

import asyncio
import contextlib
import gc
import sys
import threading
import traceback
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mcp_exec_sandbox.protocol import Notes
from mcp_exec_sandbox.runner.loop import AgentLoop, Interrupted
from mcp_exec_sandbox.runner.report import is_agent_file, name_line, read_message
from mcp_exec_sandbox.tools.errors import ToolError
from mcp_exec_sandbox.tools.libraries import list_causes
from mcp_exec_tools.text import shorten_line

AWAIT_FUTURE = "write `await` before the task or the gather"
_NAME_CHARACTERS = 60


class IgnoredErrors:
    """The errors of one job after the other that nothing reads."""

    def __init__(self, workspace: Path) -> None:
        self._workspace = workspace
        self._notes = Notes()
        self._named: weakref.WeakSet[asyncio.Future[Any]] = weakref.WeakSet()
        """Futures that have a note and that the code of a session may still read."""
        self._is_installed = False

    def begin(self, notes: Notes) -> None:
        """Add the errors from now on to the notes of a job."""
        self._notes = notes
        if not self._is_installed:
            self._is_installed = True
            AgentLoop.on_ignored = self._handle_context
            threading.excepthook = self._chain(threading.excepthook, self._handle_thread)
            sys.unraisablehook = self._chain(sys.unraisablehook, self._handle_unraisable)

    def add_kept(self, *, stays: bool) -> None:
        """Add the errors of tasks that the code still refers to. Unless the interpreter `stays`, print them."""
        for future in _list_unread():
            if stays:
                self._handle_context({"exception": _read_error(future), "future": future})
                self._named.add(future)
                continue
            message = f"{type(future).__name__} exception was never retrieved"
            context = {"message": message, "exception": future.exception(), "future": future}
            future.get_loop().call_exception_handler(context)

    def _handle_context(self, context: Mapping[str, Any]) -> None:
        """Add the error that an event loop has logged. A loop with a handler of the code logs none."""
        error, future = context.get("exception"), context.get("task", context.get("future"))
        if error is None or _is_end(error) or (future is not None and future in self._named):
            return
        if future is None:
            generator = context.get("asyncgen")
            name = "A callback of asyncio" if generator is None else f"{generator.__qualname__}()"
            self._add_ignored(shorten_line(name, _NAME_CHARACTERS), error)
            return
        coroutine = future.get_coro() if isinstance(future, asyncio.Task) else None
        where = self._find_where(error, coroutine)
        text = f"{_name_future(future, error)} failed{where} and nothing awaited it: {AWAIT_FUTURE}."
        self._notes.add("NotAwaited", f"{text} {type(error).__name__}: {read_message(error)}")

    def _handle_thread(self, arguments: Any) -> None:
        if not _is_end(arguments.exc_value):
            name = arguments.thread.name if arguments.thread is not None else "A thread"
            self._add_ignored(shorten_line(name, _NAME_CHARACTERS), arguments.exc_value)

    def _handle_unraisable(self, unraisable: Any) -> None:
        """Add the error of a finalizer or an exit handler of the code. Those of libraries mean nothing."""
        error = unraisable.exc_value
        if error is not None and not _is_end(error) and self._find_where(error):
            name = getattr(unraisable.object, "__qualname__", "A finalizer")
            self._add_ignored(shorten_line(str(name), _NAME_CHARACTERS), error)

    def _add_ignored(self, name: str, error: BaseException) -> None:
        text = f"{name} failed{self._find_where(error)}, and the execution went on."
        self._notes.add("ErrorIgnored", f"{text} {type(error).__name__}: {read_message(error)}")

    def _find_where(self, error: BaseException, coroutine: Any = None) -> str:
        """Return the line of the code that raised an error, or that made the coroutine, or an empty text."""
        frames = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
        origin = [each[:2] for each in getattr(coroutine, "cr_origin", None) or ()]
        own = [each for each in (*frames[::-1], *origin) if is_agent_file(each[0], self._workspace)]
        if not own:
            return ""
        file, line = own[0]
        return f" at {name_line(file, line, self._workspace)}"

    def _chain(self, original: Callable[[Any], Any], handle: Callable[[Any], None]) -> Callable[[Any], None]:
        def hook(arguments: Any) -> None:
            original(arguments)
            with contextlib.suppress(Exception):
                handle(arguments)

        return hook


def _list_unread() -> list[Any]:
    """Return the futures that exist and failed, and whose error nothing has read."""
    with contextlib.suppress(MemoryError):
        futures = [item for item in gc.get_objects() if issubclass(type(item), asyncio.Future)]
        return [future for future in futures if future._log_traceback and not _is_end(_read_error(future))]
    return []


def _read_error(future: Any) -> BaseException:
    """Return the error of a future that failed. For Python, nothing has read it."""
    error: BaseException = future._exception
    return error


def _is_end(error: BaseException | None) -> bool:
    """Return whether an error only means that the code, or a part of it, was to end."""
    return isinstance(error, (asyncio.CancelledError, SystemExit, Interrupted))


def _name_future(future: Any, error: BaseException) -> str:
    """Return the tool whose call failed, or the function of a task."""
    tools = [each.tool for each in list_causes(error) if isinstance(each, ToolError) and each.tool]
    if tools:
        return shorten_line(tools[0], _NAME_CHARACTERS)
    if isinstance(future, asyncio.Task):
        name = getattr(future.get_coro(), "__qualname__", "").rpartition("<locals>.")[2]
        return f"{shorten_line(name, _NAME_CHARACTERS)}()"
    return "A gather" if type(future).__name__ == "_GatheringFuture" else "A future"
