"""HTTP to the gateway: one bounded response, or an error of the client, for each request; retries if they are safe.

Its configuration comes from arguments and from the environment.
"""

import asyncio
import json
import os
import random
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, Final, TypedDict

import httpx
from pydantic import Field, ValidationError

from mcp_exec_api.meta import FieldError
from mcp_exec_api.wire.problems import PROBLEM_PREFIX, ProblemDetails
from mcp_exec_client.errors import (
    OTHER_KIND,
    ClientMisconfigured,
    GatewayError,
    GatewayUnreachable,
    McpExecError,
    UnexpectedResponse,
    find_error_class,
)
from mcp_exec_client.json_body import encode_body
from mcp_exec_client.network import describe_failure, direct_transport, find_proxy, warn_of_plain_http
from mcp_exec_client.options import describe_unknown
from mcp_exec_common.util.backoff import delay_after

_JITTER: Final = 0.5
"""Share of a delay that is random, so that callers that failed together do not return together."""
MAX_RESPONSE_BYTES: Final = 32 * 1024 * 1024
"""More than the largest response: the schemas of 1000 tools."""
_MAX_PROBLEM_BYTES: Final = 1024 * 1024
_MAX_DETAIL: Final = 2000
"""Characters of a response's text that an error repeats."""
_KEY_REFUSED: Final = "the key is missing, wrong or removed; pass another one as api_key or in $MCP_EXEC_API_KEY"
_CONNECT_SECONDS: Final = 10.0
_MAX_RETRY_AFTER: Final = 3600.0
_ATTEMPTS: Final = 6
"""Attempts by default: about 5 s of delays if nothing ever answers at an address."""
RETRIED_STATUSES: Final = (429, 502, 503, 504)
"""Statuses that a repeated request may not get again."""
_AWAY_STATUSES: Final = (502, 503, 504)
"""Statuses of proxies that do not reach the gateway."""
_NOT_SENT: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
"""Failures before the first byte of the request left."""
_NOT_RETRIED: Final = (httpx.UnsupportedProtocol, httpx.LocalProtocolError)
"""Failures that a retry would repeat."""
Query = Mapping[str, str | None]


@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """Bounds of the retries of one request. All times are in seconds."""

    attempts: int | None = None
    """Maximum number of attempts, including the first; 1 means no retry. By default 6; attempts while a gateway is away
    that has answered this client before do not count, and only `max_delay_seconds` bounds them."""
    max_delay_seconds: float = 60.0
    """Maximum sum of the delays between attempts, and longest absence of a gateway that has answered before."""
    first_delay_seconds: float = 0.2
    last_delay_seconds: float = 10.0
    draw: Callable[[], float] = field(default=random.random, repr=False)
    """Source of jitter, between 0 and 1."""

    def find_delay(
        self, failures: int, *, waited: float, retry_after: float | None = None, uncounted: int = 0
    ) -> float | None:
        """Return the delay after so many failures in a row and `waited` seconds of delays.

        Returns None if the request is not to be sent again. A `retry_after` is a minimum. `uncounted` of the failures
        are those of a gateway that is away.
        """
        if failures >= (_ATTEMPTS + uncounted if self.attempts is None else self.attempts):
            return None
        backoff = delay_after(failures, first=self.first_delay_seconds, last=self.last_delay_seconds)
        base = max(backoff * (1 - _JITTER), retry_after or 0.0)
        delay = base + backoff * _JITTER * self.draw()
        return delay if waited + delay <= self.max_delay_seconds else None


NO_RETRIES: Final = RetryPolicy(attempts=1)
"""Each request is sent once."""


class _Problem(ProblemDetails):
    """Problem details that may also come from a proxy, whose members are all optional."""

    type: Annotated[str, Field(max_length=200)] = ""
    title: str = ""
    status: int = 0
    detail: str = ""
    errors: Annotated[list[FieldError], Field(max_length=1000)] = []
    execution: Annotated[str, Field(max_length=253)] | None = None


@dataclass(frozen=True, kw_only=True)
class HttpReply:
    """A complete response."""

    status: int
    content: bytes
    address: str
    """Method and URL of the request, for messages."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers by their names in lower case."""

    def to_json(self) -> Any:
        """Return the body's JSON. Raises UnexpectedResponse."""
        try:
            return json.loads(self.content)
        except (ValueError, RecursionError) as error:
            raise UnexpectedResponse(f"{self.address}: the response is not JSON; is this a gateway?") from error


