"""The port for sandboxes with `POST /v1/calls`, and the route of direct calls. All input is hostile.

A bare ASGI application: a framework would cost as much time as the rest of the broker adds to a call.
"""

import asyncio
import contextlib
import json
import logging
from collections.abc import Awaitable, Callable, Container, Mapping, MutableMapping
from dataclasses import dataclass, field, replace
from functools import partial
from ipaddress import IPv4Address, IPv6Address, ip_address
from time import time
from traceback import format_tb
from typing import Any, Final, Protocol

from starlette.types import ASGIApp

from mcp_exec_api.approvals import Approval
from mcp_exec_api.meta import micro_time
from mcp_exec_broker.core.api.call_body import CallBody, ClientClosed, Message, Receive, RequestRefused
from mcp_exec_broker.core.api.verified import VerifiedGrants
from mcp_exec_broker.core.calls.call import CallRequest, Offload
from mcp_exec_broker.core.calls.pipeline import CallPipeline
from mcp_exec_broker.core.memory import BytesInFlight
from mcp_exec_common.broker.grants import (
    MAX_DIRECT_SECONDS,
    MAX_GRANT_SECONDS,
    CallRights,
    DirectGrant,
    Grant,
    GrantError,
    GrantSigner,
)

log = logging.getLogger(__name__)

Send = Callable[[Message], Awaitable[None]]

_JSON_LINES: Final = (b"content-type", b"application/x-ndjson")
_TEXT: Final = (b"content-type", b"text/plain; charset=utf-8")
_PART_BYTES: Final = 256 * 1024
_MAX_TOKEN: Final = 64 * 1024
_GRANTS_BYTES: Final = 16 * 1024 * 1024
"""Memory of verified grants: about 3 KiB each, but up to 150 KiB for one with many long patterns of tools."""
_GRANT_BYTES: Final = 2048
_PATTERN_BYTES: Final = 60
"""Memory of one pattern in addition to its text."""
DIRECT_PATH: Final = "/v1/direct/calls"
_CACHED_CHARACTERS: Final = 8 * 1024 * 1024


class CallAuthenticator(Protocol):
    """Authenticates calls by their grants."""

    def authenticate(self, header: bytes, *, peer: str) -> CallRights:
        """Return the grant in an Authorization header that came from an address. Raises RequestRefused."""


class GrantAuthenticator:
    """Authenticates requests by their grants, and caches verified grants."""

    def __init__(
        self,
        *,
        signer: GrantSigner,
        replica: str,
        checks_address: bool,
        get_waiting_seconds: Callable[[str], float] = lambda uid: 0.0,
    ) -> None:
        """`get_waiting_seconds` returns how long calls of an execution have waited for approvals."""
        self._signer = signer
        self._replica = replica
        self._checks_address = checks_address
        self._get_waiting_seconds = get_waiting_seconds
        self._verified = VerifiedGrants(
            keys=signer.keys, verify=self._verify, max_size=_GRANTS_BYTES, measure=_estimate_bytes
        )

    def authenticate(self, header: bytes, *, peer: str) -> Grant:
        """Return the grant in an Authorization header that came from an address. Raises RequestRefused."""
        scheme, _, token = header.decode("latin-1").partition(" ")
        if scheme.lower() != "bearer" or not token or len(token) > _MAX_TOKEN:
            raise RequestRefused(401, "the request has no grant: send Authorization: Bearer GRANT")
        grant = self._verified.read(token)
        if grant.expires <= time() and grant.expires + self._get_waiting_seconds(grant.execution) <= time():
            self._verified.discard(token)
            raise RequestRefused(401, "the grant has expired")
        if self._checks_address and peer != grant.pod_address and not is_same_address(peer, grant.pod_address):
            raise RequestRefused(401, "the grant belongs to the sandbox at another address")
        return grant

    def _verify(self, token: str) -> Grant:
        try:
            grant = self._signer.read(Grant, token, checks_expiry=False)
        except GrantError as error:
            raise RequestRefused(401, str(error)) from None
        if self._replica and grant.replica != self._replica:
            raise RequestRefused(401, "the grant belongs to another replica of the broker")
        if grant.expires > time() + MAX_GRANT_SECONDS:  # its account would be forgotten earlier
            raise RequestRefused(401, f"the grant is valid for more than {MAX_GRANT_SECONDS} s")
        return grant


