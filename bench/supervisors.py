"""The supervisors of simulated pods, all in one process: one listening socket, told apart by the address dialled.

They speak the whole protocol of a sandbox's supervisor by a small HTTP/1.1 server of their own, and run nothing: each
execution takes `run_seconds` and prints what `print(1)` does.
"""

import asyncio
import hashlib
import hmac
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, cast

from mcp_exec_api.constants import SUPERVISOR_PORT
from mcp_exec_api.meta import micro_time, now

MAX_HEAD_BYTES: Final = 64 * 1024
MAX_BODY_BYTES: Final = 4 * 1024 * 1024

_REASONS: Final = {
    200: "OK",
    202: "Accepted",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    405: "Method Not Allowed",
    409: "Conflict",
    411: "Length Required",
    413: "Content Too Large",
    431: "Request Header Fields Too Large",
}
_STREAM: Final = (
    b"HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\ncache-control: no-store\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
_LAST_CHUNK: Final = b"0\r\n\r\n"
_FIELDS: Final[dict[str, tuple[type, ...]]] = {
    "id": (str,),
    "code": (str,),
    "context": (dict,),
    "timeoutSeconds": (int, float),
    "outputBytes": (int,),
}


@dataclass(kw_only=True, eq=False)
class Supervisor:
    """One pod's supervisor: accepts one execution in its life, and keeps its events."""

    token_sha256: str
    run_seconds: float
    id: str | None = None
    """The execution that it has accepted."""
    finished: bool = False
    lines: list[bytes] = field(default_factory=list)
    """The events so far, one line of JSON each."""
    connections: set["Connection"] = field(default_factory=set)
    _followers: dict[Callable[[bytes, bool], None], int] = field(default_factory=dict)
    """Who is told of events to come, and the first sequence number that each wants."""
    _ending: asyncio.TimerHandle | None = None

    @property
    def state(self) -> str:
        """`idle`, `running` or `finished`."""
        if self.id is None:
            return "idle"
        return "finished" if self.finished else "running"

    def admits(self, authorization: str) -> bool:
        """Whether it is the bearer token whose SHA-256 the pod knows."""
        scheme, _, token = authorization.partition(" ")
        digest = hashlib.sha256(token.strip().encode()).hexdigest()
        return scheme.lower() == "bearer" and hmac.compare_digest(digest, self.token_sha256)

    def accept(self, execution: str) -> None:
        """Begins to run the one execution of its life."""
        self.id = execution
        self._say([("status", {"phase": "Running"})])
        self._ending = asyncio.get_running_loop().call_later(self.run_seconds, self._end)

    def cancel(self) -> None:
        """Ends the run that is under way."""
        if self._ending is not None:
            self._ending.cancel()
        self._end(phase="Cancelled")

    def follow(self, first: int, tell: Callable[[bytes, bool], None]) -> None:
        """Tells the lines from a sequence number on, at once as far as there are any, and whether they are the last."""
        tell(b"".join(self.lines[first - 1 :]), self.finished)
        if not self.finished:
            self._followers[tell] = first

    def forget(self, tell: Callable[[bytes, bool], None]) -> None:
        """Tells no more."""
        self._followers.pop(tell, None)

    def close(self) -> None:
        """Its pod is gone: connections break, nothing goes on."""
        if self._ending is not None:
            self._ending.cancel()
        self._followers.clear()
        for connection in list(self.connections):
            connection.abort()

    def _end(self, phase: str = "Succeeded") -> None:
        ran = phase == "Succeeded"
        end = {
            "phase": phase,
            "reason": "" if ran else phase,
            "error": None,
            "exitCode": 0 if ran else None,
            "stdoutBytes": 2 if ran else 0,
            "stderrBytes": 0,
            "truncated": False,
            "runMs": self.run_seconds * 1000,
            "peakMemoryBytes": None,
        }
        self.finished = True
        self._say([*([("stdout", {"text": "1\n"})] if ran else []), ("end", end)])

    def _say(self, events: list[tuple[str, dict[str, Any]]]) -> None:
        at, before = micro_time(now()), len(self.lines)
        for kind, fields in events:
            event = {"seq": len(self.lines) + 1, "at": at, "type": kind, **fields}
            self.lines.append(json.dumps(event, separators=(",", ":")).encode() + b"\n")
        for tell, first in self._followers.items():
            tell(b"".join(self.lines[max(before, first - 1) :]), self.finished)
        if self.finished:
            self._followers.clear()


@dataclass(kw_only=True)
class Supervisors:
    """All supervisors by their pods' addresses."""

    run_seconds: float = 0.002
    _by_address: dict[str, Supervisor] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._by_address)

    def add(self, address: str, *, token_sha256: str) -> None:
        """A pod has started."""
        self._by_address[address] = Supervisor(token_sha256=token_sha256, run_seconds=self.run_seconds)

    def remove(self, address: str) -> None:
        """A pod is gone; its connections break."""
        if (supervisor := self._by_address.pop(address, None)) is not None:
            supervisor.close()

    def at(self, address: str) -> Supervisor | None:
        """The supervisor at an address."""
        return self._by_address.get(address)

    async def serve(self, *, host: str = "0.0.0.0", port: int = SUPERVISOR_PORT) -> asyncio.Server:
        """Listens for all of them. Raises OSError where somebody else has the port."""
        loop = asyncio.get_running_loop()
        return await loop.create_server(lambda: Connection(self), host=host, port=port, backlog=4096)


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request as it was read."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    """By names in lower case."""
    body: bytes


class BadRequest(Exception):
    """What was read is no request that can be answered: the connection ends with this status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def read_request(buffer: bytearray) -> Request | None:
    """Takes the first request from a buffer; None where it is not whole yet. Raises BadRequest."""
    end = buffer.find(b"\r\n\r\n")
    if end < 0:
        if len(buffer) > MAX_HEAD_BYTES:
            raise BadRequest(431, f"the head may have at most {MAX_HEAD_BYTES} bytes")
        return None
    first, *lines = bytes(buffer[:end]).decode("latin-1").split("\r\n")
    try:
        method, target, version = first.split(" ")
    except ValueError as error:
        raise BadRequest(400, "no request line") from error
    if not version.startswith("HTTP/1."):
        raise BadRequest(400, "no HTTP/1.1")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if "transfer-encoding" in headers:
        raise BadRequest(411, "a body needs a content-length")
    length = headers.get("content-length", "0")
    if not re.fullmatch(r"[0-9]{1,18}", length):
        raise BadRequest(400, "content-length: is no number")
    if int(length) > MAX_BODY_BYTES:
        raise BadRequest(413, f"the body may have at most {MAX_BODY_BYTES} bytes")
    whole = end + 4 + int(length)
    if len(buffer) < whole:
        return None
    body = bytes(buffer[end + 4 : whole])
    del buffer[:whole]
    path, _, query = target.partition("?")
    return Request(method=method, path=path, query=query, headers=headers, body=body)


