"""Configuration of a client: its gateway, and the way there."""

import os
import re
from collections.abc import Callable
from typing import Final, TypedDict

import httpx

from mcp_exec_client.errors import ClientMisconfigured
from mcp_exec_client.plain_http import warn_of_plain_http
from mcp_exec_client.suggestions import describe_unknown
from mcp_exec_client.transport import RetryPolicy, Transport

_TIMEOUT_SECONDS: Final = 30.0
_MAX_CONNECTIONS: Final = 256
_STACK_LEVEL: Final = 4
"""From `build_transport` over a client and its checked initializer to who makes the client."""
_OWN_PATH: Final = re.compile(r"/(?:(?:api/)?v1(?:/.*)?|mcp|docs|healthz|readyz)/*$")
"""Paths of the gateway, which people copy together with its address."""


class ClientOptions(TypedDict, total=False):
    """Options of a client."""

    api_key: str | Callable[[], str] | None
    """API key or token; the default is $MCP_EXEC_API_KEY. A function is called for each request: tokens can change."""
    namespace: str | None
    """Namespace of all requests; needed only by callers that may use several."""
    timeout_seconds: float
    """Time for a response, in addition to the wait that the request asks for; 30 by default."""
    retries: RetryPolicy
    """Bounds of the retries of one request."""
    plain_http: bool
    """True if the key may be sent over plain HTTP to another machine, which otherwise causes a PlainHttpWarning."""
    http: httpx.AsyncClient | None
    """HTTP client with settings of its own, for example for TLS; its creator closes it."""


def read_url(url: str | None) -> str:
    """Return the gateway's address, or that of $MCP_EXEC_GATEWAY. Raises ClientMisconfigured."""
    url = url or os.environ.get("MCP_EXEC_GATEWAY")
    if not url:
        raise ClientMisconfigured("the client needs the gateway's address, as an argument or in $MCP_EXEC_GATEWAY")
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise ClientMisconfigured(f"{url[:200]!r} is not the address of a gateway: {error}") from error
    if parsed.userinfo:
        raise ClientMisconfigured("the gateway's address has a user or a password; use an API key instead")
    if parsed.scheme not in ("http", "https") or not parsed.host or parsed.query or parsed.fragment:
        raise ClientMisconfigured(
            f"{url[:200]!r} is not the address of a gateway; an example is https://gateway.example:8080"
        )
    if (path := _OWN_PATH.search(parsed.path)) is not None:
        base = url.rstrip("/")[: -len(path[0].rstrip("/"))]
        raise ClientMisconfigured(f"the gateway's address is given without {path[0].rstrip('/')}: {base[:200]}")
    return url.rstrip("/")


def build_transport(url: str | None, options: ClientOptions) -> Transport:
    """Build the transport of a client. Raises ClientMisconfigured, and TypeError for an unknown option."""
    if unknown := options.keys() - ClientOptions.__optional_keys__:
        raise TypeError(describe_unknown(min(unknown), ClientOptions.__optional_keys__))
    address = read_url(url)
    key = options.get("api_key") or os.environ.get("MCP_EXEC_API_KEY")
    if key and not options.get("plain_http"):
        warn_of_plain_http(address, stacklevel=_STACK_LEVEL)
    return Transport(
        http=options.get("http") or httpx.AsyncClient(limits=httpx.Limits(max_connections=_MAX_CONNECTIONS)),
        url=address,
        read_key=key if callable(key) else lambda: key,
        timeout_seconds=options.get("timeout_seconds", _TIMEOUT_SECONDS),
        retries=options.get("retries", RetryPolicy()),
    )
