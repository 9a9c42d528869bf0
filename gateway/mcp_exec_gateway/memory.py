"""Answers that are remembered for a while, bounded in number."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(kw_only=True)
class Memory(Generic[T]):
    """Remembers what was looked up; the same question asked by many at once is looked up once."""

    lifetime: Callable[[T], float]
    """Seconds that an answer stays good."""
    size: int = 2048
    """Answers that are kept; the one unused for longest makes room."""
    clock: Callable[[], float] = time.monotonic
    _known: OrderedDict[object, tuple[float, T]] = field(default_factory=OrderedDict, init=False)
    _asked: dict[object, asyncio.Task[T]] = field(default_factory=dict, init=False)

    async def get(self, question: object, look_up: Callable[[], Awaitable[T]]) -> T:
        """The answer, by `look_up` where none is remembered. An error of it is raised, and not remembered."""
        known = self._known.get(question)
        if known is not None and self.clock() < known[0]:
            self._known.move_to_end(question)
            return known[1]
        task = self._asked.get(question)
        if task is None:
            task = asyncio.create_task(self._look_up(question, look_up))
            self._asked[question] = task
            task.add_done_callback(lambda done: self._asked.pop(question, None))
        # one that asked may go away; the others still want to know
        return await asyncio.shield(task)

    async def _look_up(self, question: object, look_up: Callable[[], Awaitable[T]]) -> T:
        answer = await look_up()
        self._known[question] = (self.clock() + self.lifetime(answer), answer)
        self._known.move_to_end(question)
        while len(self._known) > self.size:
            self._known.popitem(last=False)
        return answer