def _estimate_bytes(token: str, grant: Grant) -> int:
    """Return about what a grant takes of memory, its token included."""
    return _GRANT_BYTES + _PATTERN_BYTES * len(grant.tools) + 2 * len(token)


def is_same_address(one: str, other: str) -> bool:
    """Return whether two texts are the same IP address, also as an IPv4 address mapped to IPv6."""
    try:
        return _parse_address(one) == _parse_address(other)
    except ValueError:
        return False


def _parse_address(text: str) -> IPv4Address | IPv6Address:
    address = ip_address(text)
    return getattr(address, "ipv4_mapped", None) or address


@dataclass(kw_only=True, eq=False)
class CallsApi:
    """The ASGI application of one path for calls."""

    path: str = "/v1/calls"
    authenticator: CallAuthenticator
    pipeline: CallPipeline
    namespaces: Container[str]
    max_body_bytes: int
    in_flight: BytesInFlight
    offload: Offload

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        response = _ResponseStream(send)
        try:
            grant = self._authenticate(scope)
            if self.in_flight.count_requests(grant) >= self.in_flight.limits.requests:
                raise RequestRefused(
                    429,
                    f"{self.in_flight.limits.requests} calls of {grant.holder} are in progress, which is the limit",
                )
            async with self.in_flight.lease(grant) as lease:
                body = CallBody(receive, length=_get_length(scope), max_bytes=self.max_body_bytes)
                line = await self._run_call(
                    grant, await body.read_request(lease, self.offload), _ClientWatch(receive), response
                )
                lease.set_result(len(line))
                await response.finish(line)
        except RequestRefused as error:
            await response.refuse(error)
        except ClientClosed:
            return
        except Exception as error:
            # without its text, which may contain arguments or results
            trace = "".join(format_tb(error.__traceback__))
            log.error("the broker failed in a call", extra={"error": type(error).__name__, "trace": trace})
            await response.refuse(RequestRefused(500, "the broker failed"))

    def _authenticate(self, scope: MutableMapping[str, Any]) -> CallRights:
        if scope["path"] != self.path:
            raise RequestRefused(404, f"this port serves only POST {self.path}")
        if scope["method"] != "POST":
            raise RequestRefused(405, f"this port serves only POST {self.path}")
        header = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        peer = scope.get("client") or ("", 0)
        grant = self.authenticator.authenticate(header, peer=str(peer[0]))
        if grant.namespace not in self.namespaces:
            raise RequestRefused(401, "this broker does not serve the grant's namespace")
        return grant

    async def _run_call(
        self, grant: CallRights, request: CallRequest, client: "_ClientWatch", response: "_ResponseStream"
    ) -> bytes:
        """Run a call and return the last line of its answer. A client that disconnects cancels it."""
        if request.load is None:
            client.start()
        else:
            request = replace(request, load=partial(client.load, request.load))
        try:
            return await self.pipeline.run_call(grant, request, notify_approval=response.send_approval)
        except asyncio.CancelledError:
            if not client.is_gone or client.uncancel():
                raise
            raise ClientClosed from None
        finally:
            client.stop()


