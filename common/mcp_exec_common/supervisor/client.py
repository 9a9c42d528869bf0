"""Client of the sandboxes' supervisors, used by operator and gateway."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Self

import aiohttp
from pydantic import ValidationError

from mcp_exec_api.constants import MAX_OUTPUT_BYTES, MAX_TOOL_CALLS, SUPERVISOR_PORT
from mcp_exec_common.peers import (
    InvalidAnswer,
    PeerNotProven,
    ProvenConnector,
    broker_key,
    check_head,
    open_session,
    parse_answer,
    read_answer,
)
from mcp_exec_common.sandbox_keys import SandboxKeys
from mcp_exec_common.supervisor.protocol import (
    EndEvent,
    Event,
    InterpreterLost,
    Job,
    NotRecycled,
    ProtocolMismatch,
    SandboxError,
    SandboxHealth,
    SandboxLibraries,
    SandboxNotProven,
    SandboxUse,
    SandboxUsed,
    SessionState,
    parse_event,
)
from mcp_exec_common.supervisor.tokens import find_supervisor_token, token_digest
from mcp_exec_tools.protocol import (
    MAX_PROTOCOLS,
    PROTOCOL_HEADER,
    UNNAMED_PROTOCOL,
    choose_protocol,
    format_protocols,
)

MAX_LINE_BYTES: Final = 4 * MAX_OUTPUT_BYTES
"""Longest accepted line: the text of one stream, escaped as JSON."""
MAX_STREAM_BYTES: Final = 16 * MAX_OUTPUT_BYTES + 3 * 512 * MAX_TOOL_CALLS
"""Most bytes accepted from one event stream: the output plus three events per tool call."""
MAX_ANSWER_BYTES: Final = 4096
"""Longest accepted answer to any other request."""
MAX_LIBRARIES_BYTES: Final = 128 * 1024
"""Longest accepted list of libraries."""
HEAD_SECONDS: Final = 30.0
"""Time for the head of an event stream, which a supervisor sends at once."""
EXECUTION_HEADER: Final = "Mcp-Exec-Execution"
"""Header with the uid of the execution that a request means."""
REQUEST_SECONDS: Final = 2.0
"""Time for an answer to a short request."""
RECYCLE_SECONDS: Final = 20.0
"""Time for a sandbox to clean itself. Its supervisor gives up earlier."""
_STATES: Final = ("idle", "running", "finished", "cleaning")
_ERRORS: Final = (aiohttp.ClientError, TimeoutError, InvalidAnswer)


@dataclass(frozen=True, kw_only=True)
class SupervisorClient:
    """Client of all supervisors. Its one session keeps connections to idle pods open.

    A supervisor proves that it holds the digest of its pod's token before it gets the token.
    """

    session: aiohttp.ClientSession
    broker_session: aiohttp.ClientSession
    """Session for requests to the broker, whose replicas prove that they hold the release's key."""
    keys: SandboxKeys
    port: int = SUPERVISOR_PORT

    @classmethod
    @asynccontextmanager
    async def connect(cls, *, keys: SandboxKeys, port: int = SUPERVISOR_PORT) -> AsyncIterator[Self]:
        """Create a client that keeps connections for an hour, so that an execution's pod is already connected."""
        to_pods = ProvenConnector(find_keys=_find_keys, keepalive_timeout=3600)
        to_broker = ProvenConnector(find_keys=lambda headers: [broker_key(key) for key in keys], keepalive_timeout=3600)
        async with open_session(to_pods) as session, open_session(to_broker) as broker_session:
            yield cls(session=session, broker_session=broker_session, keys=keys, port=port)

    def get_connection(self, *, namespace: str, pod: str, address: str, digest: str = "") -> "SupervisorConnection":
        """Return the connection to the supervisor of one pod. It opens nothing yet.

        `digest` is that of the pod's token, as its manifest has it: it shows which key the token is derived from.
        """
        token = find_supervisor_token(keys=self.keys, namespace=namespace, pod=pod, digest=digest)
        host = f"[{address}]" if ":" in address else address
        headers = {"Authorization": f"Bearer {token}", PROTOCOL_HEADER: format_protocols()}
        return SupervisorConnection(session=self.session, url=f"http://{host}:{self.port}", headers=headers)


