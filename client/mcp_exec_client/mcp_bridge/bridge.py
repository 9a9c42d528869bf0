"""The bridge: passes messages between a client on stdio and the gateway, in the revision that the client speaks.

It adds what stdio lacks: the headers of streamable HTTP, cancellation by closing a connection, and, if a replica of the
gateway ends while code runs, following the run at another one.
"""

import asyncio
import json
import threading
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Any, BinaryIO, Final

from mcp_exec_api.wire.problems import PROBLEM_PREFIX
from mcp_exec_client.errors import GatewayError, GatewayUnreachable, McpExecError
from mcp_exec_client.mcp_bridge.endpoint import (
    CANCELLED,
    INVALID_REQUEST,
    PARSE_ERROR,
    TRY_LATER,
    ClientMessage,
    McpEndpoint,
    NoMessage,
    Reception,
    RequestId,
    build_error,
    is_response_to,
)
from mcp_exec_client.transport import RETRIED_STATUSES, Attempts

MAX_LINE_BYTES: Final = 4 * 1024 * 1024
"""More than the largest body that a gateway accepts."""
_MAX_QUEUED: Final = 16
_MAX_REQUESTS: Final = 64
"""Requests of the client at the same time."""
Object = dict[str, Any]
Write = Callable[[Object], Awaitable[None]]


class LineTooLong(Exception):
    """A line of more than MAX_LINE_BYTES. What follows it cannot be read."""


async def read_lines(stream: BinaryIO) -> AsyncIterator[bytes]:
    """Yield lines until the stream ends. Raises LineTooLong.

    A thread reads them: asyncio cannot read the standard input of every platform. It does not outlive the program.
    """
    loop, queue = asyncio.get_running_loop(), asyncio.Queue[bytes](_MAX_QUEUED)

    def read() -> None:
        with suppress(RuntimeError, OSError, ValueError):  # the loop or the stream is closed
            while True:
                line = stream.readline(MAX_LINE_BYTES + 1)
                asyncio.run_coroutine_threadsafe(queue.put(line), loop).result()
                if not line:
                    return

    threading.Thread(target=read, daemon=True, name="stdin").start()
    while line := await queue.get():
        if len(line) > MAX_LINE_BYTES:
            raise LineTooLong(f"a message has more than {MAX_LINE_BYTES} bytes")
        yield line


