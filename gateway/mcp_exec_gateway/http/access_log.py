"""One log line and one count for each request, and the answer to errors that nothing else caught."""

import logging
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Final, cast

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mcp_exec_gateway.http.problems import Problem
from mcp_exec_gateway.lifecycle import Lifecycle
from mcp_exec_gateway.metrics import Metrics

log = logging.getLogger("mcp_exec_gateway.http.access_log")

CLIENT_GONE: Final = 499
_TRACE: Final = "mcp_exec.trace"
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_QUIET: Final = frozenset({"/healthz", "/readyz", "/metrics"})


@dataclass(kw_only=True)
class Trace:
    """What a request's log line says of it beside its path and status."""

    caller: str | None = None
    namespace: str | None = None
    execution: str | None = None


def trace_of(scope: Scope) -> Trace:
    """The trace of the request that is being answered."""
    return cast(Trace, scope[_TRACE])


class Access:
    """ASGI middleware, the outermost one. Neither bodies nor queries nor headers are logged."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics, lifecycle: Lifecycle) -> None:
        self._app = app
        self._metrics = metrics
        self._lifecycle = lifecycle

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        trace = scope[_TRACE] = Trace()
        start = perf_counter()
        status = 0

        async def note_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if status == CLIENT_GONE:
                    return
                if self._lifecycle.draining.is_set():
                    # its next request goes elsewhere, instead of into a connection that is being closed
                    message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
            elif status == CLIENT_GONE:
                return
            await send(message)

        try:
            await self._app(scope, receive, note_status)
        except Exception:
            log.exception("a request failed", extra=self._fields(scope, trace))
            if status == 0:
                await Problem(
                    "internal", 500, "the request failed by a fault of the gateway, which has logged it"
                ).response()(scope, receive, note_status)
        finally:
            self._note(scope, trace, status, perf_counter() - start)

    def _note(self, scope: Scope, trace: Trace, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "unknown")
        method = scope["method"] if scope["method"] in _METHODS else "other"
        self._metrics.requests.labels(route, method, str(status)).inc()
        self._metrics.request_seconds.labels(route).observe(seconds)
        level = logging.DEBUG if scope["path"] in _QUIET else logging.INFO
        if log.isEnabledFor(level):
            fields = self._fields(scope, trace)
            log.log(level, "request", extra={**fields, "status": status, "ms": round(seconds * 1000, 3)})

    def _fields(self, scope: Scope, trace: Trace) -> dict[str, Any]:
        return {
            "method": scope["method"][:16],
            "path": scope["path"][:300],
            "caller": trace.caller,
            "namespace": trace.namespace,
            "execution": trace.execution,
        }
