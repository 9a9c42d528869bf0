"""How far the work of one task travels through a package: functions entered, and changes of module.

Functions that `dataclass` generates do not count: nobody reads them.
"""

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any


@dataclass
class Travel:
    """What tasks whose names begin with `task` entered in `package`."""

    package: str
    task: str
    functions: dict[CodeType, str] = field(default_factory=dict)
    """Module by function, in the order of their first calls."""
    changes: int = 0
    """Calls of functions in another module than the one that was called last."""
    _module: str = ""

    def observe(self, frame: FrameType, event: str, _: Any) -> None:
        """Count a call, as `sys.setprofile` reports it. That a coroutine goes on is no call."""
        if event != "call":
            return
        module = frame.f_globals.get("__name__", "")
        if not module.startswith(self.package) or "<" in frame.f_code.co_name[:1] + frame.f_code.co_filename[:1]:
            return
        try:
            task = asyncio.current_task()
        except RuntimeError:
            return
        if task is None or not task.get_name().startswith(self.task):
            return
        code = frame.f_code
        if code not in self.functions:
            self.functions[code] = module
            self.changes += module != self._module
            self._module = module


@contextmanager
def travelling(package: str, task: str) -> Iterator[Travel]:
    """Observe the calls of a task while the context lasts."""
    travel = Travel(package=package, task=task)
    sys.setprofile(travel.observe)
    try:
        yield travel
    finally:
        sys.setprofile(None)
