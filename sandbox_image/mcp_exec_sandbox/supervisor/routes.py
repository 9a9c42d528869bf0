"""The supervisor's HTTP interface: who may ask, what is asked, and the answers."""

import hashlib
import hmac
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from urllib.parse import parse_qs

from mcp_exec_sandbox.supervisor.event_log import Batch
from mcp_exec_sandbox.supervisor.job_request import ExecutionRequest, InvalidRequest
from mcp_exec_sandbox.supervisor.state import Conflict, NotReady, Sandbox
from mcp_exec_sandbox.supervisor.wrappers import MAX_WRAPPERS_BYTES, NotIdle, Wrappers

MAX_BODY_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request as the connection read it."""

    method: str
    path: str
    query: str
    authorization: str
    body: bytes = b""


@dataclass(frozen=True, kw_only=True)
class Response:
    """An answer: a body, or a stream of NDJSON."""

    status: int
    body: bytes = b""
    stream: AsyncIterator[Batch] | None = None
    headers: list[tuple[str, str]] = field(default_factory=list)


Handler = Callable[[Request], Response | Awaitable[Response]]


class Api:
    """Routes requests to the sandbox."""

    def __init__(self, *, sandbox: Sandbox, token_sha256: str) -> None:
        self._sandbox = sandbox
        self._token_sha256 = token_sha256
        self._routes: dict[str, dict[str, Handler]] = {
            "/healthz": {"GET": self._health},
            "/v1/execution": {"POST": self._start, "GET": self._describe, "DELETE": self._cancel},
            "/v1/execution/events": {"GET": self._events},
            "/v1/wrappers": {"PUT": self._put_wrappers},
        }

    def refuse(self, request: Request) -> Response | None:
        """The answer to a request that isn't worth its body: no such path or method, or no right to ask."""
        methods = self._routes.get(request.path)
        if request.path != "/healthz" and not self._is_authorised(request.authorization):
            challenge = [("www-authenticate", "Bearer")]
            return _error(401, "a valid bearer token is needed", headers=challenge)
        if methods is None:
            return _error(404, "no such path")
        if request.method not in methods:
            return _error(405, "no such method here", headers=[("allow", ", ".join(sorted(methods)))])
        return None

    def max_body_bytes(self, request: Request) -> int:
        """The largest body that is read."""
        return MAX_WRAPPERS_BYTES if request.path == "/v1/wrappers" else MAX_BODY_BYTES

    def handle(self, request: Request) -> Response | Awaitable[Response]:
        """Answer a request that `refuse` let pass, at once or after a while."""
        return self._routes[request.path][request.method](request)

    def _is_authorised(self, authorization: str) -> bool:
        scheme, _, token = authorization.partition(" ")
        digest = hashlib.sha256(token.strip().encode()).hexdigest()
        return scheme.lower() == "bearer" and hmac.compare_digest(digest, self._token_sha256)

    def _health(self, request: Request) -> Response:
        state = self._sandbox.state
        return _json(
            503 if state in ("starting", "stopping") else 200, {"state": state, "wrappers": self._sandbox.wrappers.hash}
        )

    async def _put_wrappers(self, request: Request) -> Response:
        if self._sandbox.state != "idle":
            return _error(409, f"the sandbox is {self._sandbox.state}")
        try:
            wrappers = Wrappers.from_body(request.body)
            await self._sandbox.wrappers.replace(wrappers)
        except InvalidRequest as error:
            return _error(400, str(error))
        except NotIdle:
            return _error(409, "an execution came first")
        except OSError as error:
            return _error(507, f"the wrappers can't be written: {error.strerror}")
        return _json(200, {"hash": wrappers.hash})

    def _start(self, request: Request) -> Response:
        try:
            self._sandbox.accept(ExecutionRequest.from_body(request.body))
        except InvalidRequest as error:
            return _error(400, str(error))
        except Conflict as error:
            return _json(409, {"error": str(error), "id": self._sandbox.execution_id})
        except NotReady as error:
            return _error(503, str(error))
        return Response(status=200, stream=self._sandbox.log.follow(1))

    def _describe(self, request: Request) -> Response:
        sandbox = self._sandbox
        return _json(200, {"state": sandbox.state, "id": sandbox.execution_id, "lastSeq": sandbox.log.last_sequence})

    def _events(self, request: Request) -> Response:
        values = parse_qs(request.query, keep_blank_values=True)
        first = values.pop("from", ["1"])[-1]
        if values:
            return _error(400, f"{min(values)[:100]}: unknown parameter")
        if not re.fullmatch(r"[0-9]{1,9}", first) or int(first) < 1:
            return _error(400, "from: must be a positive integer")
        if self._sandbox.execution_id is None:
            return _error(404, "this sandbox has no execution")
        return Response(status=200, stream=self._sandbox.log.follow(int(first)))

    def _cancel(self, request: Request) -> Response:
        try:
            cancelled = self._sandbox.cancel()
        except Conflict as error:
            return _error(409, str(error))
        return _json(202 if cancelled else 200, {"state": self._sandbox.state})


def too_large(limit: int) -> Response:
    """The answer to a body over the bound."""
    return _error(413, f"the body may have at most {limit} bytes")


def _json(status: int, content: object, *, headers: list[tuple[str, str]] | None = None) -> Response:
    return Response(status=status, body=json.dumps(content).encode(), headers=headers or [])


def _error(status: int, message: str, *, headers: list[tuple[str, str]] | None = None) -> Response:
    return _json(status, {"error": message}, headers=headers)
