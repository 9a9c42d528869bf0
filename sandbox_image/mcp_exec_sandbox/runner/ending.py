"""Files and archives that the code has open: found among all its objects, written or closed in a safe order."""

import _io
import atexit
import contextlib
import fcntl
import gc
import itertools
import logging
import os
import stat
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from mcp_exec_sandbox.protocol import SERVERS_FOLDER, Notes
from mcp_exec_sandbox.runner import limits
from mcp_exec_sandbox.runner.loop import Interrupted, InterruptHandler
from mcp_exec_sandbox.runner.program import register
from mcp_exec_tools.text import shorten_line

ARCHIVES = (
    ("zipfile", "ZipFile"),
    ("tarfile", "TarFile"),
    ("sqlite3", "Connection"),
    ("pandas", "ExcelWriter"),
)
"""Classes, besides those of `io`, whose `close` completes a file. A database drops what was not committed."""

NAMED_FILES = 3
_NEVER_BUFFERED = (_io.BytesIO, _io.StringIO, _io.BufferedReader)
_CONTENT = ("buffer", "raw")

LEFT_NAMES = 5
"""Names in the text about what was still running."""
_NAME_CHARACTERS = 60
_DESCRIPTORS = "/proc/self/fd"
_WRITING = ("__del__", "IOBase", "IOWrapper", "Buffered", "fileno", "fdopen", "open(1", "open(2")
"""Words of code whose objects may have something to do or to write at the end though no file is open."""


class OpenFiles:
    """Open files of the code. They are kept alive, so that no collection of garbage closes one in a wrong order."""

    def __init__(self) -> None:
        self._objects: dict[int, Any] = {}
        self._sizes: dict[str, int] = {}
        self.is_complete = False
        """Whether all objects were looked at."""
        self.problems: list[tuple[object, Exception]] = []
        """Files that could not be written, and why."""

    def add_others(self) -> None:
        """Add the files that exist now, for example those that finalizers have opened."""
        self.is_complete = False
        archives = _list_archives()
        is_wanted: dict[type, bool] = {}
        for item in gc.get_objects():
            kind = type(item)
            wanted = is_wanted.get(kind)
            if wanted is None:
                wanted = is_wanted[kind] = _is_file_class(kind) or issubclass(kind, archives)
            if wanted and id(item) not in self._objects and not _is_closed(item):
                self._objects[id(item)] = item
                self._note_size(item)
        self.is_complete = True

    def flush(self) -> None:
        """Write all buffers."""
        for item in self._peel():
            if isinstance(item, _io._IOBase):
                self._try(item, "flush")

    def release(self) -> None:
        """Keep the files alive no more. Their sizes are still known."""
        self._objects.clear()
        self.problems.clear()
        self.is_complete = False

    def close(self) -> None:
        """Close all files, each before those that it writes to."""
        for item in self._peel():
            if not _is_closed(item):
                self._try(item, "close")

    def describe_flushed(self, folder: Path) -> str | None:
        """Return a sentence about the files in `folder` that have grown since they were found, or None."""
        grown = {}
        for path, before in self._sizes.items():
            with contextlib.suppress(OSError):
                if path.startswith(f"{folder}/") and (size := os.stat(path).st_size - before) > 0:
                    grown[os.path.relpath(path, folder)] = size
        if not grown:
            return None
        names, total = list(grown), sum(grown.values())
        more = len(names) - NAMED_FILES
        listed = ", ".join(names[:NAMED_FILES]) + (f" and {more} more" if more > 0 else "")
        one = len(names) == 1
        unit = "byte was" if total == 1 else "bytes were"
        return f"The code did not close {listed}; {'its' if one else 'their'} last {total} {unit} written at the end."

    def _note_size(self, item: Any) -> None:
        with contextlib.suppress(Exception):
            if isinstance(item, _io.FileIO) and item.writable() and isinstance(item.name, str):
                path = os.path.abspath(item.name)
                self._sizes.setdefault(path, os.fstat(item.fileno()).st_size)

    def _peel(self) -> Iterable[Any]:
        """Return the files in an order that allows closing them: none before one that writes to it."""
        left = dict(self._objects)
        while left:
            inner = {id(value) for item in left.values() for value in _list_content(item)}
            outer = [key for key in left if key not in inner] or list(left)
            for key in sorted(outer, key=lambda key: _rank(left[key])):
                yield left.pop(key)

    def _try(self, item: Any, method: str) -> None:
        try:
            getattr(item, method)()
        except Exception as error:
            self.problems.append((item, error))


