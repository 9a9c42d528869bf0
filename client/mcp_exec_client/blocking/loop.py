"""An event loop in a thread of its own."""

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeVar

_T = TypeVar("_T")

_CLOSE_SECONDS: Final = 10.0
"""Time for calls in other threads to end when the loop is closed."""


class LoopThread:
    """Event loop that several threads may use. It starts with the first call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closed = False
        self._process = os.getpid()

    def run(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine in the thread and return its result. Cancels it if the wait is interrupted."""
        try:
            loop = self._get_loop()
            if threading.current_thread() is self._thread:
                raise RuntimeError("a function that the client calls must not call the client")
            future = asyncio.run_coroutine_threadsafe(coroutine, loop)
        except BaseException:
            coroutine.close()
            raise
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def finish(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine that ends an iteration, unless the loop's end has ended it."""
        if self._closed or os.getpid() != self._process:
            coroutine.close()
        elif threading.current_thread() is self._thread:
            # the garbage collector may end an iteration in any thread, and this one must not wait for itself
            self._get_loop().create_task(coroutine)
        else:
            self.run(coroutine)

    def close(self, clean_up: Callable[[], Awaitable[None]]) -> None:
        """End calls of other threads, await `clean_up`, and end the thread."""
        with self._lock:
            self._closed, loop, thread = True, self._loop, self._thread
            self._loop = self._thread = None
        if loop is None or thread is None or os.getpid() != self._process:
            return
        asyncio.run_coroutine_threadsafe(_shut_down(clean_up), loop).result(_CLOSE_SECONDS * 2)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(_CLOSE_SECONDS)

    def _get_loop(self) -> asyncio.AbstractEventLoop:
        if os.getpid() != self._process:
            raise RuntimeError("the client was created before a fork; create one in each process")
        with self._lock:
            if self._closed:
                raise RuntimeError("the client is closed")
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=_run_loop, args=(self._loop,), name="mcp-exec-client", daemon=True
                )
                self._thread.start()
            return self._loop


async def _shut_down(clean_up: Callable[[], Awaitable[None]]) -> None:
    if others := asyncio.all_tasks() - {asyncio.current_task()}:
        for task in others:
            # a task that is cancelled already may be cancelling its execution
            if not task.cancelling():
                task.cancel()
        await asyncio.wait(others, timeout=_CLOSE_SECONDS)
    await asyncio.get_running_loop().shutdown_asyncgens()
    await clean_up()


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.close()
