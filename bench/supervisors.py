"""Supervisors of simulated pods, all in one process and behind one listening socket, selected by the address dialled.

They implement the protocol of a sandbox's supervisor with a small HTTP/1.1 server, and run nothing: each execution
takes `run_seconds` and prints what `print(1)` prints, and cleaning takes `clean_seconds`.
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
from mcp_exec_common.peers import PROOF_PATH, compute_proof, normalize_address
from mcp_exec_common.supervisor.client import EXECUTION_HEADER

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
_OWNED: Final[dict[str, tuple[type, ...]]] = {"owner": (str,), "session": (bool,)}
"""Optional fields."""


@dataclass(kw_only=True, eq=False)
class SimulatedSupervisor:
    """Supervisor of one pod. It accepts one execution, or those of one owner, and stores the last one's events."""

    token_sha256: str
    run_seconds: float
    clean_seconds: float = 0.0
    id: str | None = None
    """The last accepted execution."""
    owner: str | None = None
    """Whom the pod serves. None: it is used once."""
    session: bool = False
    accepted: set[str] = field(default_factory=set)
    clean: bool = False
    """Whether the pod was cleaned after its last execution."""
    finished: bool = False
    lines: list[bytes] = field(default_factory=list)
    """The events so far, one line of JSON each."""
    connections: set["SimulatedConnection"] = field(default_factory=set)
    _followers: dict[Callable[[bytes, bool], None], int] = field(default_factory=dict)
    """Callbacks for later events, with the first sequence number of each."""
    _ending: asyncio.TimerHandle | None = None

    @property
    def state(self) -> str:
        """`idle`, `running` or `finished`."""
        if self.id is None or self.clean or (self.session and self.finished):
            return "idle"
        return "finished" if self.finished else "running"

    def refuses(self, job: "SimulatedJob") -> bool:
        """Return whether the pod can't accept a job because of those before."""
        if self.id is None:
            return False
        same = job.owner is not None and job.owner == self.owner
        next_one = self.clean or (self.session and job.session)
        return job.id in self.accepted or not same or not next_one or self.state != "idle"

    def admits(self, authorization: str) -> bool:
        """Return whether the header has the bearer token of this pod."""
        scheme, _, token = authorization.partition(" ")
        digest = hashlib.sha256(token.strip().encode()).hexdigest()
        return scheme.lower() == "bearer" and hmac.compare_digest(digest, self.token_sha256)

    def accept(self, job: "SimulatedJob") -> None:
        """Start the execution."""
        self.id, self.owner, self.session = job.id, job.owner, job.session
        self.accepted.add(job.id)
        self.clean = self.finished = False
        self.lines = []
        self._add_events([("status", {"phase": "Running"})])
        self._ending = asyncio.get_running_loop().call_later(self.run_seconds, self._end)

    def cancel(self) -> None:
        """Cancel the running execution."""
        if self._ending is not None:
            self._ending.cancel()
        self._end(phase="Cancelled")

    def follow(self, first: int, notify: Callable[[bytes, bool], None]) -> None:
        """Send the lines from a sequence number on, at first those that exist, and whether they are the last."""
        notify(b"".join(self.lines[first - 1 :]), self.finished)
        if not self.finished:
            self._followers[notify] = first

    def forget(self, notify: Callable[[bytes, bool], None]) -> None:
        """Stop sending to a callback."""
        self._followers.pop(notify, None)

    def close(self) -> None:
        """Abort all connections and the run, because the pod is gone."""
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
            "cpuSeconds": None,
        }
        self.finished = True
        self._add_events([*([("stdout", {"text": "1\n"})] if ran else []), ("end", end)])

    def _add_events(self, events: list[tuple[str, dict[str, Any]]]) -> None:
        at, before = micro_time(now()), len(self.lines)
        for kind, fields in events:
            event = {"seq": len(self.lines) + 1, "at": at, "type": kind, **fields}
            self.lines.append(json.dumps(event, separators=(",", ":")).encode() + b"\n")
        for notify, first in self._followers.items():
            notify(b"".join(self.lines[max(before, first - 1) :]), self.finished)
        if self.finished:
            self._followers.clear()


