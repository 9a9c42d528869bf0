"""Direct calls in progress, which a message of the same caller can cancel."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


class CallCancelled(Exception):
    """The caller cancelled the call."""


@dataclass(kw_only=True, eq=False)
class RunningCalls:
    """Tasks of calls by a key of caller, session and request. Only this replica knows them."""

    _tasks: "dict[str, asyncio.Task[object]]" = field(default_factory=dict)
    _cancelled: set[str] = field(default_factory=set)

    @contextmanager
    def hold(self, key: str | None) -> Iterator[None]:
        """Let `cancel` end what the current task does inside the context. Raises CallCancelled if it did."""
        task = asyncio.current_task()
        if key is None or task is None or key in self._tasks:
            yield
            return
        self._tasks[key] = task
        try:
            yield
        except asyncio.CancelledError:
            if key not in self._cancelled or task.uncancel():
                raise
            raise CallCancelled from None
        finally:
            del self._tasks[key]
            self._cancelled.discard(key)

    def cancel(self, key: str) -> bool:
        """Cancel a call, and return whether there is one."""
        task = self._tasks.get(key)
        if task is None:
            return False
        if key not in self._cancelled:
            self._cancelled.add(key)
            task.cancel()
        return True
