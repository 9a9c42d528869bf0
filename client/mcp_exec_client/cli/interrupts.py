"""Commands as tasks, which interrupts cancel."""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final, ParamSpec, TypeVar

from mcp_exec_client.cli.exit_codes import CommandError, ExitCode

_P = ParamSpec("_P")
_T = TypeVar("_T")
_THREAD: Final = "mcp-exec-call"
_CLEANUP_SECONDS: Final = 15.0
"""More than the limits of all that commands do after an interrupt."""


def run_work(work: Coroutine[Any, Any, _T]) -> _T:
    """Run a command, as `run_interruptible` says."""
    threads = _DaemonThreads()
    with asyncio.Runner() as runner:
        runner.get_loop().set_default_executor(threads)
        try:
            return runner.run(_catch_interrupts(work))
        except _Interrupted:
            if not threads.busy:
                raise
            # at its exit, the interpreter would fail if a thread still held a standard stream
            sys.stderr.write("interrupted\n")
            _leave()
            raise


class _Interrupted(CommandError):
    def __init__(self) -> None:
        super().__init__("interrupted", ExitCode.CANCELLED)


class _DaemonThreads(ThreadPoolExecutor):
    """Runs each call in a thread that the process does not wait for, for example while a name is looked up."""

    @property
    def busy(self) -> bool:
        """Whether a call has not returned."""
        return any(thread.name == _THREAD for thread in threading.enumerate())

    def submit(self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> Future[_T]:
        """Start a call."""
        future: Future[_T] = Future()

        def call() -> None:
            try:
                result = fn(*args, **kwargs)
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)

        future.set_running_or_notify_cancel()
        threading.Thread(target=call, name=_THREAD, daemon=True).start()
        return future


async def _catch_interrupts(work: Coroutine[Any, Any, _T]) -> _T:
    loop, caught = asyncio.get_running_loop(), []
    main = asyncio.ensure_future(work)
    limits: list[asyncio.TimerHandle] = []

    def interrupt() -> None:
        limits.append(loop.call_later(_CLEANUP_SECONDS, _leave))
        main.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        # not possible in other threads than the main one, and on other systems than Unix
        with suppress(NotImplementedError, RuntimeError, ValueError):
            loop.add_signal_handler(number, interrupt)
            caught.append(number)
    try:
        return await main
    except asyncio.CancelledError:
        if limits:
            raise _Interrupted from None
        raise
    finally:
        for limit in limits:
            limit.cancel()
        for number in caught:
            loop.remove_signal_handler(number)


def _leave() -> None:
    """End the process at once."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(ExitCode.CANCELLED)
