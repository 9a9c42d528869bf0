"""Errors of sessions, derived from those of the SDK, and the removal of credentials from what servers answer. Pure."""

import json
from collections.abc import Iterable
from typing import Any, Final

import aiohttp
import mcp_types as types
from mcp import MCPError

from mcp_exec_api.reasons.server import ServerReason
from mcp_exec_broker.core.upstream import http_transport as http
from mcp_exec_broker.core.upstream.addresses import explain_connection_error
from mcp_exec_broker.core.upstream.messages import explain_unreadable
from mcp_exec_broker.core.upstream.result_repair import UnreadableResult

MARK: Final = "[CREDENTIAL REDACTED]"
_PART: Final = 8
"""Fewest characters of a secret that count as a part of it: shorter ones are in many words."""


def redact_text(text: str, secrets: Iterable[str]) -> str:
    """Return the text without the secrets; the same object if it contains none."""
    for secret in secrets:
        if secret in text:
            text = text.replace(secret, MARK)
    return text


def redact_excerpt(text: str, secrets: Iterable[str], *, max_chars: int) -> str:
    """Return the beginning of a text without the secrets and their parts, which programs print as `abcd...wxyz`.

    The time is linear in text and secrets. Text beyond four times the excerpt is not searched for parts.
    """
    secrets = tuple(secrets)
    return _redact_parts(redact_text(text, secrets)[: 4 * max_chars], secrets)[:max_chars]


def redact_output(text: str, secrets: Iterable[str], *, min_length: int, max_chars: int) -> str:
    """Return the beginning of a line of output without the secrets and their parts, nor a line of a secret.

    Lines of secrets shorter than `min_length` remain: they are words rather than secrets.
    """
    lines = {line.strip() for secret in secrets for line in (secret, *secret.splitlines(), *secret.split("\\n"))}
    found = sorted((line for line in lines if len(line) >= min_length), key=len, reverse=True)
    return redact_excerpt(text, found, max_chars=max_chars)


def _redact_parts(text: str, secrets: Iterable[str]) -> str:
    """Return the text without any _PART characters in a row that a secret has, too."""
    places: dict[str, list[int]] = {}
    for start in range(len(text) - _PART + 1):
        places.setdefault(text[start : start + _PART], []).append(start)
    found: set[int] = set()
    for secret in secrets:
        for start in range(len(secret) - _PART + 1):
            found.update(places.pop(secret[start : start + _PART], ()))
    parts: list[str] = []
    end = 0
    for start in sorted(found):
        if start > end or not parts:
            parts += [text[end:start], MARK]
        end = start + _PART
    return "".join((*parts, text[end:]))


def redact_json(value: Any, secrets: Iterable[str], *, text: str | None = None) -> Any:
    """Return JSON without the secrets, in keys and numbers too; the same object if it contains none.

    `text` is the value as JSON text, if the caller has it.
    """
    secrets = tuple(secret for secret in secrets if secret)
    if not secrets:
        return value
    text = json.dumps(value) if text is None else text
    # one search of the whole text is much cheaper than a search of each part
    if any(spelling in text for secret in secrets for spelling in _list_spellings(secret)):
        return _redact(value, secrets)
    return value


def _list_spellings(secret: str) -> Iterable[str]:
    return secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]


def _redact(value: Any, secrets: tuple[str, ...]) -> Any:
    if isinstance(value, str):
        return redact_text(value, secrets)
    if isinstance(value, dict):
        return {redact_text(name, secrets): _redact(member, secrets) for name, member in value.items()}
    if isinstance(value, list):
        return [_redact(item, secrets) for item in value]
    if isinstance(value, int | float) and any(secret in json.dumps(value) for secret in secrets):
        return MARK
    return value


_SIZE_MESSAGES: Final = (http.TOO_LARGE, "Server-sent event exceeded the")
_REASONS: Final = {
    http.UNAUTHORIZED: ServerReason.UNAUTHORIZED,
    http.UNREACHED: ServerReason.UNREACHABLE,
    http.UNAVAILABLE: ServerReason.SERVER_ERROR,
}
"""Reasons of marks without one of their own."""
_REDIRECT: Final = "Redirect to "
UNPARSED: Final = "Failed to parse "
"""Begin of the SDK's message on a redirect that it does not follow."""


class SessionError(Exception):
    """An error of the session. Its text contains no credentials."""


class ServerUnavailable(SessionError):
    """The server is unavailable now. `reason` is one word for programs: a ServerReason, or the operator's word.

    `was_sent` says that the request was sent, so that its effect is unknown.
    """

    def __init__(self, reason: str, message: str, *, was_sent: bool = False) -> None:
        super().__init__(message)
        self.reason = reason
        self.was_sent = was_sent


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
        reason = http.parse_reason(error.error.data) or _REASONS[mark]
        return ServerUnavailable(reason, error.message, was_sent=mark == http.UNAVAILABLE)
    if _is_session_expired(error, mark, over_bridge=over_bridge):
        return SessionExpired("the server has ended the session")
    if any(text in error.message for text in _SIZE_MESSAGES):
        return OverflowError("the result exceeds its size limit")
    if mark == http.BROKEN or error.code == types.CONNECTION_CLOSED or http.BROKE in error.message:
        return ConnectionLost(why or error.message)
    if error.code == types.PARSE_ERROR and error.message.startswith(UNPARSED):
        return UnreadableResult(explain_unreadable(error.message))
    return None


def explain_open_failure(
    error: BaseException, *, timeout_seconds: float, secrets: Iterable[str], known: ServerUnavailable | None = None
) -> ServerUnavailable:
    """Return why no session was opened. The text contains none of the `secrets`.

    `known` is what the transport reported about the server's end or its output.
    """
    while isinstance(error, BaseExceptionGroup):  # the first one is the cause
        error = error.exceptions[0]
    if isinstance(error, ServerUnavailable):
        return error
    if known is not None:
        return known
    if isinstance(error, MCPError):
        reason, message = _explain_answer(error)
        return ServerUnavailable(reason, redact_excerpt(message, secrets, max_chars=500))
    if isinstance(error, aiohttp.ClientError | OSError) and not isinstance(error, TimeoutError):
        return ServerUnavailable(*explain_connection_error(error))
    if isinstance(error, TimeoutError):
        return ServerUnavailable(ServerReason.TIMEOUT, f"it was not connected within {timeout_seconds:g} s")
    excerpt = redact_excerpt(str(error), secrets, max_chars=300)
    return ServerUnavailable(ServerReason.PROTOCOL_ERROR, f"its answer can't be used: {excerpt}")


def _explain_answer(error: MCPError) -> tuple[ServerReason, str]:
    message = error.message
    if (reason := http.parse_reason(error.error.data)) is not None:
        return reason, message
    if message.startswith(_REDIRECT):
        return ServerReason.REDIRECTED, message
    if http.BROKE in message:
        return ServerReason.CONNECTION_LOST, http.BROKE
    if (mark := http.parse_mark(error.error.data)) in _REASONS:
        return _REASONS[mark], message
    if error.code == types.CONNECTION_CLOSED:
        return ServerReason.CONNECTION_LOST, message
    if error.code == types.PARSE_ERROR and http.TOO_LARGE not in message:
        return ServerReason.NOT_MCP, "the server's answer is not JSON-RPC"
    return ServerReason.PROTOCOL_ERROR, message


def _is_session_expired(error: MCPError, mark: str, *, over_bridge: bool) -> bool:
    if mark or over_bridge:
        return mark == http.GONE
    # the specification requires status 404, but some servers answer 400
    return error.code == types.CONNECTION_CLOSED and "session id" in error.message.lower()