def read_job(body: bytes) -> tuple[str, str]:
    """The execution's id, or what is wrong with the body."""
    try:
        found = json.loads(body)
    except ValueError:
        return "", "the body is no JSON"
    if not isinstance(found, dict):
        return "", "the body is no object"
    for name, types in _FIELDS.items():
        if not isinstance(found.get(name), types) or isinstance(found[name], bool):
            return "", f"{name}: must be a {types[0].__name__}"
    unknown = sorted(found.keys() - _FIELDS.keys())
    return (found["id"], "") if not unknown else ("", f"{unknown[0][:100]}: unknown field")


class Connection(asyncio.Protocol):
    """One client's connection; its requests are answered one after another."""

    def __init__(self, supervisors: Supervisors) -> None:
        self._supervisors = supervisors
        self._buffer = bytearray()
        self._streaming = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Somebody dialled an address; where no pod has it, nobody is there."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are of no such class
        found = self._supervisors.at(transport.get_extra_info("sockname")[0])
        if found is None:
            self.abort()
            return
        self._supervisor = found
        found.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """A client that goes away stops no run."""
        if hasattr(self, "_supervisor"):
            self._supervisor.connections.discard(self)
            self._supervisor.forget(self._tell)

    def data_received(self, data: bytes) -> None:
        """A part of a request."""
        self._buffer += data
        try:
            while not self._streaming and (request := read_request(self._buffer)) is not None:
                self._answer(request)
        except BadRequest as error:
            self._json(error.status, {"error": str(error)})
            self._transport.close()

    def abort(self) -> None:
        """Breaks it off."""
        self._transport.abort()

    def _answer(self, request: Request) -> None:
        supervisor = self._supervisor
        routes = {
            "/healthz": {"GET": self._health},
            "/v1/execution": {"POST": self._start, "GET": self._describe, "DELETE": self._cancel},
            "/v1/execution/events": {"GET": self._events},
        }
        if request.path != "/healthz" and not supervisor.admits(request.headers.get("authorization", "")):
            self._json(401, {"error": "a valid bearer token is needed"})
        elif request.path not in routes:
            self._json(404, {"error": "no such path"})
        elif (handle := routes[request.path].get(request.method)) is None:
            self._json(405, {"error": "no such method here"})
        else:
            handle(request)

    def _health(self, request: Request) -> None:
        self._json(200, {"state": self._supervisor.state})

    def _describe(self, request: Request) -> None:
        supervisor = self._supervisor
        self._json(200, {"state": supervisor.state, "id": supervisor.id, "lastSeq": len(supervisor.lines)})

    def _start(self, request: Request) -> None:
        supervisor = self._supervisor
        execution, wrong = read_job(request.body)
        if wrong:
            self._json(400, {"error": wrong})
        elif supervisor.id is not None:
            self._json(409, {"error": f"accepted {supervisor.id} before", "id": supervisor.id})
        else:
            supervisor.accept(execution)
            self._stream(1)

    def _events(self, request: Request) -> None:
        found = re.fullmatch(r"(?:from=([1-9][0-9]{0,8}))?", request.query)
        if found is None:
            self._json(400, {"error": "from: must be a positive integer"})
        elif self._supervisor.id is None:
            self._json(404, {"error": "this sandbox has no execution"})
        else:
            self._stream(int(found[1] or 1))

    def _cancel(self, request: Request) -> None:
        supervisor = self._supervisor
        if supervisor.id is None:
            self._json(409, {"error": "this sandbox has no execution"})
            return
        status = 200 if supervisor.finished else 202
        if not supervisor.finished:
            supervisor.cancel()
        self._json(status, {"state": supervisor.state})

    def _json(self, status: int, content: object) -> None:
        body = json.dumps(content).encode()
        head = f"HTTP/1.1 {status} {_REASONS[status]}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
        self._transport.write(head.encode() + b"\r\n\r\n" + body)

    def _stream(self, first: int) -> None:
        self._transport.write(_STREAM)
        self._streaming = True
        self._supervisor.follow(first, self._tell)

    def _tell(self, lines: bytes, last: bool) -> None:
        chunk = b"%x\r\n%b\r\n" % (len(lines), lines) if lines else b""
        self._transport.write(chunk + _LAST_CHUNK if last else chunk)
        if last:
            self._streaming = False
            asyncio.get_running_loop().call_soon(self.data_received, b"")
