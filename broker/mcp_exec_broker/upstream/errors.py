"""Errors of sessions, and their derivation from errors of the SDK. Pure."""

from collections.abc import Iterable
from typing import Final

import mcp_types as types
from mcp.shared.exceptions import MCPError

from mcp_exec_broker.upstream import http_transport as http
from mcp_exec_broker.upstream.redaction import redact_excerpt
from mcp_exec_broker.upstream.stdio_transport import BridgeRefused

_SIZE_MESSAGES: Final = (http.TOO_LARGE, "Server-sent event exceeded the")
_REASONS: Final = {http.UNAUTHORIZED: "Unauthorized", http.UNREACHED: "Unreachable"}


class SessionError(Exception):
    """An error of the session. Its text contains no credentials."""


class ServerUnavailable(SessionError):
    """The server is unavailable now. `reason` is one word for programs."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class SessionExpired(SessionError):
    """The server no longer has the session and did nothing: the call may be repeated in a new session."""


class ConnectionLost(SessionError):
    """The connection broke, so the effect of the request is unknown."""


def interpret_error(error: MCPError, *, over_bridge: bool, why: str) -> Exception | None:
    """Return the session's or transport's error behind an error of a request, or None if it is the server's answer.

    `why` is the known cause of the connection's end. OverflowError stands for an answer that is too large.
    """
    mark = http.parse_mark(error.error.data)
    if mark in _REASONS:
        return ServerUnavailable(_REASONS[mark], error.message)
    if _is_session_expired(error, mark, over_bridge=over_bridge):
        return SessionExpired("the server has ended the session")
    if any(text in error.message for text in _SIZE_MESSAGES):
        return OverflowError("the result exceeds its size limit")
    if mark == http.BROKEN or error.code == types.CONNECTION_CLOSED or http.BROKE in error.message:
        return ConnectionLost(why or error.message)
    return None


def explain_open_failure(error: BaseException, *, timeout_seconds: float, secrets: Iterable[str]) -> ServerUnavailable:
    """Return why no session was opened. The text contains none of the `secrets`."""
    while isinstance(error, BaseExceptionGroup):  # the first one is the cause
        error = error.exceptions[0]
    if isinstance(error, ServerUnavailable):
        return error
    if isinstance(error, TimeoutError):
        return ServerUnavailable("Unreachable", f"it was not connected within {timeout_seconds:g} s")
    if isinstance(error, MCPError):
        reason = _REASONS.get(http.parse_mark(error.error.data), "ProtocolError")
        return ServerUnavailable(reason, redact_excerpt(error.message, secrets, max_chars=500))
    if isinstance(error, OSError):
        return ServerUnavailable("Unreachable", f"no connection: {type(error).__name__}")
    if isinstance(error, BridgeRefused):
        return ServerUnavailable("Unreachable", str(error))
    excerpt = redact_excerpt(str(error), secrets, max_chars=300)
    return ServerUnavailable("ProtocolError", f"{type(error).__name__}: {excerpt}")


def _is_session_expired(error: MCPError, mark: str, *, over_bridge: bool) -> bool:
    if mark or over_bridge:
        return mark == http.GONE
    # the specification requires status 404, but some servers answer 400
    return error.code == types.CONNECTION_CLOSED and "session id" in error.message.lower()