@dataclass(kw_only=True)
class SimulatedSupervisors:
    """All supervisors by their pods' addresses."""

    run_seconds: float = 0.002
    clean_seconds: float = 0.005
    _by_address: dict[str, SimulatedSupervisor] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._by_address)

    def add(self, address: str, *, token_sha256: str) -> None:
        """Add the supervisor of a started pod."""
        self._by_address[address] = SimulatedSupervisor(
            token_sha256=token_sha256, run_seconds=self.run_seconds, clean_seconds=self.clean_seconds
        )

    def remove(self, address: str) -> None:
        """Remove the supervisor of a deleted pod and abort its connections."""
        if (supervisor := self._by_address.pop(address, None)) is not None:
            supervisor.close()

    def find(self, address: str) -> SimulatedSupervisor | None:
        """Return the supervisor at an address."""
        return self._by_address.get(address)

    async def serve(self, *, host: str = "0.0.0.0", port: int = SUPERVISOR_PORT) -> asyncio.Server:
        """Listen for all supervisors. Raise OSError if the port is in use."""
        loop = asyncio.get_running_loop()
        return await loop.create_server(lambda: SimulatedConnection(self), host=host, port=port, backlog=4096)


@dataclass(frozen=True, kw_only=True)
class SimulatedRequest:
    """A parsed request."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    """Header values by lower-case name."""
    body: bytes


class InvalidSimulatedRequest(Exception):
    """The request is invalid. The connection ends with this status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def read_request(buffer: bytearray) -> SimulatedRequest | None:
    """Take the first request from a buffer. Return None if it is incomplete, and raise BadRequest if it is invalid."""
    end = buffer.find(b"\r\n\r\n")
    if end < 0:
        if len(buffer) > MAX_HEAD_BYTES:
            raise InvalidSimulatedRequest(431, f"the head may have at most {MAX_HEAD_BYTES} bytes")
        return None
    first, *lines = bytes(buffer[:end]).decode("latin-1").split("\r\n")
    try:
        method, target, version = first.split(" ")
    except ValueError as error:
        raise InvalidSimulatedRequest(400, "no request line") from error
    if not version.startswith("HTTP/1."):
        raise InvalidSimulatedRequest(400, "no HTTP/1.1")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if "transfer-encoding" in headers:
        raise InvalidSimulatedRequest(411, "a body needs a content-length")
    length = headers.get("content-length", "0")
    if not re.fullmatch(r"[0-9]{1,18}", length):
        raise InvalidSimulatedRequest(400, "content-length: must be a number")
    if int(length) > MAX_BODY_BYTES:
        raise InvalidSimulatedRequest(413, f"the body may have at most {MAX_BODY_BYTES} bytes")
    whole = end + 4 + int(length)
    if len(buffer) < whole:
        return None
    body = bytes(buffer[end + 4 : whole])
    del buffer[:whole]
    path, _, query = target.partition("?")
    return SimulatedRequest(method=method, path=path, query=query, headers=headers, body=body)


@dataclass(frozen=True, kw_only=True)
class SimulatedJob:
    """The part of a job that the simulation needs."""

    id: str
    owner: str | None = None
    session: bool = False


def read_job(body: bytes) -> tuple[SimulatedJob | None, str]:
    """Return the job, or None and the error of the body."""
    try:
        found = json.loads(body)
    except ValueError:
        return None, "the body is not JSON"
    if not isinstance(found, dict):
        return None, "the body is not an object"
    for name, types in (_FIELDS | {name: types for name, types in _OWNED.items() if name in found}).items():
        if not isinstance(found.get(name), types) or (isinstance(found[name], bool) and bool not in types):
            return None, f"{name}: must be a {types[0].__name__}"
    if unknown := sorted(found.keys() - _FIELDS.keys() - _OWNED.keys()):
        return None, f"{unknown[0][:100]}: unknown field"
    return SimulatedJob(id=found["id"], owner=found.get("owner"), session=found.get("session", False)), ""