def _list_archives() -> tuple[type, ...]:
    classes = [getattr(sys.modules.get(module), name, None) for module, name in ARCHIVES]
    return tuple(kind for kind in classes if isinstance(kind, type))


def _is_file_class(kind: type) -> bool:
    return issubclass(kind, _io._IOBase) and kind not in _NEVER_BUFFERED


def _is_closed(item: Any) -> bool:
    try:
        if isinstance(item, _io._IOBase):
            return bool(item.closed)
        if hasattr(item, "_handles"):  # a writer of pandas
            return bool(getattr(item._handles.handle, "closed", False))
        return bool(getattr(item, "closed", False)) or getattr(item, "fp", item) is None
    except Exception:
        return True


def _list_content(item: Any) -> list[Any]:
    """Return the objects that a file writes to, among others."""
    values = list(getattr(item, "__dict__", {}).values())
    for name in _CONTENT:
        with contextlib.suppress(Exception):
            values.append(getattr(item, name))
    return [value for value in values if value is not item]


def _rank(item: Any) -> int:
    if isinstance(item, _io._TextIOBase):
        return 0
    if isinstance(item, _io.BufferedWriter | _io.BufferedRandom | _io.BufferedRWPair):
        return 3
    if isinstance(item, _io._RawIOBase):
        return 4
    return 1 if isinstance(item, _io._IOBase) else 2


