"""Requests and responses of the supervisor's HTTP interface."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from mcp_exec_sandbox.supervisor.execution.event_log import EventBatch


@dataclass(frozen=True, kw_only=True)
class HttpRequest:
    """A request, at first without its body."""

    method: str
    path: str
    query: str
    authorization: str
    execution: str = ""
    """Id of the execution that the request means. Empty: the last one."""
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
