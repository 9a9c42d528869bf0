"""Stopping the code from outside: the supervisor sends SIGINT, and the code sees an exception where it stands."""

import asyncio
import signal
from collections.abc import Callable
from types import FrameType
from typing import Any


class Interrupted(KeyboardInterrupt):
    """Raised in the code's main thread when its time is over or its run is cancelled."""


class Interruption:
    """The handler of SIGINT; it raises only between `arm` and `disarm`."""

    def __init__(self, *, report: Callable[[list[FrameType]], None], loop: asyncio.AbstractEventLoop) -> None:
        self._report = report
        self._loop = loop
        self._armed = False

    def install(self) -> None:
        """Handle SIGINT from now on; disarmed, it is ignored."""
        signal.signal(signal.SIGINT, self._handle)

    def arm(self) -> None:
        """Let an interrupt raise."""
        self._armed = True

    def disarm(self) -> None:
        """Let an interrupt pass without effect: the report is being written."""
        self._armed = False

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        if not self._armed:
            return
        # Told at once: code that swallows the exception is killed, and could not tell it any more.
        self._report(_frames(frame) + _suspended_frames(self._loop))
        raise Interrupted("interrupted")


def _frames(frame: FrameType | None) -> list[FrameType]:
    """The stack that ends at `frame`, outermost first."""
    frames = []
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    return frames[::-1]


def _suspended_frames(loop: asyncio.AbstractEventLoop) -> list[FrameType]:
    """Where the oldest task stands if all of them wait, outermost first."""
    if not loop.is_running() or asyncio.current_task(loop) is not None:
        return []
    coroutines: list[Any] = [task.get_coro() for task in sorted(asyncio.all_tasks(loop), key=_age)]
    waiting = [coroutine for coroutine in coroutines if not getattr(coroutine, "cr_running", True)]
    return _awaited_frames(waiting[0]) if waiting else []


def _age(task: asyncio.Task[Any]) -> tuple[int, str]:
    """Orders tasks that carry asyncio's own names (Task-2, Task-10) by age."""
    return len(task.get_name()), task.get_name()


def _awaited_frames(awaitable: Any) -> list[FrameType]:
    frames: list[FrameType] = []
    while (frame := getattr(awaitable, "cr_frame", None)) is not None and len(frames) < 100:
        frames.append(frame)
        awaitable = awaitable.cr_await
    return frames
