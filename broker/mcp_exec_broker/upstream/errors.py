"""What can be wrong with a session, and what errors of the SDK mean. Pure."""

from collections.abc import Iterable
from typing import Final

import mcp_types as types
from mcp.shared.exceptions import MCPError

from mcp_exec_broker.upstream import http_transport as http
from mcp_exec_broker.upstream.redaction import redact_excerpt
from mcp_exec_broker.upstream.stdio_transport import BridgeRefused

_LARGE_TEXTS: Final = (http.TOO_LARGE, "Server-sent event exceeded the")
_REASONS: Final = {http.UNAUTHORIZED: "Unauthorized", http.UNREACHED: "Unreachable"}


class SessionError(Exception):
    """The session is no good. The text says why, without credentials."""


class ServerUnavailable(SessionError):
    """The server can't be used now. `reason` is one word for programs."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class SessionExpired(SessionError):
    """The server does not know the session any more, and did nothing: another one may be made, and the call again."""


class ConnectionLost(SessionError):
    """The connection broke; whether the server did what it was asked to is not known."""


def interpret_error(error: MCPError, *, over_bridge: bool, why: str) -> Exception | None:
    """What an error of a request means, or none where it is the server's own answer.

    `why` is what is known of the connection's end. OverflowError stands for an answer that is too large.
    """
    mark = http.parse_mark(error.error.data)
    if mark in _REASONS:
        return ServerUnavailable(_REASONS[mark], error.message)
    if _session_is_gone(error, mark, over_bridge=over_bridge):
        return SessionExpired("the server has ended the session")
    if any(text in error.message for text in _LARGE_TEXTS):
        return OverflowError("the result is larger than it may be")
    if mark == http.BROKEN or error.code == types.CONNECTION_CLOSED or http.BROKE in error.message:
        return ConnectionLost(why or error.message)
    return None


def explain_open_failure(error: BaseException, *, timeout_seconds: float, secrets: Iterable[str]) -> ServerUnavailable:
    """Why no session was made. `secrets` are the values that no text may have in it."""
    while isinstance(error, BaseExceptionGroup):  # the first of them says it
        error = error.exceptions[0]
    if isinstance(error, ServerUnavailable):
        return error
    if isinstance(error, TimeoutError):
        return ServerUnavailable("Unreachable", f"it was not connected within {timeout_seconds:g} s")
    if isinstance(error, MCPError):
        return ServerUnavailable(
            _REASONS.get(http.parse_mark(error.error.data), "ProtocolError"),
            redact_excerpt(error.message, secrets, most=500),
        )
    if isinstance(error, OSError):
        return ServerUnavailable("Unreachable", f"no connection: {type(error).__name__}")
    if isinstance(error, BridgeRefused):
        return ServerUnavailable("Unreachable", str(error))
    return ServerUnavailable(
        "ProtocolError", f"{type(error).__name__}: {redact_excerpt(str(error), secrets, most=300)}"
    )


def _session_is_gone(error: MCPError, mark: str, *, over_bridge: bool) -> bool:
    if mark or over_bridge:
        return mark == http.GONE
    # the specification wants the status 404, but some answer 400
    return error.code == types.CONNECTION_CLOSED and "session id" in error.message.lower()