class SimulatedConnection(asyncio.Protocol):
    """Connection of one client. Its requests are answered one after another."""

    def __init__(self, supervisors: SimulatedSupervisors) -> None:
        self._supervisors = supervisors
        self._buffer = bytearray()
        self._streaming = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Find the pod of the dialled address, or abort if there is none."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports have another class
        supervisor = self._supervisors.find(transport.get_extra_info("sockname")[0])
        if supervisor is None:
            self.abort()
            return
        self._supervisor = supervisor
        supervisor.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop sending to this client. Its run continues."""
        if hasattr(self, "_supervisor"):
            self._supervisor.connections.discard(self)
            self._supervisor.forget(self._send_lines)

    def data_received(self, data: bytes) -> None:
        """Handle a part of a request."""
        self._buffer += data
        try:
            while not self._streaming and (request := read_request(self._buffer)) is not None:
                self._answer(request)
        except InvalidSimulatedRequest as error:
            self._json(error.status, {"error": str(error)})
            self._transport.close()

    def abort(self) -> None:
        """Abort the connection."""
        self._transport.abort()

    def _answer(self, request: SimulatedRequest) -> None:
        supervisor = self._supervisor
        routes = {
            "/healthz": {"GET": self._health},
            PROOF_PATH: {"GET": self._prove},
            "/v1/execution": {"POST": self._start, "GET": self._describe, "DELETE": self._cancel},
            "/v1/execution/events": {"GET": self._events},
            "/v1/recycle": {"POST": self._recycle},
            "/v1/session": {"GET": self._describe_session},
        }
        if request.path not in ("/healthz", PROOF_PATH) and not supervisor.admits(
            request.headers.get("authorization", "")
        ):
            self._json(401, {"error": "a valid bearer token is needed"})
        elif request.path not in routes:
            self._json(404, {"error": "the path does not exist"})
        elif (handle := routes[request.path].get(request.method)) is None:
            self._json(405, {"error": "the path does not allow this method"})
        else:
            handle(request)

    def _health(self, request: SimulatedRequest) -> None:
        self._json(200, {"state": self._supervisor.state})

    def _prove(self, request: SimulatedRequest) -> None:
        nonce = request.query.removeprefix("nonce=")
        address = normalize_address(self._transport.get_extra_info("peername")[0])
        proof = compute_proof(key=self._supervisor.token_sha256, nonce=nonce, address=address)
        self._json(200, {"proof": proof, "address": address})

    def _describe(self, request: SimulatedRequest) -> None:
        supervisor = self._supervisor
        uses = len(supervisor.accepted)
        last = len(supervisor.lines)
        self._json(200, {"state": supervisor.state, "id": supervisor.id, "lastSeq": last, "uses": uses})

    def _start(self, request: SimulatedRequest) -> None:
        supervisor = self._supervisor
        job, wrong = read_job(request.body)
        if job is None:
            self._json(400, {"error": wrong})
        elif supervisor.refuses(job):
            self._json(409, {"error": f"accepted {supervisor.id} before", "id": supervisor.id})
        else:
            supervisor.accept(job)
            self._stream(1)

    def _recycle(self, request: SimulatedRequest) -> None:
        supervisor = self._supervisor
        try:
            execution = json.loads(request.body)["id"]
        except (ValueError, TypeError, KeyError):
            self._json(400, {"error": "id: must be a string"})
            return
        if supervisor.owner is None or execution != supervisor.id or supervisor.state == "running":
            self._json(409, {"error": "not now", "id": supervisor.id})
            return
        self._streaming = True  # the next request waits for this response
        asyncio.get_running_loop().call_later(supervisor.clean_seconds, self._end_recycle)

    def _end_recycle(self) -> None:
        supervisor = self._supervisor
        supervisor.clean = True
        milliseconds = supervisor.clean_seconds * 1000
        self._json(200, {"state": "idle", "uses": len(supervisor.accepted), "cleanMs": milliseconds})
        self._streaming = False
        self.data_received(b"")

    def _describe_session(self, request: SimulatedRequest) -> None:
        supervisor = self._supervisor
        if not supervisor.session:
            self._json(404, {"error": "this sandbox has no session"})
            return
        self._json(200, {"executions": len(supervisor.accepted), "memoryBytes": 20_000_000, "alive": True})

    def _events(self, request: SimulatedRequest) -> None:
        found = re.fullmatch(r"(?:from=([1-9][0-9]{0,8}))?", request.query)
        if found is None:
            self._json(400, {"error": "from: must be a positive integer"})
        elif self._is_other(request):
            self._json(404, {"error": "this sandbox has no such execution"})
        else:
            self._stream(int(found[1] or 1))

    def _is_other(self, request: SimulatedRequest) -> bool:
        """Return whether a request means another execution than the last one, or there is none."""
        last = self._supervisor.id
        return last is None or request.headers.get(EXECUTION_HEADER.lower(), last) != last

    def _cancel(self, request: SimulatedRequest) -> None:
        supervisor = self._supervisor
        if self._is_other(request):
            self._json(409, {"error": "this sandbox has no such execution"})
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
        self._supervisor.follow(first, self._send_lines)

    def _send_lines(self, lines: bytes, last: bool) -> None:
        chunk = b"%x\r\n%b\r\n" % (len(lines), lines) if lines else b""
        self._transport.write(chunk + _LAST_CHUNK if last else chunk)
        if last:
            self._streaming = False
            asyncio.get_running_loop().call_soon(self.data_received, b"")