class LineWriter:
    """Writes messages, each as one line."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._lock = asyncio.Lock()

    async def write(self, message: Any) -> None:
        """Write a message. A client that reads slowly holds up this message and those after it, not the program."""
        line = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        async with self._lock:
            await asyncio.to_thread(self._write, line)

    def _write(self, line: bytes) -> None:
        self._stream.write(line)
        self._stream.flush()


class StdioBridge:
    """One client's connection."""

    def __init__(self, endpoint: McpEndpoint, write: Write, report: Callable[[str], None]) -> None:
        self._endpoint = endpoint
        self._write = write
        self._report = report
        self._session: dict[str, str] = {}
        """Headers of the session, in revisions that have sessions."""
        self._requests: dict[RequestId, asyncio.Task[None]] = {}
        self._others: set[asyncio.Task[None]] = set()

    async def run(self, lines: AsyncIterator[bytes]) -> None:
        """Pass messages until the client closes its end; then end all requests."""
        try:
            async for line in lines:
                if line.strip():
                    await self._accept(line)
        finally:
            tasks = {*self._requests.values(), *self._others}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _accept(self, line: bytes) -> None:
        try:
            message = ClientMessage.parse(line)
        except NoMessage as error:
            await self._write(build_error(None, PARSE_ERROR, f"not a message: {error}"))
            return
        if message.kind == "request":
            await self._accept_request(message)
        elif message.method == CANCELLED and not self._session:
            self._cancel(message.params.get("requestId"))
        elif self._session:
            # revisions without sessions have no other messages from clients over HTTP
            self._spawn(self._deliver(message))
        if message.method == "notifications/initialized" and self._session:
            self._spawn(self._listen())

    async def _accept_request(self, message: ClientMessage) -> None:
        request_id = message.id
        if request_id is None or request_id in self._requests or len(self._requests) >= _MAX_REQUESTS:
            text = f"a request needs an id that no other one has, and {_MAX_REQUESTS} are possible at the same time"
            await self._write(build_error(request_id, INVALID_REQUEST, text))
            return
        if message.method == "initialize":
            await self._serve(message)  # the next messages need the session
            return
        task = asyncio.create_task(self._serve(message))
        self._requests[request_id] = task
        task.add_done_callback(lambda _: self._requests.pop(request_id, None))

    def _cancel(self, request_id: Any) -> None:
        task = self._requests.get(request_id) if isinstance(request_id, int | str) else None
        if task is not None:
            task.cancel()

    def _spawn(self, work: Any) -> None:
        task: asyncio.Task[None] = asyncio.create_task(work)
        self._others.add(task)
        task.add_done_callback(self._others.discard)

    async def _serve(self, message: ClientMessage) -> None:
        """Send a request and write the messages of its response. The last one is the result or an error."""
        if message.runs_code:
            message = message.with_idempotency_key(uuid.uuid4().hex)
        try:
            async with aclosing(self._follow(message)) as messages:
                async for received in messages:
                    await self._write(received)
        except (McpExecError, ValueError) as error:
            # ValueError: a message, or a header that is part of it, that HTTP cannot carry
            self._report(str(error))
            await self._write(_describe(message.id, error))

    async def _follow(self, message: ClientMessage) -> AsyncGenerator[Object, None]:
        """Yield all messages up to the response, also if connections are lost in between. Raises McpExecError."""
        attempts, reception = Attempts(self._endpoint.transport), Reception(headers={})
        while True:
            try:
                async with aclosing(self._exchange(message, reception)) as messages:
                    async for received in messages:
                        attempts.reset()
                        if message.method == "initialize":
                            self._begin_session(received, reception)
                        yield received
                        if is_response_to(received, message.id):
                            return
                raise GatewayUnreachable("the gateway ended a response before its result")
            except (GatewayError, GatewayUnreachable) as error:
                await attempts.pause(error, repeatable=message.is_repeatable or reception.last_event_id is not None)

    def _exchange(self, message: ClientMessage, reception: Reception) -> AsyncGenerator[Object, None]:
        if message.modern_version is not None:
            return self._endpoint.exchange(message.body, headers=message.list_headers(), reception=reception)
        if reception.last_event_id is None:
            return self._endpoint.exchange(message.body, headers=self._session, reception=reception)
        headers = {**self._session, "Last-Event-ID": reception.last_event_id}
        return self._endpoint.listen(headers=headers, reception=reception)

    def _begin_session(self, response: Object, reception: Reception) -> None:
        result = response.get("result")
        if isinstance(result, dict) and isinstance(version := result.get("protocolVersion"), str):
            session = reception.headers.get("mcp-session-id")
            self._session = {"MCP-Protocol-Version": version, **({"Mcp-Session-Id": session} if session else {})}

    async def _deliver(self, message: ClientMessage) -> None:
        """Send a notification or a response."""
        try:
            async for _ in self._endpoint.exchange(
                message.body, headers=self._session, reception=Reception(headers={})
            ):
                pass
        except (McpExecError, ValueError) as error:
            self._report(f"{message.method or 'a response'} was not delivered: {error}")

    async def _listen(self) -> None:
        """Write the gateway's messages that belong to no request, if it has such a stream."""
        transport, failures, waited = self._endpoint.transport, 0, 0.0
        while True:
            try:
                async for received in self._endpoint.listen(headers=self._session, reception=Reception(headers={})):
                    failures, waited = 0, 0.0
                    await self._write(received)
            except GatewayError as error:
                if error.status not in RETRIED_STATUSES:
                    return
            except GatewayUnreachable:
                pass
            except McpExecError:
                return
            failures += 1
            delay = transport.retries.find_delay(failures, waited=waited, retry_after=None)
            if delay is None:
                return
            await transport.sleep(delay)
            waited += delay


def _describe(request_id: RequestId | None, error: McpExecError | ValueError) -> Object:
    """Return the response that reports a failure of the connection, or a request that cannot be sent."""
    if not isinstance(error, McpExecError):
        return build_error(request_id, INVALID_REQUEST, f"the request cannot be sent: {error}")
    if not isinstance(error, GatewayError):
        return build_error(request_id, TRY_LATER, str(error))
    code = TRY_LATER if error.status in RETRIED_STATUSES else INVALID_REQUEST
    data = {"type": PROBLEM_PREFIX + error.kind, "status": error.status}
    return build_error(request_id, code, error.detail, data)
