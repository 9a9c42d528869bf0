"""End of the interpreter, once the code of a single-use run has ended: what Python does at its exit, in its order.

Python waits for threads and executors, runs the exit handlers (`atexit`), destroys the objects of `__main__` and writes
what open files still hold. The runner is killed instead of finalized, so it takes these steps before its last report.
An interrupt, at the time limit or by a cancellation, ends the waits; open files are written in any case.

In a session the interpreter goes on, so only buffers are written after each job.
"""

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
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from mcp_exec_sandbox.notes import Notes
from mcp_exec_sandbox.protocol import SERVERS_FOLDER
from mcp_exec_sandbox.runner.ending.open_files import OpenFiles
from mcp_exec_sandbox.runner.interruption import Interrupted, InterruptHandler
from mcp_exec_sandbox.runner.limits import resources
from mcp_exec_sandbox.runner.main_module import register

LEFT_NAMES = 5
"""Names in the text about what was still running."""
_NAME_CHARACTERS = 60
_DESCRIPTORS = "/proc/self/fd"
_WRITING = ("__del__", "IOBase", "IOWrapper", "Buffered", "fileno", "fdopen", "open(1", "open(2")
"""Words of code whose objects may have something to do or to write at the end though no file is open."""


class InterpreterEnd:
    """The end of one interpreter."""

    def __init__(self, *, interrupts: InterruptHandler, workspace: Path) -> None:
        self._interrupts = interrupts
        self._workspace = workspace
        self._descriptors: frozenset[str] = frozenset()
        self._registered = _count_registered()
        self._modules = 0
        self._hanging: list[str] = []
        """Exit handlers and finalizers that an interrupt ended."""
        self.left: str | None = None
        """What was still running when the interrupt came, for people."""
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

    def finish(self, *, notes: Notes, is_idle: bool, forget: Callable[[], None], show: Callable[[], None]) -> None:
        """Do what Python does at its exit. If the code has left nothing (`is_idle`), that takes some microseconds.

        Args:
            notes: gets what the reader should know.
            is_idle: whether `has_work` returned False.
            forget: drops the runner's own references to the objects of `__main__`.
            show: shows the figures that threads have left open.
        """
        if is_idle:
            # Those of the modules that the pool imports.
            atexit._run_exitfuncs()
            return
        was_interrupted = self._interrupts.was_requested
        hook, sys.unraisablehook = sys.unraisablehook, self._note_ignored
        try:
            self._run_steps(forget, show, notes)
        finally:
            self._interrupts.disarm()
            sys.unraisablehook = hook
            if self._interrupts.was_requested and not was_interrupted:
                self._describe_left(notes)

    def flush(self, *, notes: Notes) -> None:
        """Write the buffers of open files, which stay open."""
        _flush_standard()
        if self._writes_files():
            with contextlib.suppress(MemoryError):
                files = OpenFiles.find()
                files.flush()
                self._take_problems(files, notes)

    def _run_steps(self, forget: Callable[[], None], show: Callable[[], None], notes: Notes) -> None:
        files = OpenFiles()
        # The list of all objects takes memory.
        resources.release_reserve()
        try:
            self._interrupts.install()
            self._interrupts.rearm()
            if self._writes_files():
                # First of all: on a busy node, there may be too little time for it after an interrupt.
                with contextlib.suppress(MemoryError):
                    files.add_others()
                    files.flush()
                files.release()
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
        return (
            has_cleanup or any(word in code for word in _WRITING) or next(self._list_code_modules(), None) is not None
        )

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
        own = [_shorten(thread.name) for thread in others if self._find_line(thread) is not None]
        if own:
            what = "1 daemon thread was" if len(own) == 1 else f"{len(own)} daemon threads were"
            notes.add("ThreadsLeft", f"{what} still running when the code ended, and stopped: {_join(own)}.")
        return bool(others)

    def _describe_left(self, notes: Notes) -> None:
        """Find what is still running after the interrupt."""
        threads = [
            f"{_shorten(thread.name)}{f' at line {line}' if (line := self._find_line(thread)) else ''}"
            for thread in threading.enumerate()
            if not thread.daemon and thread.ident != threading.get_ident()
        ]
        processes = [_shorten(name) for name in _list_processes()]
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
            self._hanging.append(_shorten(getattr(unraisable.object, "__qualname__", "a finalizer")))
            return
        with contextlib.suppress(Exception):
            sys.__unraisablehook__(unraisable)


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


def _shorten(name: str) -> str:
    return name if len(name) <= _NAME_CHARACTERS else name[: _NAME_CHARACTERS - 1] + "…"
