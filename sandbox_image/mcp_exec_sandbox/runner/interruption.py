"""Interruption of the code from outside: the supervisor sends SIGINT, and the code gets an exception."""

import asyncio
import signal
from collections import deque
from collections.abc import Callable
from types import FrameType
from typing import Any

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
