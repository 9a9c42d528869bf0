"""An execution's events up to the end, also if connections are lost in between."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final, cast

import httpx

from mcp_exec_client.errors import GatewayError, GatewayUnreachable, UnexpectedResponse
from mcp_exec_client.events import EndEvent, StreamedEvent, parse_line
from mcp_exec_client.transport import Query, Transport, can_retry

_KEEP_ALIVE_SECONDS: Final = 15.0
"""The gateway sends something at least this often."""
_MAX_LINE_BYTES: Final = 8 * 1024 * 1024
"""More than an event with the largest result, if every byte of it is escaped."""
_MAX_EVENTS: Final = 1_000_000
"""More than the gateway's limit of a stream's sequence numbers."""


async def follow_events(
    transport: Transport, path: str, *, query: Query, last_event_id: str | None
) -> AsyncGenerator[StreamedEvent, None]:
    """Yield the events after `last_event_id`, up to the end. A lost connection is resumed after the last event.

    Raises GatewayError, GatewayUnreachable and UnexpectedResponse.
    """
    position, failures, waited, left = last_event_id, 0, 0.0, _MAX_EVENTS
    while True:
        try:
            async with aclosing(_read_connection(transport, path, query, position)) as events:
                async for event in events:
                    position, failures, waited, left = event.id, 0, 0.0, left - 1
                    if not left:
                        raise UnexpectedResponse(f"GET {transport.url}{path}: more than {_MAX_EVENTS} events")
                    yield event
                    if isinstance(event, EndEvent):
                        return
        except _StreamEmpty:
            return
        except (GatewayError, GatewayUnreachable) as error:
            failures += 1
            retry_after = error.retry_after if isinstance(error, GatewayError) else None
            delay = transport.retries.find_delay(failures, waited=waited, retry_after=retry_after)
            if delay is None or not can_retry(error):
                raise
            waited += delay
            await transport.sleep(delay)


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