class _ClientWatch:
    """Cancels the current task if the client disconnects after its request was read."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._call = asyncio.current_task()
        self._watching: asyncio.Task[None] | None = None
        self.is_gone = False

    async def load(self, load: Callable[[], Awaitable[CallRequest]]) -> CallRequest:
        """Read the rest of the request, then watch the connection."""
        try:
            request = await load()
        except ClientClosed:
            self._cancel()
            await asyncio.sleep(0)  # raises CancelledError, as if the client had disconnected later
            raise
        self.start()
        return request

    def start(self) -> None:
        """Watch the connection, whose request has been read."""
        self._watching = asyncio.get_running_loop().create_task(self._watch())

    def stop(self) -> None:
        """Stop before the response ends, which would look like a disconnect."""
        if self._watching is not None:
            self._watching.cancel()

    def uncancel(self) -> int:
        """Withdraw the cancellation, and return the number of others."""
        return self._call.uncancel() if self._call is not None else 1

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._cancel()

    def _cancel(self) -> None:
        self.is_gone = True
        if self._call is not None:
            self._call.cancel()


def _get_length(scope: MutableMapping[str, Any]) -> int | None:
    """Return the Content-Length, which the HTTP parser has checked."""
    return next((int(value) for name, value in scope["headers"] if name == b"content-length"), None)


class _ResponseStream:
    """The response to one request, which starts with its first line."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._started = False

    async def send_approval(self, approval: Approval) -> None:
        """Send the line of a pending approval."""
        line = {
            "type": "approval",
            "id": approval.id,
            "tool": approval.tool,
            "expiresAt": micro_time(approval.expires_at),
        }
        if not self._started:
            self._started = True
            await self._send({"type": "http.response.start", "status": 200, "headers": [_JSON_LINES]})
        await self._send({"type": "http.response.body", "body": json.dumps(line).encode() + b"\n", "more_body": True})

    async def finish(self, line: bytes) -> None:
        """Send the last line, in parts that the client reads one by one."""
        if not self._started:
            self._started = True
            headers = [_JSON_LINES, (b"content-length", b"%d" % len(line))]
            await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        for start in range(0, len(line) - _PART_BYTES, _PART_BYTES):
            part = line[start : start + _PART_BYTES]
            await self._send({"type": "http.response.body", "body": part, "more_body": True})
        await self._send({"type": "http.response.body", "body": line[-((len(line) - 1) % _PART_BYTES + 1) :]})

    async def refuse(self, error: RequestRefused) -> None:
        """Send an error status; if the response has started, end it without its last line."""
        if self._started:
            with contextlib.suppress(OSError):
                await self._send({"type": "http.response.body", "body": b""})
            return
        body = f"{error}\n".encode()
        headers = [_TEXT, (b"content-length", b"%d" % len(body))]
        if error.status == 401:
            headers.append((b"www-authenticate", b"Bearer"))
        if error.status == 413:
            headers.append((b"connection", b"close"))
        await self._send({"type": "http.response.start", "status": error.status, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})


@dataclass(frozen=True, kw_only=True)
class SandboxApp:
    """The ASGI application of the port for sandboxes."""

    calls: CallsApi
    others: Mapping[str, ASGIApp]
    """Applications of features by the beginnings of their paths."""

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request."""
        if self.others and scope["type"] == "http":
            for prefix, app in self.others.items():
                if scope["path"].startswith(prefix):
                    return await app(scope, receive, send)
        return await self.calls(scope, receive, send)


@dataclass(kw_only=True, eq=False)
class DirectAuthenticator:
    """Authenticates the gateway's requests by their grants, and caches verified grants."""

    signer: GrantSigner
    _verified: VerifiedGrants[DirectGrant] = field(init=False)

    def __post_init__(self) -> None:
        self._verified = VerifiedGrants(
            keys=self.signer.keys,
            verify=self._verify,
            max_size=_CACHED_CHARACTERS,
            measure=lambda token, _: len(token),
        )

    def authenticate(self, header: bytes, *, peer: str) -> DirectGrant:
        """Return the grant in an Authorization header. Raises RequestRefused."""
        scheme, _, token = header.decode("latin-1").partition(" ")
        if scheme.lower() != "bearer" or not token or len(token) > _MAX_TOKEN:
            raise RequestRefused(401, "the request has no grant of direct calls: send Authorization: Bearer GRANT")
        grant = self._verified.read(token)
        if grant.expires <= time():
            self._verified.discard(token)
            raise RequestRefused(401, "the grant has expired")
        return grant

    def _verify(self, token: str) -> DirectGrant:
        try:
            grant = self.signer.read(DirectGrant, token)
        except GrantError as error:
            raise RequestRefused(401, str(error)) from None
        if grant.expires > time() + MAX_DIRECT_SECONDS:
            raise RequestRefused(401, f"the grant is valid for more than {MAX_DIRECT_SECONDS} s")
        return grant