class InterpreterEnd:
    """The end of one interpreter."""

    def __init__(self, *, interrupts: InterruptHandler, workspace: Path) -> None:
        self._interrupts = interrupts
        self._workspace = workspace
        self._descriptors: frozenset[str] = frozenset()
        self._registered = _count_registered()
        self._modules = 0
        self._hook = sys.unraisablehook
        self._hanging: list[str] = []
        """Exit handlers and finalizers that an interrupt ended."""
        self.left: str | None = None
        """Work that was still running when the interrupt came, for people."""
        self.failure: BaseException | None = None
        """Why a file could not be written."""

    def prepare(self) -> None:
        """Note what the interpreter has before any code runs."""
        # The listing has its own descriptor, which a file of the code gets next.
        self._descriptors = frozenset(name for name in os.listdir(_DESCRIPTORS) if _is_open(int(name)))
        self._registered = _count_registered()
        self._modules = len(sys.modules)
        # The first call of any code is the slowest.
        self.has_work("")

    def has_work(self, code: str) -> bool:
        """Return whether the code has left anything: a thread, an exit handler, a file that it writes, an object."""
        return (
            threading.active_count() > 1
            or _count_registered() != self._registered
            or self._writes_files()
            or self._may_have_objects(code)
        )

    def finish(
        self,
        *,
        notes: Notes,
        is_idle: bool,
        close: Callable[[], None],
        forget: Callable[[], None],
        show: Callable[[], None],
    ) -> None:
        """Do what Python does at its exit. If the code has left nothing (`is_idle`), that takes some microseconds.

        Args:
            notes: gets what the reader should know.
            is_idle: whether `has_work` returned False.
            close: closes the asynchronous generators that have begun.
            forget: drops the runner's own references to the objects of `__main__`.
            show: shows the figures that threads have left open.
        """
        if is_idle:
            # Those of the modules that the pool imports.
            atexit._run_exitfuncs()
            return
        was_interrupted = self._interrupts.was_requested
        self._hook, sys.unraisablehook = sys.unraisablehook, self._note_ignored
        try:
            self._run_steps(close, forget, show, notes)
        finally:
            self._interrupts.disarm()
            sys.unraisablehook = self._hook
            if self._interrupts.was_requested and not was_interrupted:
                self._describe_left(notes)

    def flush(self, *, notes: Notes) -> None:
        """Write the buffers of open files, which stay open."""
        _flush_standard()
        if self._writes_files():
            with contextlib.suppress(MemoryError):
                files = OpenFiles()
                files.add_others()
                files.flush()
                self._take_problems(files, notes)

    def _run_steps(
        self, close: Callable[[], None], forget: Callable[[], None], show: Callable[[], None], notes: Notes
    ) -> None:
        files = OpenFiles()
        # The list of all objects takes memory.
        limits.release_reserve()
        try:
            self._interrupts.install()
            self._interrupts.rearm()
            if self._writes_files():
                # First of all: on a busy node, there may be too little time for it after an interrupt.
                with contextlib.suppress(MemoryError):
                    files.add_others()
                    files.flush()
                files.release()
            close()
            threading._shutdown()  # type: ignore[attr-defined]
            if self._interrupts.was_requested:
                # Python 3.13 only prints the exception that ended the wait.
                return
            show()
            atexit._run_exitfuncs()
            if self._interrupts.was_requested:
                return
            with contextlib.suppress(MemoryError):
                files.add_others()
            if not self._leave_daemons(notes):
                self._destroy_objects(forget)
                files.add_others()
        except (Interrupted, MemoryError):
            pass
        except BaseException as error:
            _print_ignored(error, threading)
        finally:
            self._interrupts.disarm()
            _flush_standard()
            self._close_files(files, notes)

    def _close_files(self, files: OpenFiles, notes: Notes) -> None:
        # From now on threads that are left may find their files closed.
        threading.excepthook = lambda arguments: None
        with contextlib.suppress(MemoryError):
            if not files.is_complete:
                files.add_others()
            files.close()
            if (text := files.describe_flushed(self._workspace)) is not None:
                notes.add("FileFlushed", text)
            self._take_problems(files, notes)

    def _take_problems(self, files: OpenFiles, notes: Notes) -> None:
        for source, error in files.problems:
            _print_ignored(error, source)
            name = getattr(source, "name", None)
            what = os.path.basename(name) if isinstance(name, str) else "A file"
            notes.add("FileFlushed", f"{what} could not be written at the end: {type(error).__name__}: {error}.")
            self.failure = self.failure or error

    def _destroy_objects(self, forget: Callable[[], None]) -> None:
        """Drop the code's modules, so that the finalizers of their objects run."""
        for name in self._list_code_modules():
            sys.modules.pop(name, None)
        register(ModuleType("__main__"))
        forget()
        gc.collect()

    def _writes_files(self) -> bool:
        """Return whether a file or a pipe is open for writing that was not before the code."""
        return any(_is_written(int(name)) for name in os.listdir(_DESCRIPTORS) if name not in self._descriptors)

    def _may_have_objects(self, code: str) -> bool:
        has_cleanup = "yield" in code and "finally" in code
        return has_cleanup or any(word in code for word in _WRITING) or self.has_modules()

    def has_modules(self) -> bool:
        """Return whether the code has imported modules of the workspace."""
        return next(self._list_code_modules(), None) is not None

    def _list_code_modules(self) -> Iterator[str]:
        """Return the names of the modules of the workspace that the code has imported, without wrappers of servers."""
        folder, wrappers = f"{self._workspace}/", f"{self._workspace}/{SERVERS_FOLDER}/"
        for name, module in list(itertools.islice(sys.modules.items(), self._modules, None)):
            file = str(getattr(module, "__file__", None))
            if file.startswith(folder) and not file.startswith(wrappers):
                yield name

    def _leave_daemons(self, notes: Notes) -> bool:
        """Return whether daemon threads go on, and add a note on those that run functions of the code.

        Python stops such threads when they next run. Here they run on until the kill, so their objects must stay.
        """
        others = [thread for thread in threading.enumerate() if thread.ident != threading.get_ident()]
        own = [shorten_line(thread.name, _NAME_CHARACTERS) for thread in others if self._find_line(thread) is not None]
        if own:
            what = "1 daemon thread was" if len(own) == 1 else f"{len(own)} daemon threads were"
            notes.add("ThreadsLeft", f"{what} still running when the code ended, and stopped: {_join(own)}.")
        return bool(others)

    def _describe_left(self, notes: Notes) -> None:
        """Find what is still running after the interrupt."""
        threads = [
            shorten_line(thread.name, _NAME_CHARACTERS)
            + (f" at line {line}" if (line := self._find_line(thread)) else "")
            for thread in threading.enumerate()
            if not thread.daemon and thread.ident != threading.get_ident()
        ]
        processes = [shorten_line(name, _NAME_CHARACTERS) for name in _list_processes()]
        for names, one, many in (
            (threads, "1 thread was", "threads were"),
            (processes, "1 process was", "processes were"),
            (self._hanging, "1 exit handler was", "exit handlers were"),
        ):
            if names:
                what = one if len(names) == 1 else f"{len(names)} {many}"
                self.left = f"{what} still running: {_join(names)}"
                notes.add("ThreadsLeft", f"The code ended, but {self.left}.")
                return
        self.left = "its end was not complete"

    def _find_line(self, thread: threading.Thread) -> int | None:
        """Return the line of the code, or of a module of the workspace, where a thread is."""
        frame = sys._current_frames().get(thread.ident or 0)
        while frame is not None:
            if frame.f_code.co_filename.startswith(("<agent", f"{self._workspace}/")):
                return frame.f_lineno
            frame = frame.f_back
        return None

    def _note_ignored(self, unraisable: Any, /) -> None:
        """Handle an exception of an exit handler or of a finalizer, which Python prints and ignores."""
        if issubclass(unraisable.exc_type, Interrupted):
            self._hanging.append(
                shorten_line(getattr(unraisable.object, "__qualname__", "a finalizer"), _NAME_CHARACTERS)
            )
            return
        with contextlib.suppress(Exception):
            self._hook(unraisable)