@dataclass(frozen=True, kw_only=True)
class SupervisorConnection:
    """Connection to the supervisor of one pod. All methods raise SandboxError if the supervisor cannot be reached."""

    session: aiohttp.ClientSession
    url: str
    headers: dict[str, str]

    async def get_health(self, *, timeout_seconds: float = REQUEST_SECONDS) -> SandboxHealth:
        """Return the sandbox's state and the version of the protocol that both speak.

        Raises SandboxError while the supervisor starts, and ProtocolMismatch if they have no version in common.
        """
        health = await self._get("/healthz", timeout_seconds)
        return SandboxHealth(state=_read_state(health), protocol=_choose_protocol(health))

    async def get_wrappers_hash(self, *, timeout_seconds: float = REQUEST_SECONDS) -> str | None:
        """Return the hash of the wrappers in the sandbox. Raises SandboxError if the sandbox is not idle."""
        health = await self._get("/healthz", timeout_seconds)
        if health.get("state") != "idle":
            raise SandboxError(f"{self.url}: the sandbox is not idle")
        return _read_text(health, "wrappers")

    async def put_wrappers(self, body: bytes, *, timeout_seconds: float) -> None:
        """Send wrappers: `{"hash": ..., "files": {path: text}}`. Raises SandboxError if the sandbox rejects them."""
        await self._change("PUT", "/v1/wrappers", body, timeout_seconds)

    async def get_execution(self, *, timeout_seconds: float = REQUEST_SECONDS) -> tuple[str, str | None]:
        """Return the sandbox's state and the uid of the last execution that it accepted, if any."""
        execution = await self._get("/v1/execution", timeout_seconds)
        return str(execution.get("state")), _read_text(execution, "id")

    async def get_use(self) -> SandboxUse:
        """Return the sandbox's state and what it has accepted so far."""
        answer = await self._get("/v1/execution", REQUEST_SECONDS)
        return SandboxUse(state=_read_state(answer), id=_read_text(answer, "id"), uses=_read_count(answer, "uses"))

    async def cancel(self, execution: str, *, timeout_seconds: float = REQUEST_SECONDS) -> None:
        """Cancel the run of an execution. It is not an error if the sandbox does not run it."""
        await self._send("DELETE", "/v1/execution", timeout_seconds, headers={EXECUTION_HEADER: execution})

    async def extend(self, uid: str, seconds: float) -> None:
        """Let the run of an execution take so many seconds beyond its time limit, in all."""
        body = json.dumps({"id": uid, "seconds": seconds}).encode()
        await self._change("PUT", "/v1/execution/extension", body, REQUEST_SECONDS)

    async def recycle(self, execution: str, *, timeout_seconds: float = RECYCLE_SECONDS) -> int:
        """Let the sandbox remove all that its last execution left, and wait until it is idle again.

        Returns the number of jobs that it has accepted.

        Raises NotRecycled if it can't be cleaned, SandboxUsed if it runs code or `execution` is not its last one, and
        SandboxError if it does not answer. In each case its pod must not be used again.
        """
        url = self.url + "/v1/recycle"
        body = json.dumps({"id": execution}).encode()
        status, text = await self._send("POST", "/v1/recycle", timeout_seconds, body=body)
        if status == 500:
            # the text names places of the sandbox, which may have names of the code's choice
            raise NotRecycled(f"{url}: 500 with a body of {len(text)} bytes")
        if status != 200:
            raise _build_error(url, status, text)
        answer = _parse(url, text)
        if answer.get("state") != "idle":
            raise SandboxError(f"{url}: the sandbox is not idle")
        return _read_count(answer, "uses")

    async def get_session(self, *, timeout_seconds: float = REQUEST_SECONDS) -> SessionState:
        """Return the state of the sandbox's session. Raises SandboxError if it has had none."""
        answer = await self._get("/v1/session", timeout_seconds)
        return SessionState(
            executions=_read_count(answer, "executions"),
            memory_bytes=_read_count(answer, "memoryBytes"),
            alive=answer.get("alive") is True,
        )

    async def get_libraries(self, *, timeout_seconds: float) -> SandboxLibraries:
        """Return Python and libraries of the sandbox's image."""
        path = "/v1/libraries"
        answer = await self._get(path, timeout_seconds, limit=MAX_LIBRARIES_BYTES)
        try:
            return SandboxLibraries.model_validate(answer, extra="ignore")
        except ValidationError as error:
            raise SandboxError(f"{self.url}{path}: {error.error_count()} values of the answer are invalid") from None

    def prepare_run(self, job: Job, *, timeout_seconds: float) -> "PendingRun":
        """Send a job except for its last byte, so that it cannot start before it is confirmed."""
        return PendingRun(sandbox=self, body=job.to_json(), timeout_seconds=timeout_seconds)

    async def run(self, job: Job, *, timeout_seconds: float) -> AsyncGenerator[Event, None]:
        """Send a job and yield the events of its run up to `end`.

        Raises SandboxUsed if the sandbox refuses the job because of those that it has accepted, InterpreterLost if the
        session's interpreter is gone, and SandboxError if the stream breaks. In the last case the code may have run.
        """
        async with aclosing(self.prepare_run(job, timeout_seconds=timeout_seconds).run()) as events:
            async for event in events:
                yield event

    def follow_events(
        self, execution: str, *, from_seq: int = 1, timeout_seconds: float, opened: asyncio.Event | None = None
    ) -> AsyncGenerator[Event, None]:
        """Yield the events of the last accepted execution from a sequence number up to `end`.

        Raises what `run` raises, and SandboxError if the sandbox has accepted another execution since. `opened` is set
        once the supervisor has answered, so that no later event can be missed.
        """
        url, timeout = f"{self.url}/v1/execution/events?from={from_seq}", _stream_timeout(timeout_seconds)
        headers = {**self.headers, EXECUTION_HEADER: execution}
        request = self.session.get(url, headers=headers, timeout=timeout, allow_redirects=False)
        return self.read_events(request, timeout_seconds=timeout_seconds, opened=opened)

    async def read_events(
        self,
        request: AbstractAsyncContextManager[aiohttp.ClientResponse],
        *,
        timeout_seconds: float,
        opened: asyncio.Event | None = None,
    ) -> AsyncGenerator[Event, None]:
        """Yield the events in the response to a request up to `end`. Raises what `run` raises."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_seconds
        try:
            async with AsyncExitStack() as stack:
                async with asyncio.timeout(HEAD_SECONDS):
                    response = await stack.enter_async_context(request)
                    check_head(response)
                    if response.status != 200:
                        body = await read_answer(response, limit=MAX_ANSWER_BYTES)
                        raise _build_error(str(response.url), response.status, body)
                if opened is not None:
                    opened.set()
                last = 0
                async for line in _read_lines(response):
                    event = parse_event(line)
                    if event.seq <= last:
                        raise SandboxError(f"{self.url}: event {event.seq} follows event {last}")
                    last = event.seq
                    # aiohttp's own limit holds for waits, and a stream that is never waited for has none
                    if loop.time() > deadline:
                        raise SandboxError(f"{self.url}: no end within {timeout_seconds:g} s")
                    yield event
                    if isinstance(event, EndEvent):
                        return
        except _ERRORS as error:
            raise _convert(self.url, error) from None
        raise SandboxError(f"{self.url}: the event stream ended before the run")

    async def _get(self, path: str, seconds: float, *, limit: int = MAX_ANSWER_BYTES) -> dict[str, Any]:
        status, body = await self._send("GET", path, seconds, limit=limit)
        if status != 200:
            raise SandboxError(f"{self.url}{path}: {status} with a body of {len(body)} bytes")
        return _parse(self.url + path, body)

    async def _change(self, method: str, path: str, body: bytes, seconds: float) -> None:
        status, text = await self._send(method, path, seconds, body=body)
        if status != 200:
            raise SandboxError(f"{self.url}{path}: {status} with a body of {len(text)} bytes")

    async def _send(
        self,
        method: str,
        path: str,
        seconds: float,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] = MappingProxyType({}),
        limit: int = MAX_ANSWER_BYTES,
    ) -> tuple[int, bytes]:
        """Send a request with a body of JSON, and return the status and the body of its answer."""
        sent = {**self.headers, **headers, **({} if body is None else {"Content-Type": "application/json"})}
        try:
            async with self.session.request(
                method,
                self.url + path,
                data=body,
                headers=sent,
                timeout=aiohttp.ClientTimeout(total=seconds),
                allow_redirects=False,
            ) as response:
                return response.status, await read_answer(response, limit=limit)
        except _ERRORS as error:
            raise _convert(self.url + path, error) from None


class PendingRun:
    """A job sent to a sandbox except for its last byte. Without that byte the request is incomplete and nothing runs.

    The supervisor reads the job while the execution is still being bound to the pod. End it with `run` or `withdraw`.
    """

    def __init__(self, *, sandbox: SupervisorConnection, body: bytes, timeout_seconds: float) -> None:
        self._sandbox = sandbox
        self._body = body
        self._timeout_seconds = timeout_seconds
        self._confirmed = asyncio.Event()
        self._response = asyncio.create_task(self._send())
        # retrieves the exception of a withdrawn request, which asyncio would log otherwise
        self._response.add_done_callback(lambda task: task.cancelled() or task.exception())

    def run(self) -> AsyncGenerator[Event, None]:
        """Confirm the job and yield the events of its run. Raises what `SupervisorConnection.run` raises."""
        self._confirmed.set()
        return self._sandbox.read_events(self._open_response(), timeout_seconds=self._timeout_seconds)

    def withdraw(self) -> None:
        """Abort the request, so that the job never runs."""
        if not self._response.cancel() and not self._response.cancelled() and self._response.exception() is None:
            self._response.result().close()

    @asynccontextmanager
    async def _open_response(self) -> AsyncIterator[aiohttp.ClientResponse]:
        async with await self._response as response:
            yield response

    async def _send(self) -> aiohttp.ClientResponse:
        length = {"Content-Length": str(len(self._body))}
        headers = {**self._sandbox.headers, "Content-Type": "application/json", **length}
        url, timeout = self._sandbox.url + "/v1/execution", _stream_timeout(self._timeout_seconds)
        return await self._sandbox.session.post(
            url, data=self._stream_body(), headers=headers, timeout=timeout, allow_redirects=False
        )

    async def _stream_body(self) -> AsyncIterator[bytes]:
        yield self._body[:-1]
        await self._confirmed.wait()
        yield self._body[-1:]


def _stream_timeout(seconds: float) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=seconds, sock_connect=3)


def _find_keys(headers: Mapping[str, str]) -> tuple[str, ...]:
    """Return the key of a request's supervisor: the digest of its token."""
    return (token_digest(headers["Authorization"].removeprefix("Bearer ")),)


