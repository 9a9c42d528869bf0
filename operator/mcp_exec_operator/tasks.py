"""Background tasks that outlive the call that started them, and end with the operator."""

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

log = logging.getLogger(__name__)


@dataclass(kw_only=True)
class Tasks:
    """A set of tasks. One that fails is logged and harms no other, unlike in an asyncio.TaskGroup."""

    _running: set[asyncio.Task[Any]] = field(default_factory=set)
    _abandoned: bool = False

    def spawn(self, coroutine: Coroutine[Any, Any, Any], *, name: str) -> asyncio.Task[Any]:
        """Starts a task and holds it until it ends."""
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self._running.add(task)
        task.add_done_callback(self._ended)
        if self._abandoned:
            task.cancel()  # before its first step
        return task

    def abandon(self) -> None:
        """Breaks all tasks off, and each that comes later before it begins."""
        self._abandoned = True
        for task in list(self._running):
            task.cancel()

    def __len__(self) -> int:
        return len(self._running)

    async def close(self, *, grace_seconds: float) -> None:
        """Waits so long for all tasks to end by themselves, and cancels those that don't."""
        if self._running:
            await asyncio.wait(self._running, timeout=grace_seconds)
        left = list(self._running)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("the task %r failed: %s", task.get_name(), error, exc_info=error)