def _count_registered() -> tuple[int, int, int, int]:
    """Return the numbers of exit handlers and of what those of the standard library end: they change with the code."""
    processes, finalizers = sys.modules.get("multiprocessing.process"), sys.modules.get("multiprocessing.util")
    return (
        atexit._ncallbacks(),
        len(logging._handlerList),  # type: ignore[attr-defined]
        len(weakref.finalize._registry),  # type: ignore[attr-defined]
        len(getattr(processes, "_children", ())) + len(getattr(finalizers, "_finalizer_registry", ())),
    )


def _flush_standard() -> None:
    """Write what the standard streams hold, also those that the code has put in their places."""
    for stream in (sys.__stdout__, sys.__stderr__, sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()  # type: ignore[union-attr]


def _list_processes() -> list[str]:
    """Return the names of the processes of `multiprocessing` that Python waits for."""
    module = sys.modules.get("multiprocessing.process")
    with contextlib.suppress(Exception):
        return [child.name for child in module.active_children() if not child.daemon] if module else []
    return []


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def _is_written(descriptor: int) -> bool:
    """Return whether a descriptor is that of a file or of a pipe that is open for writing."""
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISFIFO(mode):
            return False
        return fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY
    except OSError:
        return False


def _print_ignored(error: BaseException, source: object) -> None:
    """Print an error as Python does at its exit."""
    import traceback

    with contextlib.suppress(Exception):
        lines = traceback.format_exception(error)
        sys.stderr.write(f"Exception ignored in: {source!r}\n{''.join(lines[:1] + lines[-1:])}")


def _join(names: list[str]) -> str:
    more = len(names) - LEFT_NAMES
    return ", ".join(names[:LEFT_NAMES]) + (f" and {more} more" if more > 0 else "")
