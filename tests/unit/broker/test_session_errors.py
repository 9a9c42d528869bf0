"""Derivation of session errors from errors of the SDK."""

from collections.abc import Callable

import mcp_types as types
import pytest
from mcp import MCPError

from mcp_exec_broker.core.upstream import http_transport as http
from mcp_exec_broker.core.upstream.errors import (
    ConnectionLost,
    ServerUnavailable,
    SessionExpired,
    explain_open_failure,
    interpret_error,
)


def error(code: int, message: str, mark: str | None = None) -> MCPError:
    return MCPError(code, message, {"trouble": mark} if mark else None)


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (error(-32602, "Unknown tool"), None),
        (error(types.CONNECTION_CLOSED, "Connection closed"), ConnectionLost),
        (error(types.CONNECTION_CLOSED, "x", http.BROKEN), ConnectionLost),
        (error(types.PARSE_ERROR, f"Failed to parse JSON response: {http.BROKE}: X"), ConnectionLost),
        (error(types.PARSE_ERROR, f"Failed to parse JSON response: {http.TOO_LARGE}"), OverflowError),
        (
            error(types.CONNECTION_CLOSED, "Server-sent event exceeded the 5 byte limit."),
            OverflowError,
        ),
        (error(types.CONNECTION_CLOSED, "x", http.GONE), SessionExpired),
        (error(types.CONNECTION_CLOSED, "Bad Request: No valid session ID provided"), SessionExpired),
        (error(types.CONNECTION_CLOSED, "x", http.UNREACHED), ServerUnavailable),
        (error(types.CONNECTION_CLOSED, "x", http.UNAUTHORIZED), ServerUnavailable),
        (error(types.INTERNAL_ERROR, "the server answers 502", http.UNAVAILABLE), ServerUnavailable),
    ],
)
def test_what_was_done_is_told_from_what_was_not(given: MCPError, found: type[Exception] | None) -> None:
    assert type(interpret_error(given, over_bridge=False, why="")) is (found or type(None))


def test_a_bridge_has_no_sessions_to_forget() -> None:
    assert isinstance(
        interpret_error(error(types.CONNECTION_CLOSED, "session id"), over_bridge=True, why="killed"), ConnectionLost
    )


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (ServerUnavailable("PodNotReady", "no"), "PodNotReady"),
        (TimeoutError(), "Timeout"),
        (ConnectionRefusedError(), "ConnectionRefused"),
        (ExceptionGroup("g", [ExceptionGroup("h", [OSError()])]), "Unreachable"),
        (error(1, "x", http.UNAUTHORIZED), "Unauthorized"),
        (error(-32022, "Unsupported"), "ProtocolError"),
        (error(-32600, "Redirect to https://elsewhere/mcp not followed"), "Redirected"),
        (error(types.PARSE_ERROR, "Failed to parse JSON response: no"), "NotMCP"),
        (error(types.PARSE_ERROR, f"Failed to parse JSON response: {http.BROKE}"), "ConnectionLost"),
        (error(types.CONNECTION_CLOSED, "Connection closed"), "ConnectionLost"),
        (MCPError(-32603, "no", {"reason": "ServerError"}), "ServerError"),
        (MCPError(-32603, "no", {"reason": "Invented"}), "ProtocolError"),
        (RuntimeError("odd"), "ProtocolError"),
    ],
)
def test_each_reason_why_there_is_no_session_is_one_word(given: Exception, reason: str) -> None:
    assert explain_open_failure(given, timeout_seconds=1, secrets=()).reason == reason


def test_what_the_transport_reported_counts_more_than_its_effect() -> None:
    known = ServerUnavailable("CommandExited", "code 1")
    closed = error(types.CONNECTION_CLOSED, "Connection closed")
    assert explain_open_failure(closed, timeout_seconds=1, secrets=(), known=known) is known


@pytest.mark.parametrize("kind", [ValueError, lambda text: error(-32000, text)])
def test_a_secret_is_not_left_by_half_where_a_long_text_ends(kind: Callable[[str], Exception]) -> None:
    secret = "s3cr3t-" * 8
    for length in range(240, 510):
        found = explain_open_failure(kind("x" * length + secret), timeout_seconds=1, secrets=[secret])
        assert secret[:7] not in str(found)