@dataclass(kw_only=True)
class Transport:
    """Requests to one gateway."""

    http: httpx.AsyncClient
    url: str
    read_key: Callable[[], str | None]
    """Returns the API key or token of the next request."""
    timeout_seconds: float
    """Time for a response, in addition to the wait that a request asks for."""
    retries: RetryPolicy
    proxy: str | None = None
    """Address of the proxy that requests go through, for messages."""
    sleep: Callable[[float], Awaitable[None]] = field(default=asyncio.sleep)
    clock: Callable[[], float] = field(default=time.monotonic)
    has_answered: bool = field(default=False, init=False)
    """Whether the gateway has sent a response, so that failures to reach it are an absence and no wrong address."""

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        wait_seconds: float = 0.0,
        repeatable: bool = True,
        expected: Collection[int] = (),
    ) -> HttpReply:
        """Send a request until there is a response without an error, and return it.

        A request that is not `repeatable` is sent again only if the gateway cannot have acted on it. The statuses in
        `expected` are no errors. Raises GatewayError, GatewayUnreachable and UnexpectedResponse.
        """
        content = None if body is None else encode_body(body)
        seconds = self.timeout_seconds + wait_seconds
        attempts = Attempts(self)
        while True:
            try:
                return await self._send_once(
                    method, path, query=query, content=content, headers=headers, expected=expected, seconds=seconds
                )
            except (GatewayError, GatewayUnreachable) as error:
                await attempts.pause(error, repeatable=repeatable)

    async def _send_once(self, method: str, path: str, *, seconds: float, **request: Any) -> HttpReply:
        address = f"{method} {self.url}{path}"
        try:
            async with (
                asyncio.timeout(seconds),
                self.open(method, path, read_seconds=seconds, **request) as response,
            ):
                content = await read_bounded(response, MAX_RESPONSE_BYTES, address)
                headers = dict(response.headers)
                return HttpReply(status=response.status_code, content=content, address=address, headers=headers)
        except TimeoutError as error:
            text = f"{address}: no response within {seconds:g} seconds{self._name_proxy()}"
            raise GatewayUnreachable(text) from error

    @asynccontextmanager
    async def open(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        content: bytes | AsyncIterator[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
        expected: Collection[int] = (),
        read_seconds: float,
    ) -> AsyncIterator[httpx.Response]:
        """Send a request once and yield its response, whose body is not read. Raises an error for 3xx, 4xx and 5xx.

        `read_seconds` is the longest time between two parts of the response.
        """
        address = f"{method} {self.url}{path}"
        sent = {"Accept": "application/json", "Accept-Encoding": "identity", **(headers or {})}
        if content is not None:
            sent.setdefault("Content-Type", "application/json")
        if key := self.read_key():
            sent["Authorization"] = f"Bearer {check_key(key)}"
        try:
            async with self.http.stream(
                method,
                self.url + path,
                params={name: value for name, value in (query or {}).items() if value is not None},
                content=content,
                headers=sent,
                timeout=httpx.Timeout(read_seconds, connect=_CONNECT_SECONDS),
                follow_redirects=False,
            ) as response:
                if response.headers.get("Content-Encoding", "identity") != "identity":
                    raise UnexpectedResponse(f"{address}: the response is compressed, which the client did not accept")
                if not (response.is_success or response.status_code in expected):
                    problem = await read_problem(response, address)
                    if problem.is_of_proxy:
                        problem.add_text(self._name_proxy())
                    else:
                        self.has_answered = True
                    raise problem
                self.has_answered = True
                yield response
        except httpx.TransportError as error:
            raise GatewayUnreachable(f"{address}: {describe_failure(error)}{self._name_proxy()}") from error

    def _name_proxy(self) -> str:
        """Return words about the proxy on the way to the gateway, to be added to an error; empty without a proxy."""
        return f" (through the proxy {self.proxy})" if self.proxy else ""


class Attempts:
    """Attempts to make one request, with the delays between them."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.reset()

    def reset(self) -> None:
        """Begin to count again, because the gateway has sent something."""
        self._failures, self._uncounted, self._waited = 0, 0, 0.0
        self._since: float | None = None
        self._may_have_arrived = False

    async def pause(self, error: GatewayError | GatewayUnreachable, *, repeatable: bool = True) -> None:
        """Wait for the next attempt. Raises the error if the request is not to be sent again."""
        self._failures += 1
        self._may_have_arrived |= not isinstance(error.__cause__, _NOT_SENT)
        retry_after = error.retry_after if isinstance(error, GatewayError) else None
        delay = self._transport.retries.find_delay(
            self._failures, waited=self._measure(error), retry_after=retry_after, uncounted=self._uncounted
        )
        if delay is None or not can_retry(error, repeatable=repeatable):
            error.may_have_arrived = self._may_have_arrived
            raise error
        await self._transport.sleep(delay)
        self._waited += delay

    def _measure(self, error: GatewayError | GatewayUnreachable) -> float:
        """Return the seconds that count against the limit of delays.

        While the gateway is away, attempts themselves count, too: each may wait for a time limit of its own.
        """
        now = self._transport.clock()
        self._since = now if self._since is None else self._since
        is_away = isinstance(error, GatewayUnreachable) or (error.is_of_proxy and error.status in _AWAY_STATUSES)
        if not (self._transport.has_answered and is_away):
            return self._waited
        self._uncounted += 1
        return max(self._waited, now - self._since)


def check_key(key: str) -> str:
    """Return the key. Raises ClientMisconfigured if a header cannot carry it; the error does not repeat it."""
    if not (key.isascii() and key.isprintable() and " " not in key):
        raise ClientMisconfigured("the API key has a character that is not printable ASCII, or a space")
    return key


def can_retry(error: McpExecError, *, repeatable: bool = True) -> bool:
    """Return whether the same request may have another outcome, and is safe to send again."""
    cause = error.__cause__
    if isinstance(error, GatewayUnreachable):
        return isinstance(cause, _NOT_SENT) or (repeatable and not isinstance(cause, _NOT_RETRIED))
    if isinstance(error, GatewayError):
        return error.status in (RETRIED_STATUSES if repeatable else (429,))
    return False


async def read_bounded(response: httpx.Response, limit: int, address: str) -> bytes:
    """Return a response's body. Raises UnexpectedResponse if it has more than `limit` bytes."""
    return await read_all(response.aiter_raw(), limit=limit, what=f"{address}: the response")


async def read_all(parts: AsyncIterator[bytes], *, limit: int, what: str) -> bytes:
    """Return all parts. Raises UnexpectedResponse if they have more than `limit` bytes."""
    content = bytearray()
    async for part in parts:
        content += part
        if len(content) > limit:
            raise UnexpectedResponse(f"{what} has more than {limit} bytes")
    return bytes(content)


async def read_problem(response: httpx.Response, address: str) -> GatewayError:
    """Return the error that a response reports, also if it is from a proxy in front of the gateway."""
    content = await read_bounded(response, _MAX_PROBLEM_BYTES, address)
    status = response.status_code
    try:
        problem = _Problem.model_validate_json(content, extra="ignore")
    except ValidationError:
        text = content[:_MAX_DETAIL].decode(errors="replace").strip()
        problem = _Problem(detail=f"{address}: {text or response.reason_phrase or 'no text'}")
    kind = problem.type.removeprefix(PROBLEM_PREFIX) if problem.type.startswith(PROBLEM_PREFIX) else OTHER_KIND
    return find_error_class(kind, status)(
        _KEY_REFUSED if kind == "unauthenticated" else problem.detail[:_MAX_DETAIL],
        kind=kind,
        status=status,
        errors=problem.errors,
        execution=problem.execution,
        retry_after=_read_retry_after(response.headers.get("Retry-After", "")),
    )


def _read_retry_after(text: str) -> float | None:
    return min(float(text), _MAX_RETRY_AFTER) if text.isascii() and text.isdigit() and len(text) < 10 else None


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
    timeout_seconds: float | None
    """Time for a response, in addition to the wait that the request asks for; 30 by default."""
    retries: RetryPolicy | None
    """Bounds of the retries of one request."""
    plain_http: bool | None
    """True if the key may be sent over plain HTTP to another machine, which otherwise causes a PlainHttpWarning."""
    http: httpx.AsyncClient | None
    """HTTP client with settings of its own, for example for TLS; its creator closes it."""


def read_url(url: str | None) -> str:
    """Return the gateway's address, or that of $MCP_EXEC_GATEWAY. Raises ClientMisconfigured."""
    url = os.environ.get("MCP_EXEC_GATEWAY") if url is None else url
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
    key = options.get("api_key")
    if key == "":
        raise ClientMisconfigured("api_key is empty; without it, $MCP_EXEC_API_KEY is used")
    key = key or os.environ.get("MCP_EXEC_API_KEY")
    if key and not options.get("plain_http"):
        warn_of_plain_http(address, stacklevel=_STACK_LEVEL)
    given, timeout_seconds = options.get("http"), options.get("timeout_seconds")
    if timeout_seconds is not None and not timeout_seconds > 0:  # also not for NaN
        raise ClientMisconfigured(f"timeout_seconds is a number of seconds above 0, and not {timeout_seconds}")
    proxy = find_proxy(address) if given is None else None
    return Transport(
        http=given or _open_http(address, proxy),
        url=address,
        proxy=proxy,
        read_key=key if callable(key) else lambda: key,
        timeout_seconds=_TIMEOUT_SECONDS if timeout_seconds is None else timeout_seconds,
        retries=options.get("retries") or RetryPolicy(),
    )


def _open_http(url: str, proxy: str | None) -> httpx.AsyncClient:
    """Return an HTTP client for a gateway. Raises ClientMisconfigured if it can't use the environment's proxy."""
    limits = httpx.Limits(max_connections=_MAX_CONNECTIONS)
    try:
        return httpx.AsyncClient(
            limits=limits, transport=direct_transport(url, partial(httpx.AsyncHTTPTransport, limits=limits))
        )
    except (ImportError, ValueError) as error:
        raise ClientMisconfigured(
            f"requests cannot go through the proxy {proxy} of the environment: {error}"
        ) from error