def _convert(url: str, error: Exception) -> SandboxError:
    """Return the error for the log. Texts of HTTP errors quote what the peer sent, which may be output of the code."""
    kind = SandboxNotProven if isinstance(error, PeerNotProven) else SandboxError
    text = f" {error}" if isinstance(error, (OSError, InvalidAnswer, PeerNotProven)) else ""
    return kind(f"{url}: {type(error).__name__}{text}")


def _build_error(url: str, status: int, body: bytes) -> SandboxError:
    """Return the error of an answer to a request about an execution."""
    if status == 409:
        try:
            return SandboxUsed(_read_text(parse_answer(body), "id"))
        except InvalidAnswer:
            return SandboxUsed(None)
    if status == 410:
        return InterpreterLost(f"{url}: the session's interpreter has ended")
    return SandboxError(f"{url}: {status} with a body of {len(body)} bytes")


def _parse(url: str, body: bytes) -> dict[str, Any]:
    try:
        return parse_answer(body)
    except InvalidAnswer as error:
        raise _convert(url, error) from None


def _read_state(answer: Mapping[str, Any]) -> str:
    state = answer.get("state")
    return str(state) if state in _STATES else "in an unknown state"


def _choose_protocol(health: Mapping[str, Any]) -> int:
    named = health.get("protocols", [UNNAMED_PROTOCOL])
    theirs = [each for each in named[:MAX_PROTOCOLS] if type(each) is int] if isinstance(named, list) else []
    if (protocol := choose_protocol(theirs)) is not None:
        return protocol
    versions = format_protocols(sorted(each for each in theirs if 0 < each < 10**6)) or "none that is known"
    raise ProtocolMismatch(
        f"the protocol of its image has the versions {versions}, and that of the operator {format_protocols()}: "
        "build the image on the sandbox image of this release"
    )


def _read_text(answer: Mapping[str, Any], name: str) -> str | None:
    value = answer.get(name)
    return value if isinstance(value, str) else None


def _read_count(answer: Mapping[str, Any], name: str) -> int:
    """Return a number of an answer, or 0 if there is none."""
    value = answer.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return 0
    return int(value) if 0 <= value <= 2**53 else 0


async def _read_lines(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Yield the lines of a stream, whose length and total are bounded."""
    buffer, total = bytearray(), 0
    async for chunk in response.content.iter_any():
        total += len(chunk)
        first, *others = chunk.split(b"\n")  # not the whole buffer, which would take quadratic time
        buffer += first
        for part in others:
            if buffer:
                yield bytes(buffer)
            buffer = bytearray(part)
        if len(buffer) > MAX_LINE_BYTES or total > MAX_STREAM_BYTES:
            raise SandboxError(f"{response.url}: the event stream is longer than a run's can be")
