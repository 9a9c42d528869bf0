"""Sandboxes as their clients reach them: operator and gateway."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, Self

import aiohttp

from mcp_exec_api.constants import MAX_OUTPUT_BYTES, MAX_TOOL_CALLS, SUPERVISOR_PORT
from mcp_exec_common.supervisor.protocol import EndEvent, Event, Job, SandboxError, SandboxUsed, parse_event
from mcp_exec_common.supervisor.tokens import supervisor_token

MAX_LINE_BYTES: Final = 4 * MAX_OUTPUT_BYTES
"""The longest line that a supervisor may send: one stream's text, escaped as JSON."""
MAX_STREAM_BYTES: Final = 16 * MAX_OUTPUT_BYTES + 3 * 512 * MAX_TOOL_CALLS
"""The most bytes that one reading of a run's events may have: three events a tool call beside its output."""


@dataclass(frozen=True, kw_only=True)
class SupervisorClient:
    """All supervisors of the cluster, over one session whose connections stay open while pods are idle."""

    session: aiohttp.ClientSession
    key: bytes
    port: int = SUPERVISOR_PORT

    @classmethod
    @asynccontextmanager
    async def connect(cls, *, key: bytes, port: int = SUPERVISOR_PORT) -> AsyncIterator[Self]:
        """A client whose open connections are kept for an hour: the first execution finds its pod's ready."""
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=3600)
        async with aiohttp.ClientSession(connector=connector, read_bufsize=2**18) as session:
            yield cls(session=session, key=key, port=port)

    def at(self, *, namespace: str, pod: str, address: str) -> "SupervisorConnection":
        """The supervisor of one pod."""
        token = supervisor_token(key=self.key, namespace=namespace, pod=pod)
        host = f"[{address}]" if ":" in address else address
        return SupervisorConnection(
            session=self.session, url=f"http://{host}:{self.port}", headers={"Authorization": f"Bearer {token}"}
        )


@dataclass(frozen=True, kw_only=True)
class SupervisorConnection:
    """One pod's supervisor."""

    session: aiohttp.ClientSession
    url: str
    headers: dict[str, str]

    async def state(self, *, timeout_seconds: float = 2.0) -> str:
        """`idle`, `running` or `finished`. Raises SandboxError while it is starting or can't be reached."""
        answer = await self._json("GET", "/healthz", timeout_seconds=timeout_seconds)
        return str(answer.get("state"))

    async def wrappers(self, *, timeout_seconds: float = 2.0) -> str | None:
        """The hash of the wrappers that it has. Raises SandboxError where it is not idle, or can't be reached."""
        answer = await self._json("GET", "/healthz", timeout_seconds=timeout_seconds)
        if answer.get("state") != "idle":
            raise SandboxError(f"{self.url}: it is {answer.get('state')!r}, not idle")
        found = answer.get("wrappers")
        return found if isinstance(found, str) else None

    async def put_wrappers(self, body: bytes, *, timeout_seconds: float) -> None:
        """Gives it wrappers: `{"hash": ..., "files": {path: text}}`. Raises SandboxError where it takes none."""
        headers = {**self.headers, "Content-Type": "application/json"}
        url, timeout = self.url + "/v1/wrappers", aiohttp.ClientTimeout(total=timeout_seconds)
        try:
            async with self.session.put(url, data=body, headers=headers, timeout=timeout) as response:
                answer = await response.content.read(4096)
                if response.status != 200:
                    raise SandboxError(f"{url}: {response.status} {answer[:200]!r}")
        except (aiohttp.ClientError, TimeoutError) as error:
            raise SandboxError(f"{url}: {type(error).__name__} {error}") from error

    async def accepted(self, *, timeout_seconds: float = 2.0) -> tuple[str, str | None]:
        """Its state, and the uid of the execution that it has accepted."""
        answer = await self._json("GET", "/v1/execution", timeout_seconds=timeout_seconds)
        found = answer.get("id")
        return str(answer.get("state")), found if isinstance(found, str) else None

    async def cancel(self, *, timeout_seconds: float = 2.0) -> None:
        """Ends the run that is under way; that there is none is no error."""
        try:
            async with self.session.delete(
                self.url + "/v1/execution", headers=self.headers, timeout=aiohttp.ClientTimeout(total=timeout_seconds)
            ) as response:
                await response.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise SandboxError(f"{self.url}: {type(error).__name__} {error}") from error

    def offer(self, job: Job, *, timeout_seconds: float) -> "PendingRun":
        """Begins to hand over a job, without its last byte, so that it does not run before it is confirmed."""
        return PendingRun(sandbox=self, body=job.to_json(), timeout_seconds=timeout_seconds)

    async def run(self, job: Job, *, timeout_seconds: float) -> AsyncGenerator[Event, None]:
        """Hands over the code and yields the run's events to its `end`.

        Raises SandboxUsed where the sandbox has accepted an execution before, SandboxError where the stream breaks:
        then the code may have run.
        """
        async with aclosing(self.offer(job, timeout_seconds=timeout_seconds).run()) as events:
            async for event in events:
                yield event

    def events(self, *, from_seq: int = 1, timeout_seconds: float) -> AsyncGenerator[Event, None]:
        """The events of the accepted execution from a sequence number on, up to its `end`."""
        path = f"/v1/execution/events?from={from_seq}"
        return self.follow(
            self.session.get(self.url + path, headers=self.headers, timeout=_stream_timeout(timeout_seconds))
        )

    async def follow(self, asked: AbstractAsyncContextManager[aiohttp.ClientResponse]) -> AsyncGenerator[Event, None]:
        """The events in the answer to a request, up to the run's `end`. Raises what `run` raises."""
        try:
            async with asked as response:
                if response.status != 200:
                    await _refuse(response)
                async for line in _lines(response):
                    yield (event := parse_event(line))
                    if isinstance(event, EndEvent):
                        return
        except (aiohttp.ClientError, TimeoutError) as error:
            raise SandboxError(f"{self.url}: {type(error).__name__} {error}") from error
        raise SandboxError(f"{self.url}: the stream ended before the run did")

    async def _json(self, method: str, path: str, *, timeout_seconds: float) -> dict[str, Any]:
        timeout = aiohttp.ClientTimeout(total=timeout_seconds)
        try:
            async with self.session.request(method, self.url + path, headers=self.headers, timeout=timeout) as response:
                body = await response.content.read(4096)
                if response.status != 200:
                    raise SandboxError(f"{self.url}{path}: {response.status} {body[:200]!r}")
                answer = json.loads(body)
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise SandboxError(f"{self.url}: {type(error).__name__} {error}") from error
        if not isinstance(answer, dict):
            raise SandboxError(f"{self.url}{path}: {body[:200]!r} is no object")
        return answer


