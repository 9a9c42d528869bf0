"""Routes of the supervisor's HTTP interface and their messages.

The limits of peers are here, and the proof that this is the sandbox.
"""

import errno
import hashlib
import hmac
import ipaddress
import json
import re
import socket
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

from mcp_exec_sandbox.supervisor.cleaning import NotCleaned
from mcp_exec_sandbox.supervisor.execution.events import EventBatch
from mcp_exec_sandbox.supervisor.execution.job_request import ExecutionRequest
from mcp_exec_sandbox.supervisor.execution.watchdog import ExtensionRequest
from mcp_exec_sandbox.supervisor.json_object import InvalidRequest, parse_body
from mcp_exec_sandbox.supervisor.runners import InterpreterEnded, StateConflict
from mcp_exec_sandbox.supervisor.state import SandboxNotReady, SandboxState
from mcp_exec_sandbox.supervisor.wrapper_store import NotIdle, WrapperUpload
from mcp_exec_tools.protocol import PROTOCOLS, choose_protocol, format_protocols, parse_protocols

_PURPOSE = "mcp-exec proof 1"
MAX_CONNECTIONS = 64
MAX_OWN_CONNECTIONS = 16
"""Connections from all addresses of this pod together, so that the code can't use all of them."""
MAX_PEER_CONNECTIONS = 32
"""Connections from one address of another pod. The many readers of one gateway leave room for the operator."""
OWN = "own"
"""Stands for all addresses of this pod."""


def is_nonce(text: str) -> bool:
    """Return whether a text is a nonce: 32 bytes in hexadecimal digits."""
    return re.fullmatch(r"[0-9a-f]{64}", text) is not None


def compute_proof(*, key: str, nonce: str, address: str) -> str:
    """Return the proof for a nonce, to a peer at this address."""
    return hmac.new(key.encode(), f"{_PURPOSE}\n{nonce}\n{address}".encode(), hashlib.sha256).hexdigest()


@dataclass(frozen=True, kw_only=True)
class HttpRequest:
    """A request, at first without its body."""

    method: str
    path: str
    query: str
    authorization: str
    execution: str = ""
    """Id of the execution that the request means. Empty: the last one."""
    protocols: str = ""
    """The header with the versions of the protocol that the client speaks."""
    peer: str = ""
    """IP address of the client."""
    body: bytes = b""


@dataclass(frozen=True, kw_only=True)
class HttpResponse:
    """A response with a body, or with a stream of NDJSON."""

    status: int
    body: bytes = b""
    stream: AsyncIterator[EventBatch] | None = None
    headers: list[tuple[str, str]] = field(default_factory=list)


def build_response(status: int, content: object, *, headers: list[tuple[str, str]] | None = None) -> HttpResponse:
    """Build a response whose body is `content` as JSON."""
    return HttpResponse(status=status, body=json.dumps(content).encode(), headers=headers or [])


def build_error(status: int, message: str, *, headers: list[tuple[str, str]] | None = None) -> HttpResponse:
    """Build a response whose body names an error."""
    return build_response(status, {"error": message}, headers=headers)


