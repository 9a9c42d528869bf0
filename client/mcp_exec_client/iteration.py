"""Asynchronous iterations that a caller may leave at any point, without closing them."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, suppress
from functools import wraps
from typing import Final, Generic, ParamSpec, Self, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")

_Demand = asyncio.Future[list[_T]]
_END: Final = object()


class ItemStream(AsyncIterator[_T], Generic[_T]):
    """Iterator over the items of an asynchronous generator, which a task of its own runs, one item for each request.

    `break`, an exception and a cancelled task end that task, also if nobody calls `aclose`. Nested generators that
    are left open are closed by the event loop instead, all at the same time, which prints tracebacks at its end.
    """

    def __init__(self, source: AsyncGenerator[_T, None]) -> None:
        self._source = source
        self._demands: asyncio.Queue[_Demand[_T]] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> _T:
        if self._task is None:
            self._task = asyncio.create_task(_produce(self._source, self._demands))
        if self._task.done():
            raise StopAsyncIteration
        demand: _Demand[_T] = asyncio.get_running_loop().create_future()
        self._demands.put_nowait(demand)
        try:
            found = await demand
        except asyncio.CancelledError:
            await self.aclose()
            raise
        if not found:
            raise StopAsyncIteration
        return found[0]

    async def aclose(self) -> None:
        """End the iteration and release what it holds."""
        if self._task is None:
            await self._source.aclose()
            return
        _cancel(self._task)
        await asyncio.wait([self._task])

    def __del__(self) -> None:
        if self._task is not None and not self._task.done():
            with suppress(RuntimeError):  # the loop is closed
                # the garbage collector may run in any thread
                self._task.get_loop().call_soon_threadsafe(_cancel, self._task)


def streamed(method: Callable[_P, AsyncGenerator[_T, None]]) -> Callable[_P, ItemStream[_T]]:
    """Return a function whose iterations a caller may leave at any point."""

    @wraps(method)
    def start(*arguments: _P.args, **options: _P.kwargs) -> ItemStream[_T]:
        return ItemStream(method(*arguments, **options))

    return start


def _cancel(task: "asyncio.Task[None]") -> None:
    if not task.cancelling():  # a second one would interrupt its cleanup
        task.cancel()


async def _produce(source: AsyncGenerator[_T, None], demands: "asyncio.Queue[_Demand[_T]]") -> None:
    """Answer each demand with the next item, with none at the end, or with the error that ends the source."""
    demand: _Demand[_T] | None = None
    try:
        async with aclosing(source):
            while True:
                demand = await demands.get()
                item = await anext(source, _END)
                if item is _END:
                    return
                if not demand.done():
                    demand.set_result([item])  # type: ignore[list-item]
    except Exception as error:
        if demand is not None and not demand.done():
            demand.set_exception(error)
    finally:
        waiting = [] if demand is None else [demand]
        while not demands.empty():
            waiting.append(demands.get_nowait())
        for each in waiting:
            if not each.done():
                each.set_result([])