class PendingRun:
    """A job on its way to a sandbox, all but its last byte. Without that the request is none, and nothing runs.

    It lets the sandbox read the job while the execution is still being bound to it. Either `run` or `withdraw` ends it.
    """

    def __init__(self, *, sandbox: SupervisorConnection, body: bytes, timeout_seconds: float) -> None:
        self._sandbox = sandbox
        self._body = body
        self._confirmed = asyncio.Event()
        self._answer = asyncio.create_task(self._ask(timeout_seconds))
        # whoever withdraws it does not care why it failed
        self._answer.add_done_callback(lambda task: task.cancelled() or task.exception())

    def run(self) -> AsyncGenerator[Event, None]:
        """Confirms the job and yields the run's events to its `end`. Raises what `Sandbox.run` raises."""
        self._confirmed.set()
        return self._sandbox.follow(self._opened())

    def withdraw(self) -> None:
        """Breaks the request off."""
        if not self._answer.cancel() and not self._answer.cancelled() and self._answer.exception() is None:
            self._answer.result().close()

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[aiohttp.ClientResponse]:
        async with await self._answer as response:
            yield response

    async def _ask(self, timeout_seconds: float) -> aiohttp.ClientResponse:
        length = {"Content-Length": str(len(self._body))}
        headers = {**self._sandbox.headers, "Content-Type": "application/json", **length}
        url, timeout = self._sandbox.url + "/v1/execution", _stream_timeout(timeout_seconds)
        return await self._sandbox.session.post(url, data=self._pieces(), headers=headers, timeout=timeout)

    async def _pieces(self) -> AsyncIterator[bytes]:
        yield self._body[:-1]
        await self._confirmed.wait()
        yield self._body[-1:]


def _stream_timeout(seconds: float) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=seconds, sock_connect=3)


async def _refuse(response: aiohttp.ClientResponse) -> None:
    body = await response.content.read(4096)
    if response.status == 409:
        try:
            accepted = json.loads(body).get("id")
        except (ValueError, AttributeError):
            accepted = None
        raise SandboxUsed(accepted if isinstance(accepted, str) else None)
    raise SandboxError(f"{response.url}: {response.status} {body[:200]!r}")


async def _lines(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """The lines of a stream, each and all of them bounded."""
    buffer, total = bytearray(), 0
    async for chunk in response.content.iter_any():
        total += len(chunk)
        buffer += chunk
        *lines, rest = buffer.split(b"\n")
        buffer = bytearray(rest)
        for line in lines:
            if line:
                yield bytes(line)
        if len(buffer) > MAX_LINE_BYTES or total > MAX_STREAM_BYTES:
            raise SandboxError(f"{response.url}: the stream is longer than a run's may be")
