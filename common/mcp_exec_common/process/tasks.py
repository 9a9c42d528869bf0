"""Background tasks that outlive the call that started them and end with the process."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

log = logging.getLogger(__name__)


@dataclass(kw_only=True)
class TaskRegistry:
    """Set of running tasks. A task that fails is logged and ends no other, unlike in an asyncio.TaskGroup."""

    on_failure: Callable[[str], None] | None = None
    """Called with the name of each task that ended with an exception."""
    _running: set[asyncio.Task[Any]] = field(default_factory=set)
    _cancelled: bool = False

    def __len__(self) -> int:
        return len(self._running)

    def spawn(self, coroutine: Coroutine[Any, Any, Any], *, name: str) -> asyncio.Task[Any]:
        """Start a task and keep a reference to it until it ends."""
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self._running.add(task)
        task.add_done_callback(self._remove)
        if self._cancelled:
            task.cancel()  # before its first step
        return task

    def cancel_all(self) -> None:
        """Cancel all tasks, and each later one before its first step."""
        self._cancelled = True
        for task in list(self._running):
            task.cancel()

    async def close(self, *, grace_seconds: float = 0.0) -> None:
        """Wait `grace_seconds` for all tasks to end, then cancel the rest and wait for them."""
        if self._running and grace_seconds > 0:
            await asyncio.wait(self._running, timeout=grace_seconds)
        remaining = list(self._running)
        for task in remaining:
            task.cancel()
        await asyncio.gather(*remaining, return_exceptions=True)

    def _remove(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("task %r failed: %s", task.get_name(), error, exc_info=error)
            if self.on_failure is not None:
                self.on_failure(task.get_name())
