"""Routes of the supervisor's HTTP interface: authorization, handlers and their responses."""

import hashlib
import hmac
import re
import sys
from collections.abc import Awaitable, Callable
from urllib.parse import parse_qs

from mcp_exec_sandbox.supervisor.cleaning import NotCleaned
from mcp_exec_sandbox.supervisor.execution.job_request import ExecutionRequest
from mcp_exec_sandbox.supervisor.execution.watchdog import ExtensionRequest
from mcp_exec_sandbox.supervisor.http.peers import (
    HttpRequest,
    HttpResponse,
    build_error,
    build_response,
    compute_proof,
    is_nonce,
)
from mcp_exec_sandbox.supervisor.json_object import InvalidRequest, parse_body
from mcp_exec_sandbox.supervisor.runners import InterpreterEnded, StateConflict
from mcp_exec_sandbox.supervisor.state import SandboxNotReady, SandboxState
from mcp_exec_sandbox.supervisor.wrapper_store import NotIdle, WrapperUpload

MAX_BODY_BYTES = 4 * 1024 * 1024
MAX_WRAPPERS_BYTES = 16 * 1024 * 1024
"""The largest body of `PUT /v1/wrappers`."""
_OPEN_PATHS = frozenset({"/healthz", "/v1/proof"})
"""Paths without a token: health, and the proof that a client demands before it sends its token."""
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
        """Return the error of a request whose body need not be read: unauthorized, unknown path or method."""
        methods = self._routes.get(request.path)
        if request.path not in _OPEN_PATHS and not self._is_authorized(request.authorization):
            challenge = [("www-authenticate", "Bearer")]
            return build_error(401, "a valid bearer token is needed", headers=challenge)
        if methods is None:
            return build_error(404, "the path does not exist")
        if request.method not in methods:
            allowed = ", ".join(sorted(methods))
            return build_error(405, f"this path allows {allowed}", headers=[("allow", allowed)])
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
        return build_response(status, {"state": state, "wrappers": self._sandbox.wrappers.hash})

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
        fields = {"executions": report.executions, "memoryBytes": report.memory_bytes, "alive": report.alive}
        return build_response(200, fields)

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