def normalize_address(address: str) -> str:
    """Return an IP address in its shortest form, an IPv4-mapped one as IPv4, and without a zone."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return str(mapped or parsed)


def is_own_address(peer: tuple[Any, ...]) -> bool:
    """Return whether a peer's socket address belongs to this pod: then, and only then, it can be bound here.

    The code can connect from any address of 127.0.0.0/8 and from each interface's, and to any of them.
    """
    address = normalize_address(peer[0])
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    # without the port, but with the scope of a link-local address
    target = (address, 0, *peer[2:]) if family == socket.AF_INET6 else (address, 0)
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind(target)
        except OSError as error:
            # any other error, such as EADDRINUSE, can be brought about by the code
            return error.errno != errno.EADDRNOTAVAIL
    return True


class PeerLimits:
    """Numbers of open connections by peer."""

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()

    def admit(self, peer: tuple[Any, ...]) -> str | None:
        """Count a new connection, and return the name to release. Return None if there are too many."""
        name = OWN if is_own_address(peer) else normalize_address(peer[0])
        limit = MAX_OWN_CONNECTIONS if name == OWN else MAX_PEER_CONNECTIONS
        others = self._open.total() - self._open[OWN]
        # the share of the pod itself is not taken from that of the others
        if self._open[name] >= limit or (name != OWN and others >= MAX_CONNECTIONS - MAX_OWN_CONNECTIONS):
            return None
        self._open[name] += 1
        return name

    def release(self, name: str) -> None:
        """Count a connection as closed."""
        self._open[name] -= 1
        if not self._open[name]:
            del self._open[name]


MAX_BODY_BYTES = 4 * 1024 * 1024
MAX_WRAPPERS_BYTES = 16 * 1024 * 1024
"""The largest body of `PUT /v1/wrappers`."""
_OPEN_PATHS = frozenset({"/healthz", "/v1/proof"})
"""Paths without a token and a version: health, and the proof that a client demands before it sends its token."""
Handler = Callable[[HttpRequest], HttpResponse | Awaitable[HttpResponse]]


class SupervisorApi:
    """Handlers of requests to the sandbox, by path and method."""

    def __init__(self, *, sandbox: SandboxState, token_sha256: str) -> None:
        self._sandbox = sandbox
        self._token_sha256 = token_sha256
        self._routes: dict[str, dict[str, Handler]] = {
            "/healthz": {"GET": self._get_health},
            "/v1/proof": {"GET": self._prove},
            "/v1/execution": {
                "POST": self._start_execution,
                "GET": self._get_execution,
                "DELETE": self._cancel_execution,
            },
            "/v1/execution/events": {"GET": self._stream_events},
            "/v1/execution/extension": {"PUT": self._extend_execution},
            "/v1/libraries": {"GET": self._list_libraries},
            "/v1/recycle": {"POST": self._recycle},
            "/v1/session": {"GET": self._get_session},
            "/v1/wrappers": {"PUT": self._put_wrappers},
        }

    def refuse(self, request: HttpRequest) -> HttpResponse | None:
        """Return the error of a request whose body need not be read: its token, path, method or version is wrong."""
        methods = self._routes.get(request.path)
        if request.path not in _OPEN_PATHS and not self._is_authorized(request.authorization):
            challenge = [("www-authenticate", "Bearer")]
            return build_error(401, "a valid bearer token is needed", headers=challenge)
        if methods is None:
            return build_error(404, "the path does not exist")
        if request.method not in methods:
            allowed = ", ".join(sorted(methods))
            return build_error(405, f"this path allows {allowed}", headers=[("allow", allowed)])
        if request.path not in _OPEN_PATHS and choose_protocol(parse_protocols(request.protocols)) is None:
            return build_error(400, f"the protocol must be one of {format_protocols()}")
        return None

    def get_max_body_bytes(self, request: HttpRequest) -> int:
        """Return the size of the largest body that this request may have."""
        return MAX_WRAPPERS_BYTES if request.path == "/v1/wrappers" else MAX_BODY_BYTES

    def handle(self, request: HttpRequest) -> HttpResponse | Awaitable[HttpResponse]:
        """Return the response to a request that `refuse` accepted, or an awaitable of it."""
        return self._routes[request.path][request.method](request)

    def _is_authorized(self, authorization: str) -> bool:
        scheme, _, token = authorization.partition(" ")
        digest = hashlib.sha256(token.strip().encode()).hexdigest()
        return scheme.lower() == "bearer" and hmac.compare_digest(digest, self._token_sha256)

    def _get_health(self, request: HttpRequest) -> HttpResponse:
        state = self._sandbox.state
        status = 503 if state in ("starting", "stopping") else 200
        return build_response(status, {"state": state, "wrappers": self._sandbox.wrappers.hash, "protocols": PROTOCOLS})

    def _prove(self, request: HttpRequest) -> HttpResponse:
        nonce = request.query.removeprefix("nonce=")
        if not is_nonce(nonce):
            return build_error(400, "nonce: must be 64 lower-case hexadecimal digits")
        proof = compute_proof(key=self._token_sha256, nonce=nonce, address=request.peer)
        return build_response(200, {"proof": proof, "address": request.peer})

    async def _put_wrappers(self, request: HttpRequest) -> HttpResponse:
        if self._sandbox.state != "idle":
            return build_error(409, f"the sandbox is {self._sandbox.state}")
        try:
            wrappers = WrapperUpload.from_body(request.body)
            await self._sandbox.wrappers.replace(wrappers)
        except InvalidRequest as error:
            return build_error(400, str(error))
        except NotIdle:
            return build_error(409, "an execution was accepted first")
        except OSError as error:
            return build_error(507, f"the wrappers can't be written: {error.strerror}")
        return build_response(200, {"hash": wrappers.hash})

    def _start_execution(self, request: HttpRequest) -> HttpResponse | Awaitable[HttpResponse]:
        try:
            job = ExecutionRequest.from_body(request.body)
        except InvalidRequest as error:
            return build_error(400, str(error))
        return self._start_settled(job) if self._sandbox.is_settling else self._start(job)

    async def _start_settled(self, job: ExecutionRequest) -> HttpResponse:
        await self._sandbox.settle()
        return self._start(job)

    def _start(self, job: ExecutionRequest) -> HttpResponse:
        try:
            self._sandbox.accept(job)
        except StateConflict as error:
            return build_response(409, {"error": str(error), "id": self._sandbox.execution_id})
        except InterpreterEnded as error:
            return build_response(410, {"error": str(error), "id": self._sandbox.execution_id})
        except SandboxNotReady as error:
            return build_error(503, str(error))
        return HttpResponse(status=200, stream=self._sandbox.log.follow(1))

    def _get_execution(self, request: HttpRequest) -> HttpResponse:
        sandbox = self._sandbox
        fields = {"state": sandbox.state, "id": sandbox.execution_id, "lastSeq": sandbox.log.last_sequence}
        return build_response(200, {**fields, "uses": sandbox.uses})

    def _stream_events(self, request: HttpRequest) -> HttpResponse:
        values = parse_qs(request.query, keep_blank_values=True)
        first = values.pop("from", ["1"])[-1]
        if values:
            return build_error(400, f"{min(values)[:100]}: unknown parameter")
        if not re.fullmatch(r"[0-9]{1,9}", first) or int(first) < 1:
            return build_error(400, "from: must be a positive integer")
        if self._sandbox.execution_id is None:
            return build_error(404, "this sandbox has no execution")
        if self._is_other(request):
            return build_error(404, "the execution is not the last one of this sandbox")
        return HttpResponse(status=200, stream=self._sandbox.log.follow(int(first)))

    def _is_other(self, request: HttpRequest) -> bool:
        """Return whether a request means another execution than the last one."""
        return request.execution not in ("", self._sandbox.execution_id)

    def _extend_execution(self, request: HttpRequest) -> HttpResponse:
        try:
            extension = ExtensionRequest.from_body(request.body)
            self._sandbox.extend(extension.id, extension.seconds)
        except InvalidRequest as error:
            return build_error(400, str(error))
        except StateConflict as error:
            return build_error(409, str(error))
        return build_response(200, {"seconds": extension.seconds})

    async def _recycle(self, request: HttpRequest) -> HttpResponse:
        try:
            identifier = parse_body(request.body, ("id",)).get("id")
            milliseconds = await self._sandbox.recycle(str(identifier))
        except InvalidRequest as error:
            return build_error(400, str(error))
        except StateConflict as error:
            return build_response(409, {"error": str(error), "id": self._sandbox.execution_id})
        except NotCleaned as error:
            return build_error(500, str(error))
        fields = {"state": self._sandbox.state, "uses": self._sandbox.uses}
        return build_response(200, {**fields, "cleanMs": round(milliseconds, 3)})

    def _get_session(self, request: HttpRequest) -> HttpResponse:
        report = self._sandbox.describe_session()
        if report is None:
            return build_error(404, "this sandbox has no session")
        return build_response(200, report)

    async def _list_libraries(self, request: HttpRequest) -> HttpResponse:
        # A pool's first pod is asked once, so all others need neither the module nor its memory.
        from mcp_exec_sandbox.supervisor.libraries import find_folders, read_libraries

        libraries = await read_libraries(find_folders())
        python = ".".join(map(str, sys.version_info[:3]))
        return build_response(200, {"python": python, "libraries": [each.to_message() for each in libraries]})

    def _cancel_execution(self, request: HttpRequest) -> HttpResponse:
        if self._is_other(request):
            return build_error(409, "the execution is not the last one of this sandbox")
        try:
            cancelled = self._sandbox.cancel()
        except StateConflict as error:
            return build_error(409, str(error))
        return build_response(202 if cancelled else 200, {"state": self._sandbox.state})
