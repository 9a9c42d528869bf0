"""Blocking methods, made of asynchronous ones by their type."""

from collections.abc import Awaitable, Callable, Generator
from functools import wraps
from typing import Concatenate, Generic, ParamSpec, TypeVar

from mcp_exec_client.blocking.loop import LoopThread
from mcp_exec_client.iteration import ItemStream

_P = ParamSpec("_P")
_T = TypeVar("_T")
_Target = TypeVar("_Target")


class Blocking(Generic[_Target]):
    """Base of blocking classes: an object with asynchronous methods, and the loop that runs them."""

    def __init__(self, target: _Target, loop: LoopThread) -> None:
        self._target = target
        self._loop = loop

    def call(self, method: Callable[[_Target], Awaitable[_T]]) -> _T:
        """Return what an asynchronous function of the target returns."""

        async def await_method() -> _T:
            return await method(self._target)

        return self._loop.run(await_method())

    def iterate(self, method: Callable[[_Target], ItemStream[_T]]) -> Generator[_T, None, None]:
        """Yield what an asynchronous iteration of the target yields."""
        items = method(self._target)

        async def get_next() -> list[_T]:
            return [item] if (item := await anext(items, None)) is not None else []

        async def close() -> None:
            await items.aclose()

        try:
            while found := self._loop.run(get_next()):
                yield from found
        finally:
            self._loop.finish(close())


def blocking(
    method: Callable[Concatenate[_Target, _P], Awaitable[_T]],
) -> Callable[Concatenate[Blocking[_Target], _P], _T]:
    """Return a method that waits for this method of its target."""

    @wraps(method)
    def call(self: Blocking[_Target], /, *arguments: _P.args, **options: _P.kwargs) -> _T:
        return self.call(lambda target: method(target, *arguments, **options))

    return call


def iterating(
    method: Callable[Concatenate[_Target, _P], ItemStream[_T]],
) -> Callable[Concatenate[Blocking[_Target], _P], Generator[_T, None, None]]:
    """Return a method that iterates over what this method of its target yields."""

    @wraps(method)
    def iterate(self: Blocking[_Target], /, *arguments: _P.args, **options: _P.kwargs) -> Generator[_T, None, None]:
        return self.iterate(lambda target: method(target, *arguments, **options))

    return iterate
