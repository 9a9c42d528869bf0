"""The outermost middleware: the access log, responses to unexpected errors, and the end of connections."""

import asyncio
import logging
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Final, cast

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mcp_exec_gateway.core.http.problems import internal_error
from mcp_exec_gateway.core.http.request_body import CLOSE, ArrivingBody
from mcp_exec_gateway.metrics import Metrics

log = logging.getLogger(__name__)

CLIENT_CLOSED_REQUEST: Final = 499
"""Status in logs and metrics if the client disconnected before the response, as in nginx. It is never sent."""
_TRACE: Final = "mcp_exec.trace"
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_DEBUG_PATHS: Final = frozenset({"/healthz", "/readyz"})


@dataclass(frozen=True, kw_only=True)
class ShutdownSignals:
    """Two events, set one after the other once the process receives SIGTERM."""

    draining: asyncio.Event = field(default_factory=asyncio.Event)
    """Set at once: the process is not ready any more, but still serves."""
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    """Set after the drain: event streams end, and clients resume them at another replica."""


@dataclass(kw_only=True)
class RequestTrace:
    """Fields of a request's log line that the routes fill in."""

    caller: str | None = None
    namespace: str | None = None
    execution: str | None = None


def get_trace(scope: Scope) -> RequestTrace:
    """Return the trace of the current request."""
    return cast(RequestTrace, scope[_TRACE])


class AccessLogMiddleware:
    """The outermost ASGI middleware. It logs neither bodies nor queries nor headers: they can hold secrets."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics, shutdown: ShutdownSignals) -> None:
        self._app = app
        self._metrics = metrics
        self._shutdown = shutdown

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        trace = scope[_TRACE] = RequestTrace()
        body = ArrivingBody(scope, receive, send)
        start = perf_counter()
        status = 0

        async def send_and_record(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if status == CLIENT_CLOSED_REQUEST:
                    return
                if self._shutdown.draining.is_set():
                    # the client's next request then opens a connection to another replica
                    message = {**message, "headers": [*message.get("headers", ()), CLOSE]}
            elif status == CLIENT_CLOSED_REQUEST:
                return
            await body.send(message)

        try:
            await self._app(scope, body.receive, send_and_record)
        except Exception:
            log.exception("unexpected error", extra=self._log_fields(scope, trace))
            if status == 0:
                await internal_error().response()(scope, body.receive, send_and_record)
        finally:
            self._record(scope, trace, status, perf_counter() - start)

    def _record(self, scope: Scope, trace: RequestTrace, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "unknown")
        method = scope["method"] if scope["method"] in _METHODS else "other"
        self._metrics.requests.labels(route, method, str(status)).inc()
        self._metrics.request_seconds.labels(route).observe(seconds)
        level = logging.DEBUG if scope["path"] in _DEBUG_PATHS else logging.INFO
        if log.isEnabledFor(level):
            fields = self._log_fields(scope, trace)
            log.log(level, "request", extra={**fields, "status": status, "ms": round(seconds * 1000, 3)})

    def _log_fields(self, scope: Scope, trace: RequestTrace) -> dict[str, Any]:
        return {
            "method": scope["method"][:16],
            "path": scope["path"][:300],
            "caller": trace.caller,
            "namespace": trace.namespace,
            "execution": trace.execution,
        }
