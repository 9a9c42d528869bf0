"""Reasons of connections to MCP servers and token endpoints that fail."""

import signal
from typing import Final

import aiohttp

from mcp_exec_api.reasons.server import ServerReason
from mcp_exec_common.process.outgoing_client import ProxyFailed
from mcp_exec_common.util.addresses import AddressRefused

_WRONG_PATHS: Final = frozenset({404, 405, 410})
_MAX_NAME: Final = 253
"""Characters of a host name."""


def explain_connection_error(error: BaseException) -> tuple[ServerReason, str]:
    """Return the reason of a connection that was not made, and a sentence that names the address."""
    at = _name_address(error)
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    detail = getattr(cause, "strerror", None)
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        host = error.host[:_MAX_NAME]
        return ServerReason.NAME_NOT_RESOLVED, f"the name {host} does not resolve" + (f": {detail}" if detail else "")
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        problem = getattr(error.certificate_error, "verify_message", "") or "it is not trusted"
        return ServerReason.TLS_FAILED, f"the certificate{at} is refused: {problem}"
    if isinstance(error, aiohttp.ClientSSLError):
        problem = getattr(cause, "reason", None) or "no TLS"
        return ServerReason.TLS_FAILED, f"no TLS handshake{at}: {str(problem).lower().replace('_', ' ')}"
    if isinstance(error, ProxyFailed):
        return ServerReason.PROXY_FAILED, str(error)
    if isinstance(error, aiohttp.InvalidURL):
        return ServerReason.INVALID_SPEC, "spec.url is not a valid URL"
    if isinstance(cause, AddressRefused):
        return ServerReason.ADDRESS_REFUSED, f"the broker refused the connection{at}: {cause.strerror}"
    if isinstance(cause, ConnectionRefusedError):
        return ServerReason.CONNECTION_REFUSED, f"nothing listens{at}: connection refused"
    if isinstance(error, TimeoutError):
        return ServerReason.UNREACHABLE, f"no connection{at} in time"
    return ServerReason.UNREACHABLE, f"no connection{at}" + (f": {detail}" if detail else "")


def explain_status(status: int) -> tuple[ServerReason, str]:
    """Return the reason for an HTTP status of 400 or more without an answer of the protocol."""
    reason = ServerReason.WRONG_PATH if status in _WRONG_PATHS else ServerReason.SERVER_ERROR
    return reason, f"the server answers {status}"


def describe_exit(code: int) -> str:
    """Return how a process ended, by its exit code, which is negative for a signal."""
    if code >= 0:
        return f"the command exited with code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"the command was ended by {name}" + (", usually for lack of memory" if name == "SIGKILL" else "")


def _name_address(error: BaseException) -> str:
    if isinstance(error, AddressRefused) and error.place:
        return f" at {error.place[:_MAX_NAME]}"
    if not isinstance(error, aiohttp.ClientConnectorError | aiohttp.ClientConnectorCertificateError):
        return ""
    return f" at {error.host[:_MAX_NAME]}:{error.port}"
