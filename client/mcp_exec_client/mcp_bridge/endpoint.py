"""One exchange with the gateway's MCP endpoint: a message out, the messages of the response in."""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import httpx

from mcp_exec_client.errors import UnexpectedResponse
from mcp_exec_client.transport import Query, Transport, encode_body, read_problem

_PATH: Final = "/mcp"
_ACCEPT: Final = "application/json, text/event-stream"
_SILENT_SECONDS: Final = 60.0
"""Longest time without data: the gateway sends something every 15 s."""
_MAX_EVENT_BYTES: Final = 32 * 1024 * 1024
_ERROR_STATUSES: Final = (400, 404)
"""Statuses of responses that may have an error of the protocol as their body."""

Object = dict[str, Any]


@dataclass(kw_only=True)
class Reception:
    """What is known of a response so far."""

    headers: Mapping[str, str]
    last_event_id: str | None = None


@dataclass(frozen=True, kw_only=True)
class McpEndpoint:
    """The endpoint with its parameters."""

    transport: Transport
    query: Query

    async def exchange(
        self, body: Object, *, headers: Mapping[str, str], reception: Reception
    ) -> AsyncGenerator[Object, None]:
        """Post a message and yield those of the response. Raises McpExecError."""
        async for message in self._receive("POST", encode_body(body), headers, reception):
            yield message

    async def listen(self, *, headers: Mapping[str, str], reception: Reception) -> AsyncGenerator[Object, None]:
        """Yield the messages of a GET: of a stream that is resumed, or those that belong to no request.

        Raises McpExecError.
        """
        async for message in self._receive("GET", None, headers, reception):
            yield message

    async def _receive(
        self, method: str, content: bytes | None, headers: Mapping[str, str], reception: Reception
    ) -> AsyncGenerator[Object, None]:
        address = f"{method} {self.transport.url}{_PATH}"
        async with self.transport.open(
            method,
            _PATH,
            query=self.query,
            content=content,
            headers={"Accept": _ACCEPT, **headers},
            expected=_ERROR_STATUSES,
            read_seconds=_SILENT_SECONDS,
        ) as response:
            reception.headers = response.headers
            media_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
            if media_type == "text/event-stream":
                async for message in _read_events(response, address, reception):
                    yield message
            elif media_type == "application/json":
                yield _parse(await _read_all(response, address), address)
            elif response.status_code >= 300:
                raise await read_problem(response, address)


async def _read_all(response: httpx.Response, address: str) -> bytes:
    content = bytearray()
    async for chunk in response.aiter_raw():
        content += chunk
        if len(content) > _MAX_EVENT_BYTES:
            raise UnexpectedResponse(f"{address}: the response has more than {_MAX_EVENT_BYTES} bytes")
    return bytes(content)


async def _read_events(response: httpx.Response, address: str, reception: Reception) -> AsyncIterator[Object]:
    """Yield the messages of server-sent events, and note their ids."""
    rest, data = bytearray(), bytearray()
    event_id: str | None = None
    async for chunk in response.aiter_raw():
        rest += chunk
        if len(rest) + len(data) > _MAX_EVENT_BYTES:
            raise UnexpectedResponse(f"{address}: an event has more than {_MAX_EVENT_BYTES} bytes")
        if b"\n" not in chunk:  # a long line is split once, not again with each of its parts
            continue
        *lines, last = bytes(rest).split(b"\n")
        rest = bytearray(last)
        for line in lines:
            name, _, value = line.rstrip(b"\r").partition(b":")
            value = value.removeprefix(b" ")
            if name == b"id" and not line.startswith(b":"):
                event_id = value.decode(errors="replace")
            elif name == b"data":
                data += value
            elif not line.rstrip(b"\r"):
                reception.last_event_id = event_id or reception.last_event_id
                if data:
                    yield _parse(bytes(data), address)
                data.clear()


def _parse(content: bytes, address: str) -> Object:
    try:
        message = json.loads(content)
    except (ValueError, RecursionError):
        message = None
    if not isinstance(message, dict):
        raise UnexpectedResponse(f"{address}: the response is no JSON-RPC message; is this a gateway?")
    return message
