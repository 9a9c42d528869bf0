"""Reentrant event loop that makes `asyncio.run()` and `asyncio.Runner` work everywhere in the agent's code.

Code that awaits at the top level already runs inside a loop, where plain asyncio refuses `asyncio.run()` and
`loop.run_until_complete()`. This loop runs the inner coroutine to its end and then continues the outer one.
"""

import asyncio
import collections
import contextlib
import functools
import signal
import weakref
from collections import deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
    Mapping,
)
from contextvars import Context
from types import FrameType
from typing import Any, ClassVar, TypeVar

T = TypeVar("T")
_INNER_FRAMES, _OUTER_FRAMES = 200, 20


class Interrupted(KeyboardInterrupt):
    """Raised in the code's main thread at its timeout or when its run is cancelled."""


class InterruptHandler:
    """Handler of SIGINT. It raises only between `arm` and `disarm`."""

    def __init__(self, *, report: Callable[[list[FrameType]], None], loop: asyncio.AbstractEventLoop) -> None:
        self._report = report
        self._loop = loop
        self._armed = False
        self.was_requested = False
        """Whether an interrupt came since the code began, also one that did not raise."""

    def install(self) -> None:
        """Handle SIGINT from now on. Until armed, the handler ignores it."""
        signal.signal(signal.SIGINT, self._handle)

    def arm(self) -> None:
        """Let an interrupt of new code raise."""
        self.was_requested = False
        self._armed = True

    def rearm(self) -> None:
        """Let an interrupt raise at the end of the code, too. Raises Interrupted if one has come since `arm`."""
        self._armed = True
        if self.was_requested:
            raise Interrupted("interrupted")

    def disarm(self) -> None:
        """Ignore interrupts, because the report is being written."""
        self._armed = False

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        self.was_requested = True
        if not self._armed:
            return
        # Reported at once: code that swallows the exception is killed and could not report it later.
        self._report(_list_frames(frame) + _list_suspended_frames(self._loop))
        raise Interrupted("interrupted")


def _list_frames(frame: FrameType | None) -> list[FrameType]:
    """Return the stack that ends at `frame`, outermost first. Of a very deep one, both ends."""
    inner: list[FrameType] = []
    while frame is not None and len(inner) < _INNER_FRAMES:
        inner.append(frame)
        frame = frame.f_back
    outer: deque[FrameType] = deque(maxlen=_OUTER_FRAMES)
    while frame is not None:
        outer.append(frame)
        frame = frame.f_back
    return [*inner, *outer][::-1]


def _list_suspended_frames(loop: asyncio.AbstractEventLoop) -> list[FrameType]:
    """Return the stack of the oldest task if all tasks wait, outermost first."""
    if not loop.is_running() or asyncio.current_task(loop) is not None:
        return []
    coroutines: list[Any] = [task.get_coro() for task in sorted(asyncio.all_tasks(loop), key=_get_age_key)]
    waiting = [coroutine for coroutine in coroutines if not getattr(coroutine, "cr_running", True)]
    return _list_awaited_frames(waiting[0]) if waiting else []


def _get_age_key(task: asyncio.Task[Any]) -> tuple[int, str]:
    """Return a sort key by age for tasks with asyncio's own names (Task-2, Task-10)."""
    return len(task.get_name()), task.get_name()


def _list_awaited_frames(awaitable: Any) -> list[FrameType]:
    frames: list[FrameType] = []
    while (frame := getattr(awaitable, "cr_frame", None)) is not None and len(frames) < 100:
        frames.append(frame)
        awaitable = awaitable.cr_await
    return frames


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

    on_ignored: ClassVar[Callable[[Mapping[str, Any]], None]] = staticmethod(lambda context: None)
    """Is called with what a loop has logged, because nothing in the code handles it."""

    def __init__(self) -> None:
        super().__init__()
        noop = asyncio.Handle(lambda: None, (), self)
        noop.cancel()
        self._ready = _ReadyQueue(noop)
        self._asyncgens: weakref.WeakSet[AsyncGenerator[Any, Any]]
        self.before_cancel: Callable[[set[asyncio.Task[Any]]], None] = lambda tasks: None
        """Is called with the tasks that the end of the code cancels."""

    def list_generators(self) -> list[AsyncGenerator[Any, Any]]:
        """Return the asynchronous generators that have begun and not ended."""
        return list(self._asyncgens)

    def close_generators(self, kept: Iterable[AsyncGenerator[Any, Any]] = ()) -> None:
        """Close the asynchronous generators that have begun, except for `kept`, as the end of `asyncio.run` does."""
        self._asyncgens.difference_update(kept)
        if self._asyncgens:
            self.run_until_complete(self.shutdown_asyncgens())
        self._asyncgens.update(kept)
        self._asyncgens_shutdown_called = False

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """Log an error that nothing handles."""
        super().default_exception_handler(context)
        with contextlib.suppress(Exception):
            AgentLoop.on_ignored(context)

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
        before, generators, debugs = asyncio.all_tasks(loop), loop.list_generators(), loop.get_debug()
        if options.get("debug") is not None:
            loop.set_debug(options["debug"])
        try:
            return loop.run_until_complete(main)
        finally:
            loop.set_debug(debugs)
            if not loop.is_running():
                cancel_tasks(loop, asyncio.all_tasks(loop) - before)
                loop.close_generators(generators)

    return run


def iterate(items: AsyncIterator[T]) -> Iterator[T]:
    """Return the items one after the other, by the loop of this thread, and close what gives them."""
    loop = asyncio.get_event_loop()
    try:
        while True:
            try:
                yield loop.run_until_complete(_get_next(items))
            except StopAsyncIteration:
                return
    finally:
        if (close := getattr(items, "aclose", None)) is not None:
            loop.run_until_complete(close())


async def _get_next(items: AsyncIterator[T]) -> T:
    return await anext(items)


def cancel_tasks(loop: AgentLoop, tasks: set[asyncio.Task[Any]], seconds: float = 0.25) -> None:
    """Cancel left-over tasks and give their `finally` blocks at most `seconds`."""
    pending = {task for task in tasks if not task.done()}
    loop.before_cancel(pending)
    for task in pending:
        task.cancel()
    if not pending:
        return
    done, _ = loop.run_until_complete(asyncio.wait(pending, timeout=seconds))
    for task in done:
        if not task.cancelled() and (error := task.exception()) is not None:
            message = "unhandled exception during asyncio.run() shutdown"
            loop.call_exception_handler({"message": message, "exception": error, "task": task})
