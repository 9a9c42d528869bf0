"""An execution's events up to the end, also if connections are lost in between."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, suppress
from functools import wraps
from typing import Final, Generic, NoReturn, ParamSpec, Self, TypeVar, cast

import httpx

from mcp_exec_client.errors import GatewayError, GatewayUnreachable, UnexpectedResponse, add_execution
from mcp_exec_client.events import EndEvent, StreamedEvent, parse_line
from mcp_exec_client.transport import Attempts, Query, Transport

_KEEP_ALIVE_SECONDS: Final = 15.0
"""The gateway sends something at least this often."""
_MAX_LINE_BYTES: Final = 8 * 1024 * 1024
"""More than an event with the largest result, if every byte of it is escaped."""
_MAX_EVENTS: Final = 1_000_000
"""More than the gateway's limit of a stream's sequence numbers."""
_P = ParamSpec("_P")
_T = TypeVar("_T")
_Demand = asyncio.Future[list[_T]]
_END: Final = object()


async def follow_events(
    transport: Transport, path: str, *, query: Query, last_event_id: str | None, execution: str
) -> AsyncGenerator[StreamedEvent, None]:
    """Yield the events after `last_event_id`, up to the end. A lost connection is resumed after the last event.

    Raises GatewayError, GatewayUnreachable and UnexpectedResponse, which name the execution.
    """
    position, left, attempts = last_event_id, _MAX_EVENTS, Attempts(transport)
    while True:
        try:
            async with aclosing(_read_connection(transport, path, query, position)) as events:
                async for event in events:
                    attempts.reset()
                    position, left = event.id, left - 1
                    if not left:
                        raise UnexpectedResponse(f"GET {transport.url}{path}: more than {_MAX_EVENTS} events")
                    yield event
                    if isinstance(event, EndEvent):
                        return
        except _StreamEmpty:
            return
        except (GatewayError, GatewayUnreachable) as error:
            add_execution(error, execution)
            await attempts.pause(error)


class _StreamEmpty(Exception):
    """The stream has no events after the position: the client has received all."""


async def _read_connection(
    transport: Transport, path: str, query: Query, position: str | None
) -> AsyncGenerator[StreamedEvent, None]:
    """Yield the events of one connection. Raises GatewayUnreachable if it ends before the last event."""
    headers = {"Accept": "application/x-ndjson", **({"Last-Event-ID": position} if position else {})}
    address = f"GET {transport.url}{path}"
    seconds = _KEEP_ALIVE_SECONDS + transport.timeout_seconds
    async with transport.open("GET", path, query=query, headers=headers, read_seconds=seconds) as response:
        if response.status_code == 204:
            raise _StreamEmpty
        async with aclosing(_split_lines(response, address)) as lines:
            async for line in lines:
                if line.strip():
                    yield parse_line(line, address=address)
    raise GatewayUnreachable(f"{address}: the stream ended before the execution's end")


async def _split_lines(response: httpx.Response, address: str) -> AsyncGenerator[bytes, None]:
    """Yield complete lines; an incomplete last line is dropped, because the stream will be resumed before it."""
    rest = bytearray()
    # httpx declares it as an iterator, and it is a generator
    async with aclosing(cast(AsyncGenerator[bytes], response.aiter_raw())) as chunks:
        async for chunk in chunks:
            *lines, last = chunk.split(b"\n")
            for line in lines:
                rest += line
                yield bytes(rest)
                rest.clear()
            rest += last
            if len(rest) > _MAX_LINE_BYTES:
                raise UnexpectedResponse(f"{address}: an event has more than {_MAX_LINE_BYTES} bytes")


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

    def __await__(self) -> NoReturn:
        raise TypeError("this is an iteration: write `async for each in ...` or `[each async for each in ...]`")

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
