"""Reentrant event loop that makes `asyncio.run()` and `asyncio.Runner` work everywhere in the agent's code.

Code that awaits at the top level already runs inside a loop, where plain asyncio refuses `asyncio.run()` and
`loop.run_until_complete()`. This loop runs the inner coroutine to its end and then continues the outer one.
"""

import asyncio
import collections
import contextlib
import functools
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator
from contextvars import Context
from typing import Any, TypeVar

T = TypeVar("T")


class _ReadyQueue(collections.deque[asyncio.Handle]):
    """The loop's queue of callbacks. If empty, it returns a cancelled one.

    An iteration of the loop takes as many callbacks as it counted when it began, and the inner run may have taken
    some of these.
    """

    def __init__(self, noop: asyncio.Handle) -> None:
        super().__init__()
        self._noop = noop

    def popleft(self) -> asyncio.Handle:
        return super().popleft() if self else self._noop


class AgentLoop(asyncio.SelectorEventLoop):
    """Selector event loop whose `run_until_complete` also works inside a running loop."""

    def __init__(self) -> None:
        super().__init__()
        noop = asyncio.Handle(lambda: None, (), self)
        noop.cancel()
        self._ready = _ReadyQueue(noop)

    def run_until_complete(self, future: Generator[Any, None, T] | Awaitable[T]) -> T:
        """Run until the future is done and return its result, also inside a running loop."""
        running = asyncio._get_running_loop()
        if running is None:
            return super().run_until_complete(future)
        if running is self:
            return self._run_nested(future)
        with _hidden_loop():
            return super().run_until_complete(future)

    def _run_nested(self, future: Generator[Any, None, T] | Awaitable[T]) -> T:
        inner = asyncio.ensure_future(future, loop=self)  # type: ignore[arg-type]
        outer = asyncio.current_task(self)
        if outer is not None:
            asyncio.tasks._leave_task(self, outer)
        try:
            while not inner.done():
                self._run_once()  # type: ignore[attr-defined]
        finally:
            if outer is not None:
                asyncio.tasks._enter_task(self, outer)
        return inner.result()


class AgentLoopPolicy(asyncio.DefaultEventLoopPolicy):
    """Policy that makes every loop that the code creates an `AgentLoop`."""

    def new_event_loop(self) -> AgentLoop:
        """Create a reentrant loop."""
        return AgentLoop()


class AgentRunner(asyncio.Runner):  # type: ignore[misc]
    """Runner of asyncio that also works inside a running loop, with a loop of its own."""

    def run(self, coro: Coroutine[Any, Any, T], *, context: Context | None = None) -> T:
        """Run a coroutine to its end and return its result."""
        with _hidden_loop():
            return super().run(coro, context=context)

    def close(self) -> None:
        """Cancel what is left and close the loop."""
        with _hidden_loop():
            super().close()


@contextlib.contextmanager
def _hidden_loop() -> Iterator[None]:
    """Run a block as if no loop ran in this thread."""
    running = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    try:
        yield
    finally:
        asyncio._set_running_loop(running)


def install_loop(loop: AgentLoop) -> None:
    """Make `loop` the main thread's loop. In this thread only, let `asyncio.run` use it. Replace `asyncio.Runner`."""
    asyncio.set_event_loop_policy(AgentLoopPolicy())
    asyncio.set_event_loop(loop)
    asyncio.run = _wrap_run(loop, asyncio.run)
    asyncio.Runner = asyncio.runners.Runner = AgentRunner  # type: ignore[misc]


def _wrap_run(loop: AgentLoop, original: Callable[..., Any]) -> Callable[..., Any]:
    import threading

    home = threading.get_ident()

    @functools.wraps(original)
    def run(main: Coroutine[Any, Any, T], **options: Any) -> T:
        if threading.get_ident() != home or loop.is_closed():
            return original(main, **options)  # type: ignore[no-any-return]
        if not asyncio.iscoroutine(main):
            raise ValueError(f"a coroutine was expected, got {main!r}")
        if options.get("loop_factory") is not None:
            with _hidden_loop():
                return original(main, **options)  # type: ignore[no-any-return]
        before = asyncio.all_tasks(loop)
        try:
            return loop.run_until_complete(main)
        finally:
            if not loop.is_running():
                cancel_tasks(loop, asyncio.all_tasks(loop) - before)

    return run


def cancel_tasks(loop: AgentLoop, tasks: set[asyncio.Task[Any]], seconds: float = 0.25) -> None:
    """Cancel left-over tasks and give their `finally` blocks at most `seconds`."""
    pending = {task for task in tasks if not task.done()}
    for task in pending:
        task.cancel()
    if pending:
        loop.run_until_complete(asyncio.wait(pending, timeout=seconds))
